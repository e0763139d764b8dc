package demo

import (
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// Effect converts an entry for the checkers of package verify; false: they don't need it.
func (e *Entry) Effect() (verify.Effect, bool) {
	switch e.What {
	case Effect:
		return verify.Effect{What: verify.Happened, Key: e.Key}, true
	case Undone, Nothing:
		return verify.Effect{What: verify.Undone, Key: e.UndoOf}, true
	default:
		return verify.Effect{}, false
	}
}

// CheckLedger compares a ledger with the tasks of the log: promises P6 and P7, and P1 for a task that the log
// doesn't have. It returns the violations.
func CheckLedger(ledger []Entry, task func(id string) *events.Task, ids []string) []string {
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
