package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// startedWait is a task whose step a waits for 10 s, while b and c are calls.
func startedWait(h *history) *history {
	h.waiting = true
	return h.submit().add(&events.WaitStarted{Step: "a", Attempt: 1, Wait: 10 * time.Second}).add(do("b", 1)).add(do("c", 1))
}

func bothCalls(h *history) *history { return h.completes("b", events.Do).completes("c", events.Do) }

func failedAtB() *events.Error {
	err := *empty.Failure()
	err.Step = "b"
	return &err
}

var waited = &events.WaitCompleted{Step: "a", Attempt: 1}

func fire(h *history) *history { return h.recovery("a", events.Do, events.ActionFire) }

// TestWaits checks P19, a wait never ends early, and the other promises as they apply to waits.
func TestWaits(t *testing.T) {
	until := &events.WaitStarted{Step: "a", Attempt: 1, Until: start0.Add(time.Minute)}
	holds(t, Options{Requests: true, Deadletters: true, LatestBy: 50 * time.Millisecond}, []played{
		{"a wait ends at its time", "", func(h *history) {
			fire(bothCalls(startedWait(h)).later(10 * time.Second)).add(waited).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"an instant in the past ends at once", "", func(h *history) {
			h.waiting = true
			h.later(2 * time.Minute)
			h.submit().add(until)
			fire(h).add(waited).add(do("b", 1))
		}},
		{"a wait ends during a hold", "", func(h *history) {
			startedWait(h.holding())
			h.reply("b", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1})
			h.add(&events.TaskHeld{Error: failedAtB()})
			fire(h.completes("c", events.Do).later(10 * time.Second)).add(waited)
		}},
		{"an undo doesn't wait for a wait", "", func(h *history) {
			startedWait(h).completes("c", events.Do)
			h.reply("b", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1})
			h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: failedAtB()}).add(undo("c", 1))
			h.completes("c", events.Undo).add(&events.TaskUndone{})
		}},

		{"P19: a wait ends early", "P19", func(h *history) {
			fire(bothCalls(startedWait(h)).later(9900 * time.Millisecond)).add(waited)
		}},
		{"P19: a wait ends early, by another timer's event", "P19", func(h *history) {
			startedWait(h).reply("b", events.Do, 1, events.Completed)
			h.raw(h.event(waited))
		}},
		{"P4: a wait ends, and no recovery asked for it", "P4", func(h *history) {
			h.waiting = true
			h.submit().add(&events.WaitStarted{Step: "a", Attempt: 1, Wait: time.Second / 2}).add(do("b", 1))
			h.later(time.Second/2).reply("b", events.Do, 1, events.Completed)
			h.raw(h.event(waited))
		}},
		{"P4: a recovery asks for something else", "P4", func(h *history) {
			bothCalls(startedWait(h)).later(10*time.Second).recovery("a", events.Do, events.ActionRetry)
			h.add(waited).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"P2: a wait ends twice", "P2", func(h *history) {
			fire(startedWait(h).later(10 * time.Second)).add(waited)
			fire(h)
			h.raw(h.event(waited))
		}},
		{"P3: a wait ends after the decision to undo", "P3", func(h *history) {
			startedWait(h).completes("c", events.Do)
			h.reply("b", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1})
			h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: failedAtB()}).add(undo("c", 1))
			fire(h.later(10 * time.Second))
			h.raw(h.event(waited))
		}},
		{"P5: a timer that isn't the end of the wait", "P5", func(h *history) {
			h.waiting = true
			e := h.submit().event(&events.WaitStarted{Step: "a", Attempt: 1, Wait: 10 * time.Second})
			e.Due = e.Due.Add(-time.Second)
			h.raw(e)
		}},
		{"P5: the timer of an attempt", "P5", func(h *history) {
			h.waiting = true
			e := h.submit().event(&events.WaitStarted{Step: "a", Attempt: 1, Wait: 10 * time.Second})
			e.Policy.Timer = events.TimerAttempt
			h.raw(e)
		}},
		{"P5: an attempt at a step that waits", "P5", func(h *history) {
			h.waiting = true
			h.submit()
			h.raw(h.event(do("a", 1)))
		}},
		{"P2: a wait of a step that calls", "P2", func(h *history) {
			h.submit()
			h.raw(h.event(&events.WaitStarted{Step: "a", Attempt: 1, Wait: time.Second}))
		}},
		{"P16: a wait ends late", "P16", func(h *history) {
			fire(bothCalls(startedWait(h)).later(11 * time.Second)).add(waited).add(&events.TaskProcessed{Output: []byte("null")})
		}},
	})
}
