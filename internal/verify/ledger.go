package verify

import (
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Effect is a line of a ledger.
type Effect struct {
	What EffectKind
	Key  string // the idempotency key; of an undo: that of what it undid
}

// EffectKind is what a line of a ledger records.
type EffectKind uint8

// The kinds of line.
const (
	Happened EffectKind = iota // the world is another one now
	Undone                     // it was taken back, or barred before it could happen
)

// Ledger is the effects of services, by idempotency key. Lines of one key are added in the order in which they
// happened. One goroutine uses it.
type Ledger struct {
	keys  map[string]*effects
	order []string
	Lines int
}

// effects is what happened under one key.
type effects struct {
	happened   int
	undone     bool
	afterwards bool // an effect came after the undo
}

// NewLedger makes an empty one.
func NewLedger() *Ledger { return &Ledger{keys: map[string]*effects{}} }

// Add takes a line.
func (l *Ledger) Add(e Effect) {
	l.Lines++
	x := l.keys[e.Key]
	if x == nil {
		x = &effects{}
		l.keys[e.Key] = x
		l.order = append(l.order, e.Key)
	}
	switch e.What {
	case Happened:
		x.happened++
		x.afterwards = x.afterwards || x.undone
	case Undone:
		x.undone = true
	}
}

// Effect takes a line of the agents' ledger. Lines of one key come in the order
// in which they happened (P6, P7).
func (c *Checker) Effect(e Effect) { c.ledger.Add(e) }

// Duplicates returns a fault for each key with more than one effect: services that keep a ledger must honour the
// key (P7).
func (l *Ledger) Duplicates() []Fault {
	var fs []Fault
	for _, k := range l.order {
		if n := l.keys[k].happened; n > 1 {
			fs = append(fs, Fault{Promise: "P7", What: fmt.Sprintf("%d effects under the key %s", n, k)})
		}
	}
	return fs
}

// Check compares the steps of a task with their effects (P6, P7). A step that an operator released counts as
// settled by its agent; only a Checker can tell the difference.
func (l *Ledger) Check(t *events.Task) []Fault {
	var fs []Fault
	back := t.State == events.StateUndone || t.State == events.StateCancelled && !t.Keep && !undoHeld(t)
	for i := range t.Steps {
		s := t.Steps[i]
		x := settled{step: t.Plan.Steps[i].ID, key: s.Key, completed: s.State == events.StepCompleted,
			back: back && t.Plan.Steps[i].Undo != nil}
		if promise, what := l.check(x); what != "" {
			fs = append(fs, Fault{Promise: promise, Task: t.ID, What: what})
		}
	}
	return fs
}

// undoHeld reports whether an undo is in error: a task that ended so was cancelled
// by an operator who left what can't be undone.
func undoHeld(t *events.Task) bool {
	return slices.ContainsFunc(t.Steps, func(s *events.Step) bool { return s.Undo != nil && s.Undo.State == events.StepError })
}

// settled is what a ledger has to show of a step.
type settled struct {
	step, key string
	completed bool // by its agent
	back      bool // it had to be taken back
	byHand    bool // an operator says that it was
	spared    bool // nobody asked for its undo
}

func (l *Ledger) check(s settled) (promise, what string) {
	x := l.keys[s.key]
	if x == nil {
		x = &effects{}
	}
	switch {
	case s.completed && x.happened == 0:
		return "P7", fmt.Sprintf("step %q completed without an effect under %s", s.step, s.key)
	case s.back && !s.byHand && x.happened > 0 && !x.undone:
		return "P6", fmt.Sprintf("step %q has an effect under %s without its undo", s.step, s.key)
	case s.back && x.afterwards:
		return "P6", fmt.Sprintf("step %q had an effect under %s after its undo", s.step, s.key)
	case s.spared && x.undone:
		return "P6", fmt.Sprintf("step %q was undone under %s, and nobody asked for it", s.step, s.key)
	}
	return "", ""
}
