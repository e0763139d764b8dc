package events

import (
	"errors"
	"fmt"
	"slices"
)

// MayBeLast reports whether an event can be the last that is ever written of its task, or
// is about no task: it ends the task, holds it, comes while it is held, or claims a
// partition. before is the task's state before it; nil: there is none. No later event
// need hold its hash, so it holds its own (Event.Sum). Any other event leaves a timer
// armed, which leads to another event.
func MayBeLast(before *Task, f Fact) bool {
	switch f.(type) {
	case *PartitionClaimed, *TaskProcessed, *TaskUndone, *TaskCancelled, *TaskHeld:
		return true
	}
	return before != nil && before.State == StateError
}

// Seal is Value for an event that is written for the first time, on the task's state
// before it: one that may be the last gets its Sum.
func (e *Event) Seal(before *Task) []byte { return e.SealIn(nil, before) }

// SealIn is Seal with the value in m.
func (e *Event) SealIn(m *Room, before *Task) []byte {
	e.Sum = ""
	value := encodeObjectIn(m, e)
	if !MayBeLast(before, e.Fact) {
		return value
	}
	e.Sum = Hash(e.Fact.Type(), value)
	sealed := m.bytes(len(value) + sumBytes)
	sealed = append(append(sealed, value[:len(value)-1]...), sumBegins...)
	return append(append(sealed, e.Sum...), sumEnds...)
}

// A sum is the last member of a value: what stands before it is what it is the hash of.
const (
	sumBegins = `,"sum":"`
	sumEnds   = `"}`
	hashBytes = 22 // what Hash returns
	sumBytes  = len(sumBegins) + hashBytes + len(sumEnds)
)

// CheckSum holds a record of the events topic, which was read as e, against the sum in
// it. Without one there is nothing to hold it against. The error says that the record
// isn't as it was written.
func (e *Event) CheckSum(r *Record) error {
	v := r.Value
	ends := len(v) - len(sumEnds)   // of the text of a sum
	text := ends - hashBytes        // where it begins
	begins := text - len(sumBegins) // with its name
	there := begins > 0 && v[text-1] == '"' && string(v[ends:]) == sumEnds
	switch {
	case !there && e.Sum == "":
		return nil
	case !there || e.Sum != "" && (e.Sum != string(v[text:ends]) || string(v[begins:text]) != sumBegins):
		return errors.New("its sum isn't as it was written: the event was changed afterwards")
	}
	hash := Hash(e.Fact.Type(), append(slices.Clone(v[:begins]), '}'))
	switch {
	case e.Sum != "" && e.Sum != hash:
		return fmt.Errorf("it hashes to %q, and its sum says %q: it was changed after it was written", hash, e.Sum)
	case e.Sum == "" && hash == string(v[text:ends]): // nobody reads it by that name
		return errors.New("the name of its sum was changed after it was written")
	}
	return nil
}
