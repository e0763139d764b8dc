package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Entry is one line of a ledger: a JSON object.
type Entry struct {
	At        time.Time `json:"at"`
	Service   string    `json:"service"`
	Operation string    `json:"operation"`
	What      What      `json:"what"`
	Key       string    `json:"key"`               // idempotency key
	UndoOf    string    `json:"undo_of,omitempty"` // of an undo: the key that is undone
	Request   string    `json:"request,omitempty"`
	Late      bool      `json:"late,omitempty"` // the caller had given up by then
}

// What is what a line of a ledger says.
type What string

// The kinds of line.
const (
	Called  What = "call"
	Effect  What = "effect"  // the world is another one now
	Undone  What = "undo"    // an effect was taken back
	Nothing What = "nothing" // an undo found nothing to take back, and bars the effect from coming later
)

// Ledger is an append-only file of entries, one in a line. It is safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
	size int64 // whole lines
}

// OpenLedger opens or creates a ledger and returns what it holds. What a killed process left of a
// line is cut off: the kernel ends its write in the middle, and nobody was told of what was to be in it.
func OpenLedger(path string) (*Ledger, []Entry, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	had, size, err := readLines(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &Ledger{file: f, size: size}, had, nil
}

// ReadLedger reads the whole lines of a ledger, which may be open and grow.
func ReadLedger(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, _, err := readLines(f)
	return all, err
}

// readLines reads whole lines, and says how many bytes they are.
func readLines(f *os.File) (all []Entry, size int64, err error) {
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return all, size, nil
		case err != nil:
			return nil, 0, err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", f.Name(), n, err)
		}
		all, size = append(all, e), size+int64(len(line))
	}
}

// Append writes entries, in one write.
func (l *Ledger) Append(es ...Entry) error {
	var buf []byte
	for i := range es {
		line, err := json.Marshal(&es[i])
		if err != nil {
			return err
		}
		buf = append(append(buf, line...), '\n')
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.file.Write(buf)
	if n == len(buf) {
		l.size += int64(n)
		return nil
	}
	// A full disk takes part of a line, which nobody could read again.
	return errors.Join(err, l.file.Truncate(l.size))
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }
