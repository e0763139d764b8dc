package verify

import (
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Effect is one line of a ledger.
type Effect struct {
	What EffectKind
	Key  string // the idempotency key; for an undo, the key of the undone operation
}

// EffectKind is what a line of a ledger records.
type EffectKind uint8

// The kinds of line.
const (
	Happened EffectKind = iota // the operation had its effect
	Undone                     // the effect was undone, or prevented before it could happen
)

// Ledger holds the effects of services, by idempotency key. Lines of one key must be added in the order in which they
// happened. One goroutine uses it.
type Ledger struct {
	keys  map[string]*effects
	order []string
	Lines int
}

// effects counts the lines of one key.
type effects struct {
	happened   int
	undone     bool
	afterwards bool // an effect came after the undo
}

// NewLedger makes an empty Ledger.
func NewLedger() *Ledger { return &Ledger{keys: map[string]*effects{}} }

// Add adds a line.
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

// Effect adds a line of the agents' ledger (P6, P7). Lines of one key must come in the order in which they happened.
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

// Check compares the steps of a task that call agents with their effects (P6, P7). A step that an operator released counts as completed
// or undone the agent completed it, since only a Checker can distinguish the two.
func (l *Ledger) Check(t *events.Task) []Fault {
	var fs []Fault
	back := t.State == events.StateUndone || t.State == events.StateCancelled && !t.Keep && !undoHeld(t)
	for i := range t.Steps {
		s := t.Steps[i]
		if !t.Plan.Steps[i].StepKind.CallsAgent() {
			continue
		}
		x := stepOutcome{step: t.Plan.Steps[i].ID, key: s.Key, completed: s.State == events.StepCompleted,
			caught: s.State == events.StepCaught && s.Unknown && t.Plan.Steps[i].Undo != nil,
			back:   back && t.Plan.Steps[i].Undo != nil}
		if fault := l.check(x); fault != nil {
			fault.Task = t.ID
			fs = append(fs, *fault)
		}
	}
	return fs
}

// undoHeld reports whether an undo is in error. If such a task has ended, an operator cancelled it without the
// remaining undos.
func undoHeld(t *events.Task) bool {
	return slices.ContainsFunc(t.Steps, func(s *events.Step) bool { return s.Undo != nil && s.Undo.State == events.StepError })
}

// stepOutcome is what the ledger of a step is compared with.
type stepOutcome struct {
	step, key string
	completed bool // by its agent
	caught    bool // its error was caught, and it may have had an effect
	back      bool // it must be undone
	byHand    bool // an operator released it as undone
	spared    bool // no undo was requested
}

func (l *Ledger) check(s stepOutcome) *Fault {
	x := l.keys[s.key]
	if x == nil {
		x = &effects{}
	}
	switch {
	case s.caught && !s.byHand && x.happened > 0 && (!x.undone || x.afterwards):
		return faultf("P21", "the error of step %q was caught, and it has an effect under %s without its undo", s.step, s.key)
	case s.completed && x.happened == 0:
		return faultf("P7", "step %q completed without an effect under %s", s.step, s.key)
	case s.back && !s.byHand && x.happened > 0 && !x.undone:
		return faultf("P6", "step %q has an effect under %s without its undo", s.step, s.key)
	case s.back && x.afterwards:
		return faultf("P6", "step %q had an effect under %s after its undo", s.step, s.key)
	case s.spared && x.undone:
		return faultf("P6", "step %q was undone under %s, and nobody asked for it", s.step, s.key)
	}
	return nil
}
