package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// pivoted writes a task whose step a, a pivot, is completed, and whose step b was rejected.
func pivoted(h *history) *history {
	h.steps = func(s []events.PlanStep) { s[0].Pivot = true }
	h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("a", events.Do)
	return h.reply("b", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1})
}

// TestPivots checks P2 with pivots.
func TestPivots(t *testing.T) {
	undoing := func(by events.By) *events.TaskUndoing {
		return &events.TaskUndoing{By: by, Ending: events.StateUndone, Error: failedAtB()}
	}
	holds(t, Options{Requests: true, Deadletters: true}, []played{
		{"held after a pivot", "", func(h *history) { pivoted(h).add(&events.TaskHeld{Error: failedAtB()}) }},
		{"held after a pivot at the task's time", "", func(h *history) {
			h.steps = func(s []events.PlanStep) { s[0].Pivot = true }
			h.chain = true
			h.submit().add(do("a", 1)).completes("a", events.Do).add(do("b", 1)).later(time.Hour).recovery("", "", events.ActionUndo)
			h.add(&events.TaskHeld{Error: &events.Error{Code: events.CodeExpired}})
		}},
		{"an operator undoes what is past its pivot", "", func(h *history) {
			pivoted(h).add(&events.TaskHeld{Error: failedAtB()})
			x := &events.Control{Command: events.UndoTask, By: events.By{Who: "op"}}
			h.control(x).add(&events.TaskUndoing{By: events.By{Who: "op", RequestID: "request"}, Ending: events.StateUndone, Error: &events.Error{Code: events.CodeUndoRequested}})
		}},
		{"P2: undoing after a pivot", "P2", func(h *history) { pivoted(h).add(undoing(events.By{})) }},
		{"P2: held, and the pivot isn't completed", "P2", func(h *history) {
			h.steps = func(s []events.PlanStep) { s[0].Pivot = true }
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond)
			h.reply("b", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1})
			h.add(&events.TaskHeld{Error: failedAtB()})
		}},
	})
}
