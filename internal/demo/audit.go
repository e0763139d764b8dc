package demo

import (
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// Audit compares a ledger with the states that the log gives its tasks, from
// outside: P6 (after undone, or cancelled without --keep, no effect without its
// undo, where the step has one) and P7 (an effect for
// each completed step, at most one for each key). It returns what is broken.
func Audit(ledger []Entry, task func(id string) *events.Task, ids []string) []string {
	var faults []string
	effects, undone := map[string]int{}, map[string]bool{}
	for _, e := range ledger {
		switch e.What {
		case Effect:
			if effects[e.Key]++; effects[e.Key] > 1 {
				faults = append(faults, fmt.Sprintf("P7: %d effects for key %s", effects[e.Key], e.Key))
			}
		case Undone, Nothing:
			undone[e.UndoOf] = true
		}
	}
	for _, id := range ids {
		t := task(id)
		if t == nil {
			faults = append(faults, fmt.Sprintf("P1: task %s is not in the log", id))
			continue
		}
		for i := range t.Steps {
			s := &t.Steps[i]
			name := t.Plan.Steps[i].ID
			switch {
			case s.State == events.StepCompleted && effects[s.Key] == 0:
				faults = append(faults, fmt.Sprintf("P7: step %s of task %s completed without an effect", name, id))
			case takenBack(t) && t.Plan.Steps[i].Undo != nil && effects[s.Key] > 0 && !undone[s.Key]:
				faults = append(faults, fmt.Sprintf("P6: step %s of task %s has an effect without its undo", name, id))
			}
		}
	}
	return faults
}

// takenBack reports whether all that the task did had to be undone.
func takenBack(t *events.Task) bool {
	return t.State == events.StateUndone || t.State == events.StateCancelled && !t.Keep
}
