package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// catchesGone makes a history whose step a isn't retried, and catches the code gone.
func catchesGone(h *history) *history {
	h.steps = func(s []events.PlanStep) {
		s[0].Catch = []string{"gone"}
		s[0].RetryCodes.Except = []string{"gone", "other"}
		s[1].Needs = []int{0}
	}
	return h
}

var gone = &events.Error{Code: "gone"}

// erredA writes a task whose step a ended in error after an attempt of unknown effect, while step c runs.
func erredA(h *history, code string) *history {
	h.t.Helper()
	h.submit().add(do("a", 1)).add(do("c", 1)).failsWith("a", 1, code)
	return h.add(&events.RunErrored{Kind: events.Do, Step: "a", Error: &events.Error{Code: code}})
}

// caughtA writes a task whose step a is caught after its undo.
func caughtA(h *history) *history {
	h.t.Helper()
	return erredA(catchesGone(h), "gone").add(undo("a", 1)).completes("a", events.Undo).add(&events.RunCaught{Step: "a", Error: gone}).add(do("b", 1))
}

func rejectsA(h *history) *history {
	h.t.Helper()
	h.submit().add(do("a", 1)).add(do("c", 1)).later(10 * time.Millisecond)
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: token, Outcome: events.Rejected, Body: []byte(`{"code":"gone"}`)}
	return h.input(p.Record(ns, "agent")).add(&events.AttemptRejected{Kind: events.Do, Step: "a", Attempt: 1, Error: gone})
}

// undoFails writes that the undo of step a, which is being caught, was rejected, so that the task is held.
func undoFails(h *history) *history {
	h.t.Helper()
	erredA(catchesGone(h), "gone").add(undo("a", 1)).later(10*time.Millisecond).reply("a", events.Undo, 1, events.Rejected)
	err := *empty.Failure()
	err.Step = "a"
	return h.add(&events.AttemptRejected{Kind: events.Undo, Step: "a", Attempt: 1}).add(&events.TaskHeld{Error: &err})
}

func operates(h *history, x *events.Control) events.By {
	x.By = events.By{Who: "op"}
	h.control(x)
	return events.By{Who: "op", RequestID: "request"}
}

// TestCaught checks P21, a caught effect is undone or known, and the other promises as they apply to caught errors.
func TestCaught(t *testing.T) {
	holds(t, Options{Requests: true, Deadletters: true, Ledger: true}, []played{
		{"caught after its undo", "", func(h *history) {
			caughtA(h).completes("b", events.Do).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"caught without an effect", "", func(h *history) {
			rejectsA(catchesGone(h)).add(&events.RunCaught{Step: "a", Error: gone}).add(do("b", 1))
		}},
		{"a caught step isn't undone later", "", func(h *history) {
			caughtA(h).later(time.Millisecond).reply("b", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1}).add(&events.TaskUndoing{Ending: events.StateUndone, Error: failedAtB()})
			h.completes("c", events.Do).add(undo("c", 1)).completes("c", events.Undo).add(&events.TaskUndone{})
		}},
		{"its undo is held, and resubmitted", "", func(h *history) {
			undoFails(h)
			h.add(&events.TaskResumed{By: operates(h, &events.Control{Command: events.Resubmit})})
			again := undo("a", 2)
			again.Key = events.IdempotencyKey(ns, "t", "a", events.Undo, 1)
			h.add(again).later(10*time.Millisecond).reply("a", events.Undo, 2, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 2}).add(&events.RunCaught{Step: "a", Error: gone}).add(do("b", 1))
		}},
		{"its undo is held, and released", "", func(h *history) {
			undoFails(h)
			by := operates(h, &events.Control{Command: events.Release, Step: "a", As: events.StepUndone})
			h.add(&events.RunReleased{By: by, Step: "a", As: events.StepUndone}).add(&events.RunCaught{Step: "a", Error: gone})
			h.add(&events.TaskResumed{By: events.By{Who: "op"}}).add(do("b", 1))
		}},
		{"its undo becomes part of the task's", "", func(h *history) {
			undoFails(h)
			by := operates(h, &events.Control{Command: events.UndoTask})
			h.add(&events.TaskUndoing{By: by, Ending: events.StateUndone, Error: &events.Error{Code: events.CodeUndoRequested}})
			again := undo("a", 2)
			again.Key = events.IdempotencyKey(ns, "t", "a", events.Undo, 1)
			h.completes("c", events.Do).add(again).later(10*time.Millisecond).reply("a", events.Undo, 2, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 2}).add(undo("c", 1)).completes("c", events.Undo).add(&events.TaskUndone{})
		}},

		{"P21: caught before its undo", "P21", func(h *history) {
			erredA(catchesGone(h), "gone").add(&events.RunCaught{Step: "a", Error: gone})
		}},
		{"P21: an effect that isn't undone", "P21", func(h *history) {
			caughtA(h).completes("b", events.Do).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
			h.c.Effect(Effect{Happened, key("a", events.Do)})
		}},
		{"P6: undone, and the plan doesn't catch its error", "P6", func(h *history) {
			erredA(catchesGone(h), "other").add(undo("a", 1))
		}},
		{"P2: caught, and the plan doesn't say so", "P2", func(h *history) {
			rejectsA(h).add(&events.RunCaught{Step: "a", Error: gone})
		}},
		{"P2: another error", "P2", func(h *history) {
			rejectsA(catchesGone(h)).add(&events.RunCaught{Step: "a", Error: &events.Error{Code: "gone", Message: "other"}})
		}},
		{"P2: undoing instead", "P2", func(h *history) {
			erredA(catchesGone(h), "gone").add(&events.TaskUndoing{Ending: events.StateUndone, Error: &events.Error{Code: "gone", Step: "a"}})
		}},
		{"P2: the next step starts before the undo is complete", "P2", func(h *history) {
			erredA(catchesGone(h), "gone").add(undo("a", 1)).later(time.Millisecond).reply("c", events.Do, 1, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "c", Attempt: 1}).raw(h.event(do("b", 1)))
		}},
		{"P2: undoing after the undo of a caught step fails", "P2", func(h *history) {
			erredA(catchesGone(h), "gone").add(undo("a", 1)).later(10*time.Millisecond).reply("a", events.Undo, 1, events.Rejected)
			err := *empty.Failure()
			err.Step = "a"
			h.add(&events.AttemptRejected{Kind: events.Undo, Step: "a", Attempt: 1}).add(&events.TaskUndoing{Ending: events.StateUndone, Error: &err})
		}},
		{"P6: an undo of a completed step while the task goes on", "P6", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).completes("a", events.Do).reply("b", events.Do, 1, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "b", Attempt: 1}).raw(h.event(undo("a", 1)))
		}},
		{"P10: an undo is complete, and its step isn't caught", "P10", func(h *history) {
			erredA(catchesGone(h), "gone").add(undo("a", 1)).completes("a", events.Undo).completes("c", events.Do)
		}},
	})
}
