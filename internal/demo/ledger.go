package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

// Ledger is an append-only file of entries. Each line is one write, so a killed
// process leaves whole lines. It is safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
	size int64 // whole lines
}

// OpenLedger opens or creates a ledger and returns what it holds.
func OpenLedger(path string) (*Ledger, []Entry, error) {
	had, err := ReadLedger(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &Ledger{file: f, size: info.Size()}, had, nil
}

// ReadLedger reads a ledger.
func ReadLedger(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Entry
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for line := 1; in.Scan(); line++ {
		var e Entry
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		all = append(all, e)
	}
	return all, in.Err()
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
