package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// polled is a task whose step a has made its first call, which doesn't end the repeat. b and c are done.
func polled(h *history) *history {
	h.polling = true
	h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("b", events.Do).completes("c", events.Do)
	return again(h, 1)
}

// again writes a call that completes and doesn't end the repeat.
func again(h *history, attempt int) *history {
	h.t.Helper()
	h.later(10*time.Millisecond).reply("a", events.Do, attempt, events.Completed)
	return h.add(&events.CallRepeated{Step: "a", Attempt: attempt})
}

// call returns an attempt of the call with this number.
func call(attempt, number int) *events.AttemptStarted {
	f := do("a", attempt)
	f.Key = events.IdempotencyKey(ns, "t", "a", events.Do, number-1)
	return f
}

// dueCall writes the recovery for the next call, at its time.
func dueCall(h *history) *history {
	h.at = h.timer("a", events.Do).Due
	return h.recovery("a", events.Do, events.ActionRetry)
}

func exhausted(step string) *events.Error {
	return &events.Error{Code: events.CodeRepeatExhausted, Message: "no more", Step: step}
}

// TestRepeats checks P23 as it applies to the calls of a repeat, and the other promises as they apply to them.
func TestRepeats(t *testing.T) {
	ends := func(h *history, attempt int) *history {
		return h.later(time.Millisecond).reply("a", events.Do, attempt, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: attempt}).
			add(&events.TaskProcessed{Output: []byte("null")})
	}
	holds(t, Options{Requests: true, Deadletters: true}, []played{
		{"the second call ends the repeat", "", func(h *history) { ends(dueCall(polled(h)).add(call(2, 2)), 2) }},
		{"a call has the whole budget", "", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("b", events.Do).completes("c", events.Do)
			h.fails("a", events.Do, 1).waits("a", 1).add(call(2, 1))
			dueCall(again(h, 2)).add(call(3, 2)).fails("a", events.Do, 3).waits("a", 3).add(call(4, 2))
			ends(h, 4)
		}},
		{"after the last call the step is in error, and undone", "", func(h *history) {
			again(dueCall(polled(h)).add(call(2, 2)), 2).add(&events.RunErrored{Kind: events.Do, Step: "a", Error: exhausted("")}).
				add(&events.TaskUndoing{Ending: events.StateUndone, Error: exhausted("a")}).add(undo("a", 1))
		}},
		{"a call that ends in a hold is followed by none", "", func(h *history) {
			h.polling = true
			h.holding().submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("c", events.Do)
			h.reply("b", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1}).add(&events.TaskHeld{Error: failedAtB()})
			again(h, 1).control(&events.Control{Command: events.Resubmit}).add(&events.TaskResumed{By: events.By{RequestID: "request"}}).add(call(2, 2))
		}},

		{"P23: the next call has the key of the call before", "P23", func(h *history) { h.raw(dueCall(polled(h)).event(call(2, 1))) }},
		{"P7: the next call skips a key", "P7", func(h *history) { h.raw(dueCall(polled(h)).event(call(2, 3))) }},
		{"P7: a retry of a call has a new key", "P7", func(h *history) {
			dueCall(polled(h)).add(call(2, 2)).fails("a", events.Do, 2).waits("a", 2)
			h.raw(h.event(call(3, 3)))
		}},
		{"P23: a call begins early", "P23", func(h *history) {
			polled(h).later(9*time.Second).recovery("a", events.Do, events.ActionRetry)
			h.raw(h.event(call(2, 2)))
		}},
		{"P23: a call begins early, by a reply", "P23", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("b", events.Do)
			again(h, 1).later(100*time.Millisecond).reply("c", events.Do, 1, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "c", Attempt: 1})
			e := h.event(call(2, 2))
			e.Queued = true
			h.raw(e)
		}},
		{"P23: one call too many is due", "P23", func(h *history) {
			dueCall(polled(h)).add(call(2, 2)).later(time.Millisecond).reply("a", events.Do, 2, events.Completed)
			e := h.event(&events.CallRepeated{Step: "a", Attempt: 2})
			h.arm(e, events.TimerWaiting, "a", events.Do, h.at.Add(10*time.Second))
			h.raw(e)
		}},
		{"P23: a call after the last one", "P23", func(h *history) {
			again(dueCall(polled(h)).add(call(2, 2)), 2)
			h.raw(h.event(call(3, 3)))
		}},
		{"P23: exhausted after one call of two", "P23", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Completed)
			e := h.event(&events.CallRepeated{Step: "a", Attempt: 1})
			e.Due, e.Policy = time.Time{}, nil
			h.write(e)
			h.raw(h.event(&events.RunErrored{Kind: events.Do, Step: "a", Error: exhausted("")}))
		}},
		{"P23: a step without a repeat is repeated", "P23", func(h *history) {
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Completed)
			h.raw(h.event(&events.CallRepeated{Step: "a", Attempt: 1}))
		}},
		{"P5: the wait for the next call is shorter than the plan's", "P5", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Completed)
			e := h.event(&events.CallRepeated{Step: "a", Attempt: 1})
			e.Due = e.Due.Add(-time.Second)
			h.raw(e)
		}},
		{"P10: a call ended, and nothing says how the step goes on", "P10", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).add(do("b", 1)).reply("a", events.Do, 1, events.Completed)
			e := h.event(&events.CallRepeated{Step: "a", Attempt: 1})
			e.Due, e.Policy = time.Time{}, nil
			h.write(e)
			h.completes("b", events.Do)
		}},
		{"P3: the output of a call isn't the reply's", "P3", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Completed)
			e := h.event(&events.CallRepeated{Step: "a", Attempt: 1})
			e.Fact.(*events.CallRepeated).Output = []byte(`{"other":1}`)
			h.raw(e)
		}},
		{"P3: a call that failed is repeated", "P3", func(h *history) {
			h.polling = true
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Failed)
			h.raw(h.event(&events.CallRepeated{Step: "a", Attempt: 1}))
		}},
		{"P6: a repeated step isn't undone", "P6", func(h *history) {
			again(dueCall(polled(h)).add(call(2, 2)), 2).add(&events.RunErrored{Kind: events.Do, Step: "a", Error: exhausted("")}).
				add(&events.TaskUndoing{Ending: events.StateUndone, Error: exhausted("a")})
			h.raw(h.event(undo("c", 1)))
		}},
	})
}
