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
	UndoOf    string    `json:"undo_of,omitempty"` // for an undo: the key that it undoes
	Request   string    `json:"request,omitempty"`
	Late      bool      `json:"late,omitempty"` // after the caller's deadline
}

// What is the kind of an entry.
type What string

// The kinds of entry.
const (
	Called  What = "call"
	Effect  What = "effect"  // the operation took effect
	Undone  What = "undo"    // an effect was undone
	Nothing What = "nothing" // an undo found no effect, and prevents a later one
)

// Ledger is an append-only file of entries, one in a line. It is safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
	size int64 // of complete lines
}

// OpenLedger opens or creates a ledger and returns its entries. It truncates an incomplete last line, which a
// killed process leaves: its caller got no answer.
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

// ReadLedger reads the complete lines of a ledger, which another process may append to.
func ReadLedger(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, _, err := readLines(f)
	return all, err
}

// readLines decodes complete lines, and returns their size in bytes.
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

// Append writes entries with a single write.
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
	// A full disk may have written part of a line, which could not be decoded later.
	return errors.Join(err, l.file.Truncate(l.size))
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }
