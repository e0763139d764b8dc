package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// chained makes the plan a chain: step b needs a, and c needs b.
func (h *history) chained() *history {
	h.chain = true
	return h
}

// TestCourse: a task's events are those that its plan requires, and each decision is complete.
func TestCourse(t *testing.T) {
	o := whole
	o.Whole = true
	by := events.By{RequestID: "request"}
	holds(t, o, []played{
		{"steps one after another", "", func(h *history) { h.chained().processed() }},
		{"P2: a step before the one that it needs", "P2", func(h *history) { h.chained().submit().add(do("b", 1)) }},
		{"P2: a step is skipped before the one that it needs", "P2", func(h *history) { h.chained().submit().add(&events.RunSkipped{Step: "b"}) }},
		{"skipped, and what needs it begins", "", func(h *history) {
			h.chained().submit().add(&events.RunSkipped{Step: "a"}).add(do("b", 1)).completes("b", events.Do).add(do("c", 1)).completes("c", events.Do)
			h.add(&events.TaskProcessed{})
		}},
		{"P6: skipped after an attempt that may have had an effect", "P6", func(h *history) {
			h.holding().submit().add(do("a", 1)).fails("a", events.Do, 1).add(do("b", 1)).reply("b", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1}).add(&events.TaskHeld{})
			h.control(&events.Control{Command: events.Resubmit}).add(&events.TaskResumed{By: by}).add(&events.RunSkipped{Step: "a"})
		}},
		{"P2: processed without a step", "P2", func(h *history) { h.twoDone().add(&events.TaskProcessed{}) }},
		{"P2: processed with a step in error", "P2", func(h *history) {
			h.twoDone().add(&events.RunErrored{Kind: events.Do, Step: "c"}).add(&events.TaskProcessed{})
		}},
		{"P2: a step begins while another is in error", "P2", func(h *history) {
			h.submit().add(&events.RunErrored{Kind: events.Do, Step: "a"}).add(do("b", 1))
		}},
		{"P2: held, and the plan says undo", "P2", func(h *history) {
			h.submit().add(&events.RunErrored{Kind: events.Do, Step: "a"}).add(&events.TaskHeld{})
		}},
		{"P2: undone, and the plan says hold", "P2", func(h *history) { h.holding().twoDone().undoing() }},
		{"P2: cancelled, and it was to be undone", "P2", func(h *history) {
			h.twoDone().undoing().add(undo("b", 1)).completes("b", events.Undo).add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskCancelled{})
		}},
		{"P2: undoing again, while its undo is held", "P2", func(h *history) {
			h.twoDone().undoing().add(undo("b", 1)).later(time.Millisecond).reply("b", events.Undo, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Undo, Step: "b", Attempt: 1}).add(&events.TaskHeld{})
			h.control(&events.Control{Command: events.UndoTask}).add(&events.TaskUndoing{By: by, Ending: events.StateUndone})
		}},
		{"P2: released as undone, and nothing was being undone", "P2", func(h *history) {
			h.holding().twoDone().add(&events.RunErrored{Kind: events.Do, Step: "c"}).add(&events.TaskHeld{})
			h.released("c", events.StepUndone)
		}},
		{"P6: cancelled while an attempt runs", "P6", func(h *history) {
			h.submit().add(do("a", 1)).control(&events.Control{Command: events.Cancel})
			h.add(&events.TaskUndoing{By: by, Ending: events.StateCancelled}).add(&events.TaskCancelled{})
		}},
		{"P6: an undo that could not be asked for, before another's turn", "P6", func(h *history) {
			h.twoDone().undoing().add(&events.RunErrored{Kind: events.Undo, Step: "a"}).add(&events.TaskHeld{})
		}},
		{"P2: another agent than the plan's", "P2", func(h *history) {
			f := do("a", 1)
			f.Agent = "y"
			h.submit().write(h.event(f))
		}},
		{"P7: another step's key", "P7", func(h *history) {
			f := do("a", 1)
			f.Key = key("b", events.Do)
			h.submit().add(f)
		}},
		{"P11: written by another than who claimed", "P11", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			r := e.Record(ns, "somebody", 0, e.Seal(h.state))
			r.Offset, r.Time = h.offset, h.at
			h.c.Event(&r)
		}},

		{"P10: all steps are done, and it ends there", "P10", func(h *history) { h.twoDone().add(do("c", 1)).completes("c", events.Do) }},
		{"P10: a step is in error, and it ends there", "P10", func(h *history) {
			h.twoDone().add(do("c", 1)).reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1})
		}},
		{"P10: an attempt expired, and nothing follows", "P10", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Second).recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P10: a decision that ended too soon, and another after it", "P10", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Second).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.recovery("b", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "b", Attempt: 1})
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "b", Attempt: 1})
		}},
		{"P10: released, and not resumed", "P10", func(h *history) {
			h.holding().twoDone().add(&events.RunErrored{Kind: events.Do, Step: "c"}).add(&events.TaskHeld{})
			h.control(&events.Control{Command: events.Release, Step: "c", As: events.StepCompleted})
			h.add(&events.RunReleased{By: by, Step: "c", As: events.StepCompleted})
		}},
	})
}

// TestArms: an event starts the timer of the plan, and the policy for supervisors is that of the plan.
func TestArms(t *testing.T) {
	change := func(f events.Fact, fn func(*events.Event)) func(*history) {
		return func(h *history) {
			h.submit()
			e := h.event(f)
			fn(e)
			h.write(e)
		}
	}
	none := func(e *events.Event) { e.Due, e.Policy = time.Time{}, nil }
	holds(t, whole, []played{
		{"P5: an attempt without a timer", "P5", change(do("a", 1), none)},
		{"P5: an attempt with more time than the plan gives", "P5", change(do("a", 1), func(e *events.Event) { e.Due = e.Due.Add(time.Second) })},
		{"P5: an attempt with less time than the plan gives", "P5", change(do("a", 1), func(e *events.Event) { e.Due = e.Due.Add(-time.Millisecond) })},
		{"P5: a timer of another kind", "P5", change(do("a", 1), func(e *events.Event) { e.Policy.Timer = events.TimerWaiting })},
		{"P5: a policy that gives up in another way", "P5", change(do("a", 1), func(e *events.Event) { e.Policy.OnError = events.OnErrorHold })},
		{"P5: a policy of another complete-by", "P5", change(do("a", 1), func(e *events.Event) { e.Policy.CompleteBy = start0 })},
		{"P5: a wait that is longer than its backoff", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionWait)
			e := h.event(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			e.Due = e.Due.Add(time.Minute)
			h.write(e)
		}},
		{"P5: a cool-down before the tries are used up", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionWait)
			h.write(h.event(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1, CoolDown: true}))
		}},
		{"P5: given up before the tries are used up", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionUndo)
			h.add(&events.RunErrored{Kind: events.Do, Step: "a", Error: &events.Error{Code: events.CodeTriesExhausted}})
		}},
		{"P1: a task with more time than the plan gives", "P1", func(h *history) {
			s := &events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}
			h.input(s.Record(ns, "test")).add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest()})
			e := h.event(&events.TaskStarted{})
			e.Due = e.Due.Add(time.Second)
			e.Policy.CompleteBy = e.Due
			h.write(e)
		}},
		{"a task with the time that was asked for", "", func(h *history) {
			s := &events.Submission{ID: "t", Workflow: "w", Input: []byte("{}"), CompleteBy: start0.Add(time.Minute)}
			h.input(s.Record(ns, "test")).add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(), CompleteBy: s.CompleteBy})
			e := h.event(&events.TaskStarted{})
			e.Due, e.Policy = s.CompleteBy, h.state.TaskPolicy(s.CompleteBy)
			h.write(e)
		}},
		{"P4: a retry that nobody asked for", "P4", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1}).later(600 * time.Millisecond)
			h.completes("b", events.Do).add(do("a", 2))
		}},
	})
}

// TestDeferrals: an attempt that doesn't count had no effect, and its wait is the one that the agent asked for.
func TestDeferrals(t *testing.T) {
	deferred := func(effect events.Effect, after time.Duration, counts bool) *events.AttemptFailed {
		return &events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1, Effect: effect, RetryAfter: after, Deferred: !counts}
	}
	holds(t, whole, []played{
		{"a deferral, and a failure whose wait is kept", "", func(h *history) {
			h.submit().add(do("a", 1)).defers(deferred(events.EffectNone, time.Second, false), events.EffectNone)
		}},
		{"P5: an attempt that may have had an effect isn't counted", "P5", func(h *history) {
			h.submit().add(do("a", 1)).defers(deferred(events.EffectUnknown, time.Second, false), events.EffectUnknown)
		}},
		{"P3: another wait than the reply's", "P3", func(h *history) {
			h.submit().add(do("a", 1)).defers(deferred(events.EffectNone, 2*time.Second, false), events.EffectNone)
		}},
		{"P5: the next attempt before the wait is over", "P5", func(h *history) {
			h.submit().add(do("a", 1)).defers(deferred(events.EffectNone, time.Second, false), events.EffectNone).recovery("a", events.Do, events.ActionRetry).add(do("a", 2))
		}},
	})
}

// TestWhatInputsSay: an event has the data of its input.
func TestWhatInputsSay(t *testing.T) {
	holds(t, whole, []played{
		{"P3: another output than the reply's", "P3", func(h *history) {
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Completed)
			h.c.Effect(Effect{Happened, key("a", events.Do)})
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1, Output: []byte(`{"n":1}`)})
		}},
		{"P3: another effect than the reply's", "P3", func(h *history) {
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Failed)
			h.add(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1, Effect: events.EffectNone})
		}},
		{"P6: an effect of a request that wasn't sent", "P6", func(h *history) {
			h.submit().add(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1, Effect: events.EffectUnknown})
		}},
		{"P10: another input than the submission's", "P10", func(h *history) {
			s := &events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}
			h.input(s.Record(ns, "test"))
			h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: []byte("[]"), Plan: h.plan(), Digest: s.Digest()}).add(&events.TaskStarted{})
		}},
		{"P10: a cancel that keeps what it wasn't asked to", "P10", func(h *history) {
			h.twoDone().control(&events.Control{Command: events.Cancel})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateCancelled, Keep: true}).add(&events.TaskCancelled{})
		}},
		{"P4: a recovery that asks for something else", "P4", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionHold)
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P15: another submission under its id, unseen", "P15", func(h *history) {
			h.submit().input((&events.Submission{ID: "t", Workflow: "w", Input: []byte("[]")}).Record(ns, "test"))
			h.c.Consumed(events.Tasks, 0, h.inputs[events.Tasks])
		}},
		{"another submission under its id, and its dead letter", "", func(h *history) {
			h.submit().input((&events.Submission{ID: "t", Workflow: "w", Input: []byte("[]")}).Record(ns, "test"))
			h.deadletter(events.ReasonIDConflict)
			h.c.Consumed(events.Tasks, 0, h.inputs[events.Tasks])
		}},
		{"the same submission again", "", func(h *history) {
			h.submit().input((&events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}).Record(ns, "test"))
			h.c.Consumed(events.Tasks, 0, h.inputs[events.Tasks])
		}},
		{"P10: the first of two submissions was passed over", "P10", func(h *history) {
			h.input((&events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}).Record(ns, "test")).submit()
		}},
	})
}
