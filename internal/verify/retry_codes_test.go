package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// only makes a history whose step a is retried after these codes only.
func only(h *history, codes ...string) *history {
	h.steps = func(s []events.PlanStep) { s[0].RetryCodes.Only = codes }
	return h
}

// failsWith writes the reply of a failed attempt with this code, and its event.
func (h *history) failsWith(step string, n int, code string) *history {
	h.t.Helper()
	h.later(10 * time.Millisecond)
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: step, Kind: events.Do, Attempt: n}, Token: token, Outcome: events.Failed,
		Body: []byte(`{"code":"` + code + `"}`)}
	return h.input(p.Record(ns, "agent")).add(&events.AttemptFailed{Kind: events.Do, Step: step, Attempt: n, Effect: events.EffectUnknown, Error: p.Failure()})
}

// givesUp writes that step a is in error, and that the task is undone.
func (h *history) givesUp(code string) *history {
	h.t.Helper()
	h.add(&events.RunErrored{Kind: events.Do, Step: "a", Error: &events.Error{Code: code}})
	return h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: &events.Error{Code: code, Step: "a"}})
}

func undoneA(h *history) *history {
	return h.add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
}

// TestRetryCodes checks P5 with lists of error codes.
func TestRetryCodes(t *testing.T) {
	holds(t, Options{Requests: true, Deadletters: true}, []played{
		{"a code that isn't retried", "", func(h *history) {
			undoneA(only(h, "busy").submit().add(do("a", 1)).failsWith("a", 1, "no_funds").givesUp("no_funds"))
		}},
		{"a code that is retried", "", func(h *history) {
			only(h, "busy").submit().add(do("a", 1)).failsWith("a", 1, "busy").waits("a", 1).add(do("a", 2))
		}},
		{"a time-out that isn't retried", "", func(h *history) {
			only(h, "busy").submit().add(do("a", 1)).later(time.Second).recovery("a", events.Do, events.ActionUndo)
			undoneA(h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1}).givesUp(events.CodeExpired))
		}},
		{"P5: a timer after a code that isn't retried", "P5", func(h *history) {
			only(h, "busy").submit().add(do("a", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Failed)
			e := h.event(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1, Effect: events.EffectUnknown})
			h.arm(e, events.TimerFailed, "a", events.Do, h.at)
			h.raw(e)
		}},
		{"P5: a retry of a time-out that isn't retried", "P5", func(h *history) {
			only(h, "busy").submit().add(do("a", 1)).later(time.Second).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P5: given up although the code is retried", "P5", func(h *history) {
			only(h, events.CodeExpired).submit().add(do("a", 1)).later(time.Second).recovery("a", events.Do, events.ActionUndo)
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1}).givesUp(events.CodeExpired)
		}},
		{"P5: exhausted, by a code that isn't retried", "P5", func(h *history) {
			only(h, "busy").submit().add(do("a", 1)).failsWith("a", 1, "no_funds").givesUp(events.CodeTriesExhausted)
		}},
		{"P5: a policy that doesn't say so", "P5", func(h *history) {
			e := only(h, "busy").submit().event(do("a", 1))
			e.Policy.Final = false
			h.raw(e)
		}},
	})
}
