package verify

import (
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// undoOrder checks P6: none while an attempt runs; first the steps whose effect
// is unknown, then the completed ones in reverse completion order.
type undoOrder struct {
	last      uint64 // CompletedSeq of the completed step undone last
	completed bool   // a completed step's undo has begun
}

// started holds the first attempt of an undo against the state before it.
func (u *undoOrder) started(t *events.Task, f *events.AttemptStarted) string {
	i, ok := t.Plan.Step(f.Step)
	if !ok {
		return ""
	}
	for j := range t.Steps {
		if t.Steps[j].State == events.StepRunning {
			return fmt.Sprintf("undo of step %q begins while step %q runs", f.Step, t.Plan.Steps[j].ID)
		}
	}
	s := &t.Steps[i]
	if s.Undo != nil && s.Undo.Attempt > 0 {
		return "" // a further attempt
	}
	if s.CompletedSeq == 0 {
		if u.completed {
			return fmt.Sprintf("undo of step %q, whose effect is unknown, begins after that of a completed one", f.Step)
		}
		return ""
	}
	if u.completed && s.CompletedSeq > u.last {
		return fmt.Sprintf("undo of step %q begins after that of a step that completed before it", f.Step)
	}
	u.completed, u.last = true, s.CompletedSeq
	return ""
}
