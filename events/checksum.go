package events

import (
	"errors"
	"fmt"
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
func (e *Event) Seal(before *Task) []byte {
	value, _ := e.SealIn(nil, before)
	return value
}

// SealIn is Seal with the value in m, and its Hash.
func (e *Event) SealIn(m *Arena, before *Task) (value []byte, hash string) {
	e.Sum = ""
	value = encodeObjectIn(m, e)
	h := m.getHasher()
	if !MayBeLast(before, e.Fact) {
		return value, h.Hash(e.Fact.Type(), value)
	}
	open := value[:len(value)-len(brace)]
	e.Sum = h.hashOpen(e.Fact.Type(), open)
	sealed := append(append(m.newBytes(len(open)+sumBytes), open...), sumPrefix...)
	sealed = append(append(sealed, e.Sum...), sumSuffix...)
	return sealed, h.hashRest(sealed[len(open):])
}

// A sum is the last member of a value: what stands before it is what it is the hash of.
const (
	sumPrefix = `,"sum":"`
	sumSuffix = `"}`
	hashBytes = 22 // what Hash returns
	sumBytes  = len(sumPrefix) + hashBytes + len(sumSuffix)
)

// CheckSum holds a record of the events topic, which was read as e, against the sum in
// it. Without one there is nothing to hold it against. The error says that the record
// isn't as it was written.
func (e *Event) CheckSum(r *Record) error {
	_, err := e.checkSum(r, &Hasher{})
	return err
}

// checkSum is CheckSum, and returns the Hash of the record if it had to make it.
func (e *Event) checkSum(r *Record, h *Hasher) (hash string, err error) {
	v := r.Value
	ends := len(v) - len(sumSuffix) // of the text of a sum
	text := ends - hashBytes        // where it begins
	begins := text - len(sumPrefix) // with its name
	there := begins > 0 && v[text-1] == '"' && string(v[ends:]) == sumSuffix
	switch {
	case !there && e.Sum == "":
		return "", nil
	case !there || e.Sum != "" && (e.Sum != string(v[text:ends]) || string(v[begins:text]) != sumPrefix):
		return "", errors.New("its sum isn't as it was written: the event was changed afterwards")
	}
	sum := h.hashOpen(e.Fact.Type(), v[:begins])
	hash = h.hashRest(v[begins:])
	switch {
	case e.Sum != "" && e.Sum != sum:
		return hash, fmt.Errorf("it hashes to %q, and its sum says %q: it was changed after it was written", sum, e.Sum)
	case e.Sum == "" && sum == string(v[text:ends]): // nobody reads it by that name
		return hash, errors.New("the name of its sum was changed after it was written")
	}
	return hash, nil
}
