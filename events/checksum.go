package events

import (
	"errors"
	"fmt"
)

// MayBeLast reports whether the event with this fact can be the last of its task. Such an event contains its own hash
// (Event.Sum), since there may be no later event with its hash. It ends or holds the task, comes while the task is
// held, or is about a partition. Any other event leaves a timer armed, which leads to another event. before is the state
// before the event; nil: there is none.
func MayBeLast(before *Task, f Fact) bool {
	a := f.About()
	ends := OfPartition(f) || a.Verb == VerbProcessed || a.Verb == VerbUndone || a.Verb == VerbCancelled || a.Verb == VerbHeld
	return ends || before != nil && before.State == StateError
}

// Seal returns the value of a new event. before is the state of the task before it. Seal sets Sum if the event may be
// the last.
func (e *Event) Seal(before *Task) []byte {
	value, _ := e.SealIn(nil, before)
	return value
}

// SealIn is Seal with the value in m. It returns the Hash too.
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

// The sum is the last member of a value. It is the hash of the value without that member.
const (
	sumPrefix = `,"sum":"`
	sumSuffix = `"}`
	hashBytes = 22 // the length of what Hash returns
	sumBytes  = len(sumPrefix) + hashBytes + len(sumSuffix)
)

// CheckSum compares the sum in a record of the events topic with the record. e is the decoded record. A record without
// a sum passes. The error says that the record was changed.
func (e *Event) CheckSum(r *Record) error {
	_, err := e.checkSum(r, &Hasher{})
	return err
}

// checkSum is CheckSum. It returns the record's Hash if it had to compute it.
func (e *Event) checkSum(r *Record, h *Hasher) (hash string, err error) {
	v := r.Value
	ends := len(v) - len(sumSuffix) // where the text of a sum ends
	text := ends - hashBytes        // where the text of a sum begins
	begins := text - len(sumPrefix) // where the member begins
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
	case e.Sum == "" && sum == string(v[text:ends]): // the codec doesn't know the member by its name
		return hash, errors.New("the name of its sum was changed after it was written")
	}
	return hash, nil
}
