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

// service is what the agents of all processes call: a folder that holds a file
// for each idempotency key. A file is made at once, whole, by whoever is first, so
// a process that is stopped or killed anywhere holds nobody up and leaves
// nothing in halves.
type service struct{ dir string }

// What a key's file says first.
const (
	effectMade = "effect" // it happened
	keyBarred  = "barred" // it was undone before it could happen, and never will
	undoneMark = ".undone"
)

// serviceInput is the input of a step, as far as the service looks at it.
type serviceInput struct {
	// Fail: so many attempts fail, before anything happens.
	Fail int `json:"fail"`
}

// Handle does what is asked, once for each key.
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

// first makes a key's file, unless it is there, and returns what it says.
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

// ledger is what happened, as demo.Audit reads it.
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

// input is the input of a task.
func (in serviceInput) json() json.RawMessage {
	return fmt.Appendf(nil, `{"fail":%d}`, in.Fail)
}
