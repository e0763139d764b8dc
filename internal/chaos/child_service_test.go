package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/demo"
)

// service is called by the agents of all processes. It is a directory with a file for each idempotency key. The first
// caller creates the file atomically. So a process that is stopped or killed at any point blocks no other process and
// leaves no partial file.
type service struct{ dir string }

// The first line of a key's file.
const (
	effectMade = "effect" // the effect happened
	keyBarred  = "barred" // it was undone before it happened; it never will
	undoneMark = ".undone"
)

// serviceInput is the part of a step's input that the service reads.
type serviceInput struct {
	// Fail is the number of attempts that fail before any effect.
	Fail int `json:"fail"`
}

// Handle performs the request, once for each key.
func (s service) Handle(_ context.Context, r agent.Request) (any, error) {
	if r.Kind == agent.Undo {
		return s.undo(r)
	}
	var in serviceInput
	if err := r.Into(&in); err != nil {
		return nil, err
	}
	if r.Attempt <= in.Fail {
		return nil, errors.New("not this time")
	}
	had, err := s.first(r.IdempotencyKey, effectMade)
	if err != nil {
		return nil, err
	}
	if had == keyBarred {
		return nil, agent.Rejected("undone", "this key was undone")
	}
	return map[string]string{"done": r.Step}, nil
}

func (s service) undo(r agent.Request) (any, error) {
	had, err := s.first(r.UndoOf.IdempotencyKey, keyBarred)
	if err == nil && had == effectMade {
		err = os.WriteFile(s.file(r.UndoOf.IdempotencyKey)+undoneMark, nil, 0o644)
	}
	return map[string]bool{"undone": true}, err
}

func (s service) file(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:12]))
}

// first creates a key's file unless it exists, and returns its content.
func (s service) first(key, says string) (string, error) {
	whole, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(whole.Name())
	_, err = fmt.Fprintf(whole, "%s %s", says, key)
	if err := errors.Join(err, whole.Close()); err != nil {
		return "", err
	}
	name := s.file(key)
	err = os.Link(whole.Name(), name)
	if err == nil {
		return says, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	b, err := os.ReadFile(name)
	had, _, _ := bytes.Cut(b, []byte(" "))
	return string(had), err
}

// ledger returns the effects, for demo.Audit.
func (s service) ledger() ([]demo.Entry, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var all []demo.Entry
	for _, f := range files {
		if filepath.Ext(f.Name()) != "" || f.Name()[0] == '.' {
			continue
		}
		name := filepath.Join(s.dir, f.Name())
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		says, key, _ := bytes.Cut(b, []byte(" "))
		if string(says) == keyBarred {
			all = append(all, demo.Entry{What: demo.Nothing, UndoOf: string(key)})
			continue
		}
		all = append(all, demo.Entry{What: demo.Effect, Key: string(key)})
		if _, err := os.Stat(name + undoneMark); err == nil {
			all = append(all, demo.Entry{What: demo.Undone, UndoOf: string(key)})
		}
	}
	return all, nil
}

// json returns the input of a task.
func (in serviceInput) json() json.RawMessage {
	return fmt.Appendf(nil, `{"fail":%d}`, in.Fail)
}
