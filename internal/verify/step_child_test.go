package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// childSteps makes the steps a and b run children. c stays a call.
func childSteps(steps []events.PlanStep) {
	for i := range 2 {
		steps[i] = events.PlanStep{ID: steps[i].ID, StepKind: events.WorkflowStep, Workflow: "w", Undo: &events.PlanUndo{}}
	}
}

func hashOf(step string, k events.Kind, n int) string {
	return events.TokenHash("t", events.RequestRef{Step: step, Kind: k, Attempt: n}, token)
}

func startsChild(step string) *events.ChildStarted {
	return &events.ChildStarted{Step: step, Attempt: 1, Child: "t/" + step, Workflow: "w", TokenHash: hashOf(step, events.Do, 1), Input: []byte("{}")}
}

func withdraws(step string) *events.WithdrawalStarted {
	return &events.WithdrawalStarted{Step: step, Attempt: 1, Child: "t/" + step, TokenHash: hashOf(step, events.Undo, 1)}
}

// withChildren is a task whose steps a and b run children, and whose step c runs.
func withChildren(h *history) *history {
	h.steps = childSteps
	return h.submit().add(startsChild("a")).add(startsChild("b")).add(do("c", 1)).later(time.Millisecond)
}

// childReplies writes a reply of a child. Its event follows.
func childReplies(h *history, step string, k events.Kind, o events.Outcome) *history {
	return h.later(time.Millisecond).reply(step, k, 1, o)
}

func childEnds(h *history, step string, k events.Kind) *history {
	f := &events.ChildCompleted{Kind: k, Step: step, Attempt: 1}
	if k == events.Do {
		f.Output = []byte("{}")
	}
	return childReplies(h, step, k, events.Completed).add(f)
}

func childRejected(h *history, step string, k events.Kind) *history {
	return childReplies(h, step, k, events.Rejected).add(&events.ChildRejected{Kind: k, Step: step, Attempt: 1, Error: empty.Failure()})
}

func failureOf(step string) *events.Error {
	err := *empty.Failure()
	err.Step = step
	return &err
}

// holdsAndEnds is a task with a child that is held and resumed, and with one that completes.
func holdsAndEnds(h *history) *history {
	withChildren(h)
	childReplies(h, "a", events.Do, events.Held).add(&events.ChildHeld{Kind: events.Do, Step: "a", Attempt: 1, Error: empty.Failure()})
	childReplies(h, "a", events.Do, events.Resumed).add(&events.ChildResumed{Kind: events.Do, Step: "a", Attempt: 1})
	return childEnds(childEnds(h, "a", events.Do), "b", events.Do)
}

// takenBackWithChildren is a task that is undone: b had completed, and a runs.
func takenBackWithChildren(h *history) *history {
	withChildren(h)
	childEnds(h, "b", events.Do)
	h.later(time.Millisecond).reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1})
	h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: failureOf("c")}).add(withdraws("a"))
	childReplies(h, "a", events.Do, events.Completed) // too late
	childReplies(h, "a", events.Undo, events.Held).add(&events.ChildHeld{Kind: events.Undo, Step: "a", Attempt: 1, Error: empty.Failure()})
	childReplies(h, "a", events.Undo, events.Resumed).add(&events.ChildResumed{Kind: events.Undo, Step: "a", Attempt: 1})
	return childEnds(h, "a", events.Undo).add(withdraws("b"))
}

// childOf submits the task as a child.
func childOf(h *history) *history {
	s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}"), Parent: &events.Parent{Task: "p", Step: "s", Attempt: 1, Token: token, Depth: 1}}
	h.input(s.Record(ns, "test"))
	h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(), Parent: s.Parent})
	return h.add(&events.TaskStarted{}).add(do("a", 1)).later(time.Millisecond)
}

// withdrawal writes a withdrawal by the parent of the task.
func withdrawal(h *history, n int) *history {
	ref := events.RequestRef{Step: "s", Kind: events.Do, Attempt: 1}
	w := &events.Withdrawal{Task: h.id, Parent: "p", Ref: events.RequestRef{Step: "s", Kind: events.Undo, Attempt: n}, Token: token, Started: events.TokenHash("p", ref, token)}
	return h.later(time.Millisecond).input(w.Record(ns, "test"))
}

var withdrawnUndo = &events.TaskUndoing{Ending: events.StateCancelled, Error: &events.Error{Code: events.CodeWithdrawn}}

// withdrawn is a child that its parent withdraws while a step runs.
func withdrawn(h *history) *history {
	undoing := *withdrawnUndo
	withdrawal(childOf(h), 1).add(&undoing).add(&events.TaskWithdrawn{UndoAttempt: 1, Token: token})
	h.completes("a", events.Do).add(undo("a", 1))
	return withdrawal(h, 2).add(&events.TaskWithdrawn{UndoAttempt: 2, Token: token}).completes("a", events.Undo).add(&events.TaskCancelled{})
}

// childHistories are unbroken histories with all facts of children.
var childHistories = map[string]func(*history){
	"children": func(h *history) {
		holdsAndEnds(h).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
	},
	"children that are undone": func(h *history) { childEnds(takenBackWithChildren(h), "b", events.Undo).add(&events.TaskUndone{}) },
	"a child that can't be undone": func(h *history) {
		childRejected(takenBackWithChildren(h), "b", events.Undo).add(&events.TaskHeld{Error: failureOf("b")})
	},
	"a child without a result": func(h *history) {
		childRejected(withChildren(h.holding()), "a", events.Do).add(&events.TaskHeld{Error: failureOf("a")})
	},
	"a child that is withdrawn": func(h *history) { withdrawn(h) },
}

// TestChildren checks P25 and the other promises as they apply to child tasks.
func TestChildren(t *testing.T) {
	var all []played
	for name, play := range childHistories {
		all = append(all, played{name, "", play})
	}
	holds(t, Options{Requests: true, Deadletters: true}, append(all, []played{
		{"P3: an end of another attempt", "P3", func(h *history) {
			withChildren(h)
			childReplies(h, "b", events.Do, events.Completed).add(&events.ChildCompleted{Kind: events.Do, Step: "a", Attempt: 1, Output: []byte("{}")})
		}},
		{"P3: another output", "P3", func(h *history) {
			withChildren(h)
			childReplies(h, "a", events.Do, events.Completed).add(&events.ChildCompleted{Kind: events.Do, Step: "a", Attempt: 1, Output: []byte("1")})
		}},
		{"P3: a child that ends twice", "P2", func(h *history) {
			childEnds(withChildren(h), "a", events.Do)
			childReplies(h, "a", events.Do, events.Completed)
			h.raw(h.event(&events.ChildCompleted{Kind: events.Do, Step: "a", Attempt: 1, Output: []byte("{}")}))
		}},
		{"P18: an end without the token", "P18", func(h *history) {
			h.steps = childSteps
			f := startsChild("a")
			f.TokenHash = "AAAAAAAAAAAAAAAAAAAAAA"
			h.submit().add(f).add(startsChild("b")).add(do("c", 1))
			childEnds(h, "a", events.Do)
		}},
		{"P6: a parent is undone before its child", "P6", func(h *history) {
			h.raw(takenBackWithChildren(h).event(&events.TaskUndone{}))
		}},
		{"P6: a running child isn't withdrawn", "P6", func(h *history) {
			withChildren(h)
			h.later(time.Millisecond).reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1})
			h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: failureOf("c")}).add(withdraws("a"))
			childEnds(h, "a", events.Undo).add(&events.TaskUndone{})
		}},
		{"P25: a task without a parent is withdrawn", "P25", func(h *history) {
			undoing := *withdrawnUndo
			withdrawal(h.submit().add(do("a", 1)), 1)
			h.raw(h.event(&undoing))
		}},
		{"P25: a withdrawal keeps what it shouldn't", "P25", func(h *history) {
			undoing := *withdrawnUndo
			undoing.Keep = true
			withdrawal(childOf(h), 1).add(&undoing).add(&events.TaskWithdrawn{UndoAttempt: 1, Token: token})
		}},
		{"P25: a withdrawal with another token", "P25", func(h *history) {
			withdrawn := &events.TaskWithdrawn{UndoAttempt: 2, Token: "another"}
			undoing := *withdrawnUndo
			withdrawal(childOf(h), 1).add(&undoing).add(&events.TaskWithdrawn{UndoAttempt: 1, Token: token})
			withdrawal(h, 2).add(withdrawn)
		}},
		{"P10: a withdrawal isn't recorded", "P10", func(h *history) {
			undoing := *withdrawnUndo
			withdrawal(childOf(h), 1).add(&undoing)
			h.completes("a", events.Do).add(undo("a", 1))
		}},
	}...))
}
