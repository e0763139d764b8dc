package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// ask returns the start of an attempt to check step a.
func ask(n int) *events.AttemptStarted {
	return &events.AttemptStarted{Kind: events.Check, Step: "a", Attempt: n, Agent: "x", Operation: "s", Key: key("a", events.Check)}
}

// checkable gives step a a check with one attempt.
func checkable(h *history) *history {
	h.steps = func(steps []events.PlanStep) {
		once := rule
		once.MaxAttempts, once.CoolDown = 1, 0
		steps[0].Check = &events.PlanUndo{Agent: "x", Operation: "s", Attempts: once}
	}
	return h
}

// silent is a task whose step a has a check, and timed out once. b and c are done. The recovery for the next attempt has
// come.
func silent(h *history) *history { return silentAs(checkable(h)) }

// silentAs is silent by the history's own plan.
func silentAs(h *history) *history {
	h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("b", events.Do).completes("c", events.Do)
	h.at = h.timer("a", events.Do).Due
	h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
	h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
	h.at = h.timer("a", events.Do).Due
	return h.recovery("a", events.Do, events.ActionRetry)
}

// answered writes the answer to a check.
func answered(h *history, n int, became events.Became) *history {
	h.t.Helper()
	f := &events.CheckCompleted{Step: "a", Attempt: n, Became: became}
	if became == events.BecameCompleted {
		f.Output = []byte(`{"found":true}`)
	}
	replied(h, n, events.CheckAnswer(became, f.Output))
	return h.add(f)
}

func replied(h *history, n int, body []byte) *history {
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: events.Check, Attempt: n}, Token: token, Outcome: events.Completed, Body: body}
	return h.later(time.Millisecond).input(p.Record(ns, "agent"))
}

// refused writes the second attempt at step a, which is rejected.
func refused(h *history) *history {
	return h.add(do("a", 2)).later(time.Millisecond).reply("a", events.Do, 2, events.Rejected).
		add(&events.AttemptRejected{Kind: events.Do, Step: "a", Attempt: 2})
}

// abandoned is a task that is undone after an attempt at step a, which has a check, timed out.
func abandoned(h *history) *history {
	checkable(h).submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("b", events.Do)
	h.reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}).add(&events.TaskUndoing{Ending: events.StateUndone})
	h.at = h.timer("a", events.Do).Due
	return h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
}

var processedNow = &events.TaskProcessed{Output: []byte("null")}

// TestChecks checks P23 as it applies to checks, and the other promises as they apply to them.
func TestChecks(t *testing.T) {
	ends := func(h *history, n int) *history {
		return h.later(time.Millisecond).reply("a", events.Do, n, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: n}).add(processedNow)
	}
	catching := func(h *history) *history {
		checkable(h)
		checks := h.steps
		h.steps = func(steps []events.PlanStep) { checks(steps); steps[0].Catch = []string{"*"} }
		return refused(answered(silentAs(h).add(ask(1)), 1, events.BecameUnknown))
	}
	caughtNow := func(h *history) *history {
		return h.add(&events.RunCaught{Step: "a", Error: empty.Failure()}).add(processedNow)
	}
	holds(t, Options{Deadletters: true}, []played{
		{"it happened", "", func(h *history) { answered(silent(h).add(ask(1)), 1, events.BecameCompleted).add(processedNow) }},
		{"nothing happened", "", func(h *history) { ends(answered(silent(h).add(ask(1)), 1, events.BecameNone).add(do("a", 2)), 2) }},
		{"it isn't known", "", func(h *history) { ends(answered(silent(h).add(ask(1)), 1, events.BecameUnknown).add(do("a", 2)), 2) }},
		{"the answer can't be used", "", func(h *history) {
			replied(silent(h).add(ask(1)), 1, []byte(`{"outcome":"perhaps"}`))
			_, _, err := (&events.Reply{Body: []byte(`{"outcome":"perhaps"}`)}).Became()
			ends(h.add(&events.CheckCompleted{Step: "a", Attempt: 1, Became: events.BecameUnknown, Error: err}).add(do("a", 2)), 2)
		}},
		{"no answer comes", "", func(h *history) {
			silent(h).add(ask(1))
			h.at = h.timer("a", events.Check).Due
			h.recovery("a", events.Check, events.ActionHold).add(&events.AttemptExpired{Kind: events.Check, Step: "a", Attempt: 1})
			ends(h.add(&events.RunErrored{Kind: events.Check, Step: "a", Error: &events.Error{Code: events.CodeTriesExhausted}}).add(do("a", 2)), 2)
		}},
		{"the check is rejected", "", func(h *history) {
			silent(h).add(ask(1)).later(time.Millisecond).reply("a", events.Check, 1, events.Rejected)
			ends(h.add(&events.AttemptRejected{Kind: events.Check, Step: "a", Attempt: 1}).add(do("a", 2)), 2)
		}},
		{"nothing happened, and the step isn't undone", "", func(h *history) {
			answered(abandoned(h).add(ask(1)), 1, events.BecameNone).add(undo("b", 1)).completes("b", events.Undo).add(&events.TaskUndone{})
		}},
		{"it happened, and the step is undone as a completed one", "", func(h *history) {
			answered(abandoned(h).add(ask(1)), 1, events.BecameCompleted).add(undo("a", 1)).completes("a", events.Undo).
				add(undo("b", 1)).completes("b", events.Undo).add(&events.TaskUndone{})
		}},
		{"nothing happened, and the error is caught", "", func(h *history) {
			caughtNow(answered(catching(h).add(ask(2)), 2, events.BecameNone))
		}},
		{"it happened, and no error is left to catch", "", func(h *history) {
			answered(catching(h).add(ask(2)), 2, events.BecameCompleted).add(processedNow)
		}},
		{"it isn't known, and the error is caught after an undo", "", func(h *history) {
			caughtNow(answered(catching(h).add(ask(2)), 2, events.BecameUnknown).add(undo("a", 1)).later(time.Millisecond).
				reply("a", events.Undo, 1, events.Completed).add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 1}))
		}},

		{"P23: the next attempt, and nobody asked", "P23", func(h *history) { h.raw(silent(h).event(do("a", 2))) }},
		{"P23: given up, and nobody asked", "P23", func(h *history) {
			answered(silent(h).add(ask(1)), 1, events.BecameUnknown).add(do("a", 2))
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionUndo).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 2})
			h.raw(h.event(&events.RunErrored{Kind: events.Do, Step: "a", Error: &events.Error{Code: events.CodeTriesExhausted}}))
		}},
		{"P23: undone, and nobody asked", "P23", func(h *history) { h.raw(abandoned(h).event(undo("a", 1))) }},
		{"P23: undone to catch the error, and nobody asked", "P23", func(h *history) { h.raw(catching(h).event(undo("a", 1))) }},
		{"P23: undone, and nothing happened", "P23", func(h *history) {
			h.raw(answered(abandoned(h).add(ask(1)), 1, events.BecameNone).event(undo("a", 1)))
		}},
		{"P23: a second check of one attempt", "P23", func(h *history) {
			h.raw(answered(silent(h).add(ask(1)), 1, events.BecameUnknown).event(ask(2)))
		}},
		{"P23: a check of what had no effect", "P23", func(h *history) {
			h.raw(answered(silent(h).add(ask(1)), 1, events.BecameNone).event(ask(2)))
		}},
		{"P23: an answer that can't be used, and that the step completed", "P23", func(h *history) {
			replied(silent(h).add(ask(1)), 1, []byte(`{}`))
			h.raw(h.event(&events.CheckCompleted{Step: "a", Attempt: 1, Became: events.BecameCompleted, Error: &events.Error{Code: events.CodeBadCheck}}))
		}},
		{"P23: an output of what didn't happen", "P23", func(h *history) {
			replied(silent(h).add(ask(1)), 1, events.CheckAnswer(events.BecameNone, nil))
			h.raw(h.event(&events.CheckCompleted{Step: "a", Attempt: 1, Became: events.BecameNone, Output: []byte(`1`)}))
		}},
		{"P23: asked before the wait for the next attempt is over", "P23", func(h *history) {
			checkable(h).submit().add(do("a", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Failed)
			h.add(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1, Effect: events.EffectUnknown}).recovery("a", events.Do, events.ActionRetry)
			h.raw(h.event(ask(1)))
		}},
		{"P4: the recovery asks to give up, and the next attempt would begin", "P4", func(h *history) {
			checkable(h).submit().add(do("a", 1))
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionHold)
			h.raw(h.event(ask(1)))
		}},
		{"P22: a check ends by silence", "P22", func(h *history) {
			silent(h).add(ask(1))
			h.at = h.timer("a", events.Check).Due
			h.recovery("a", events.Check, events.ActionHold)
			h.raw(h.event(&events.AttemptExpired{Kind: events.Check, Step: "a", Attempt: 1, Silence: time.Second}))
		}},
		{"P3: another answer than the reply's", "P3", func(h *history) {
			replied(silent(h).add(ask(1)), 1, events.CheckAnswer(events.BecameUnknown, nil))
			h.raw(h.event(&events.CheckCompleted{Step: "a", Attempt: 1, Became: events.BecameNone}))
		}},
		{"P3: another output than the answer's", "P3", func(h *history) {
			replied(silent(h).add(ask(1)), 1, events.CheckAnswer(events.BecameCompleted, []byte(`1`)))
			h.raw(h.event(&events.CheckCompleted{Step: "a", Attempt: 1, Became: events.BecameCompleted, Output: []byte(`2`)}))
		}},
		{"P23: a check that has ended ends again", "P23", func(h *history) {
			silent(h).add(ask(1))
			h.at = h.timer("a", events.Check).Due
			h.recovery("a", events.Check, events.ActionHold).add(&events.AttemptExpired{Kind: events.Check, Step: "a", Attempt: 1})
			ended := &events.RunErrored{Kind: events.Check, Step: "a", Error: &events.Error{Code: events.CodeTriesExhausted}}
			h.add(ended).raw(h.event(ended))
		}},
		{"P5: one attempt to check too many", "P5", func(h *history) {
			silent(h).add(ask(1)).later(time.Millisecond).reply("a", events.Check, 1, events.Failed)
			h.add(&events.AttemptFailed{Kind: events.Check, Step: "a", Attempt: 1, Effect: events.EffectUnknown}).recovery("a", events.Check, events.ActionRetry)
			h.raw(h.event(ask(2)))
		}},
		{"P5: the check's timer is due late", "P5", func(h *history) {
			e := silent(h).event(ask(1))
			e.Due = e.Due.Add(time.Second)
			h.raw(e)
		}},
		{"P6: it happened, and the step isn't undone", "P6", func(h *history) {
			h.raw(answered(abandoned(h).add(ask(1)), 1, events.BecameCompleted).event(undo("b", 1)))
		}},
		{"P7: the key of the operation", "P7", func(h *history) {
			e := silent(h).event(ask(1))
			e.Fact.(*events.AttemptStarted).Key = key("a", events.Do)
			h.raw(e)
		}},
		{"P10: nothing follows an answer", "P10", func(h *history) {
			answered(silent(h).add(ask(1)), 1, events.BecameNone)
			h.control(&events.Control{Command: events.UndoTask}).add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
		}},
		{"P10: nothing follows the end of a check of a step in error", "P10", func(h *history) {
			answered(catching(h).add(ask(2)), 2, events.BecameNone)
			h.control(&events.Control{Command: events.UndoTask}).add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
		}},
		{"P21: what isn't known is caught", "P21", func(h *history) {
			h.raw(answered(catching(h).add(ask(2)), 2, events.BecameUnknown).event(&events.RunCaught{Step: "a", Error: empty.Failure()}))
		}},
	})
}
