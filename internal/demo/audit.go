package demo

import (
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// Effect is what a line of a ledger says to the checkers; false: nothing.
func (e *Entry) Effect() (verify.Effect, bool) {
	switch e.What {
	case Effect:
		return verify.Effect{What: verify.Happened, Key: e.Key}, true
	case Undone, Nothing:
		return verify.Effect{What: verify.Undone, Key: e.UndoOf}, true
	}
	return verify.Effect{}, false
}

// Audit holds a ledger against the states that the log gives its tasks, from
// outside: P6 and P7, and P1 of a task that isn't there. It returns what is
// broken.
func Audit(ledger []Entry, task func(id string) *events.Task, ids []string) []string {
	l := verify.NewLedger()
	for i := range ledger {
		if e, ok := ledger[i].Effect(); ok {
			l.Add(e)
		}
	}
	faults := l.Duplicates()
	for _, id := range ids {
		if t := task(id); t != nil {
			faults = append(faults, l.Check(t)...)
		} else {
			faults = append(faults, verify.Fault{Promise: "P1", Task: id, What: "not in the log"})
		}
	}
	list := make([]string, len(faults))
	for i, f := range faults {
		list[i] = f.String()
	}
	return list
}
