package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
)

// journal is the file of --results: a line with the batch, then a line for each change of a result. A batch that was
// killed goes on from it. Without a file it only holds the batch.
type journal struct {
	head    journalHead
	results []batch.Result // of the file, the last one of each task
	file    *os.File       // nil: there is none
	written map[string]batch.Result
	path    string
}

// journalHead is the first line.
type journalHead struct {
	Batch   string         `json:"batch"`
	Filter  string         `json:"filter"`
	Command events.Control `json:"command"`
	Tasks   []batch.Target `json:"tasks"`
}

// journalLineMax bounds a line: the head has all tasks.
const journalLineMax = 64 << 20

// openJournal reads the file of a batch, if it exists. The command must be that of the file.
func openJournal(path, id string, x *events.Control) (*journal, error) {
	j := &journal{written: map[string]batch.Result{}, path: path}
	if path == "" {
		return j, nil
	}
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, usage("--results: %v", err)
	}
	if err := j.read(src); err != nil {
		return nil, usage("--results %s: %v; name another file, or delete it to begin again", path, err)
	}
	h := &j.head.Command
	if id != "" && id != j.head.Batch || h.Command != x.Command || h.Step != x.Step || h.Keep != x.Keep || h.Processed != x.Processed {
		return nil, usage("--results %s is that of the batch %s, %s: name another file", path, j.head.Batch, commandText(h))
	}
	return j, nil
}

func (j *journal) read(src []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(src))
	lines.Buffer(nil, journalLineMax)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &j.head) != nil || j.head.Batch == "" {
		return errors.New("it isn't a file of results")
	}
	for lines.Scan() {
		var r batch.Result
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // the process was killed while it wrote the line
		}
		j.written[r.Task] = r
	}
	for _, r := range j.written {
		j.results = append(j.results, r)
	}
	return lines.Err()
}

// begin opens the file to append to it, and writes the head if it is new.
func (j *journal) begin() (err error) {
	if j.path == "" {
		return nil
	}
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return usage("--results: %v", err)
	}
	info, err := j.file.Stat()
	if err != nil || info.Size() > 0 {
		_, werr := j.file.WriteString("\n") // the last line may be cut
		return cmp.Or(err, werr)
	}
	return j.append(j.head)
}

func (j *journal) append(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("--results: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("--results: %w; the commands that were sent are in the log", err)
	}
	return nil
}

// write writes a result that has changed.
func (j *journal) write(r batch.Result) error {
	if r.Status == batch.Waiting || r.Status == batch.Sent || j.written[r.Task] == r {
		return nil
	}
	j.written[r.Task] = r
	if j.file == nil {
		return nil
	}
	return j.append(r)
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close() // each line was written
	}
}
