package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// queued writes an event that became possible because the last input freed a slot.
func (h *history) queued(f events.Fact) *history {
	h.t.Helper()
	e := h.event(f)
	e.Queued = true
	return h.write(e)
}

// other writes a reply to a task that doesn't exist. It leads to no event of its own.
func (h *history) other() *history {
	h.t.Helper()
	id := h.id
	h.id = "another"
	defer func() { h.id = id }()
	return h.reply("a", events.Do, 1, events.Completed)
}

// An input about any task may start a step that waited for its agent, and nothing else. The budget, the backoff and the
// order are those of every attempt.
func TestQueuedStepsAreHeldAgainstThePromises(t *testing.T) {
	o := whole
	o.Deadletters = false // the reply to the missing task would need one
	holds(t, o, []played{
		{"a step waits for a reply of another task", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1))
			h.completes("a", events.Do).later(time.Millisecond).other().queued(do("c", 1))
			h.completes("c", events.Do).completes("b", events.Do).add(&events.TaskProcessed{})
		}},
		{"a step of the same task, after what the input led to", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).completes("a", events.Do).queued(do("c", 1))
			h.completes("c", events.Do).completes("b", events.Do).add(&events.TaskProcessed{})
		}},
		{"a retry whose turn it is", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).completes("b", events.Do).completes("c", events.Do)
			h.fails("a", events.Do, 1).waits("a", 1) // refused: it led to nothing
			h.later(time.Minute / 2).other().queued(do("a", 2))
			h.later(time.Millisecond).reply("a", events.Do, 2, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 2})
			h.c.Effect(Effect{Happened, key("a", events.Do)})
			h.add(&events.TaskProcessed{})
		}},
		{"P5: a retry from the queue before its wait was over", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1}).later(time.Second / 5)
			h.other().queued(do("a", 2))
		}},
		{"P3: a completion that nobody replied", "P3", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Millisecond).other().queued(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P4: a time-out that nobody asked for", "P4", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Second).other().queued(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P4: a wait that nobody asked for", "P4", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).later(time.Second).other().queued(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P10: what an input leads to itself comes first", "P10", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Completed).queued(do("b", 1))
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P10: an attempt by a reply of another task, and not from the queue", "P10", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Millisecond).other().add(do("b", 1))
		}},
	})
}
