package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// beating is a task whose step a has a heartbeat of 6 s, and a minute for each attempt. b and c are done.
func beating(h *history) *history {
	h.beats = 6 * time.Second
	return bothCalls(h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)))
}

// reports writes a progress reply of an attempt at step a, and its event.
func reports(h *history, n int) *history {
	return h.reply("a", events.Do, n, events.Progress).add(progressOf(n))
}

func progressOf(n int) *events.AttemptProgressed {
	return &events.AttemptProgressed{Kind: events.Do, Step: "a", Attempt: n, Progress: []byte("{}")}
}

func expiredAt(n int, silence time.Duration) *events.AttemptExpired {
	return &events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: n, Silence: silence}
}

// fallsSilent ends attempt 1 at step a after a silence, and starts the next one.
func fallsSilent(h *history) *history {
	due := h.timer("a", events.Do).Due
	h.at = due
	h.recovery("a", events.Do, events.ActionWait).add(expiredAt(1, 6*time.Second))
	e := h.event(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
	e.Due = due.Add(h.state.Plan.AttemptsOf(0, events.Do).Delay(h.id, "a", events.Do, 1, 1))
	h.write(e)
	h.at = e.Due
	return h.recovery("a", events.Do, events.ActionRetry).add(do("a", 2))
}

func finishes(h *history, n int) *history {
	h.reply("a", events.Do, n, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: n})
	return h.add(&events.TaskProcessed{Output: []byte("null")})
}

// TestHeartbeats checks P22, a heartbeat bounds silence, and the other promises as they apply to progress.
func TestHeartbeats(t *testing.T) {
	holds(t, Options{Requests: true, Deadletters: true, LatestBy: 50 * time.Millisecond}, []played{
		{"progress arms the timer again", "", func(h *history) {
			beating(h)
			for range 10 {
				reports(h.later(5*time.Second), 1)
			}
			finishes(h, 1)
		}},
		{"a silence ends the attempt, and the next one gets the progress", "", func(h *history) {
			finishes(reports(fallsSilent(reports(beating(h).later(5*time.Second), 1)), 2).later(time.Second), 2)
		}},
		{"complete-by ends the attempt", "", func(h *history) {
			beating(h)
			for range 11 {
				reports(h.later(5*time.Second), 1)
			}
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionWait).add(expiredAt(1, 0))
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"progress that comes too soon leads to nothing", "", func(h *history) {
			reports(beating(h), 1).later(time.Second).reply("a", events.Do, 1, events.Progress)
			finishes(h, 1)
		}},
		{"without a heartbeat the timer stays due at complete-by", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1))
			finishes(reports(bothCalls(h), 1), 1)
		}},

		{"P22: progress after complete-by", "P22 P17", func(h *history) {
			beating(h)
			for range 11 {
				reports(h.later(5*time.Second), 1)
			}
			h.later(5*time.Second).reply("a", events.Do, 1, events.Progress)
			h.raw(h.event(progressOf(1)))
		}},
		{"P22: progress keeps a dead worker's attempt for its whole time", "P22", func(h *history) {
			e := beating(h).reply("a", events.Do, 1, events.Progress).event(progressOf(1))
			e.Due = h.state.Steps[0].CompleteBy
			h.raw(e)
		}},
		{"P22: an attempt begins without a bound of its silence", "P22", func(h *history) {
			h.beats = 6 * time.Second
			e := h.submit().event(do("a", 1))
			e.Due = h.at.Add(time.Minute)
			h.raw(e)
		}},
		{"P22: an attempt begins with another complete-by", "P22", func(h *history) {
			h.beats = 6 * time.Second
			e := h.submit().event(do("a", 1))
			f := *e.Fact.(*events.AttemptStarted)
			f.CompleteBy = f.CompleteBy.Add(time.Minute)
			e.Fact = &f
			h.raw(e)
		}},
		{"P22: an attempt is silent for too long, and then reports", "P22", func(h *history) {
			finishes(reports(beating(h).later(7*time.Second), 1), 1)
		}},
		{"P22: an attempt is silent for too long, and then completes", "P22", func(h *history) {
			finishes(beating(h).later(7*time.Second), 1)
		}},
		{"P16: a silence ends late", "P16", func(h *history) {
			beating(h).later(7*time.Second).recovery("a", events.Do, events.ActionWait).add(expiredAt(1, 6*time.Second))
			e := h.event(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			e.Due = h.at
			h.write(e)
		}},
		{"P16: a silence ends early", "P16", func(h *history) {
			beating(h).recovery("a", events.Do, events.ActionWait).raw(h.event(expiredAt(1, 6*time.Second)))
		}},
		{"P22: two reports in a third of the heartbeat", "P22", func(h *history) {
			reports(beating(h), 1).later(1999*time.Millisecond).reply("a", events.Do, 1, events.Progress)
			h.raw(h.event(progressOf(1)))
		}},
		{"P22: an expired attempt hides its silence", "P22", func(h *history) {
			beating(h)
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionWait).raw(h.event(expiredAt(1, 0)))
		}},
		{"P3: progress of an attempt that has ended", "P3", func(h *history) {
			fallsSilent(beating(h)).reply("a", events.Do, 1, events.Progress)
			h.raw(h.event(progressOf(1)))
		}},
		{"P3: another value than the reply's", "P3", func(h *history) {
			f := progressOf(1)
			f.Progress = []byte("1")
			finishes(beating(h).reply("a", events.Do, 1, events.Progress).add(f), 1)
		}},
		{"P3: a completed attempt is recorded as progress", "P3", func(h *history) {
			finishes(beating(h).reply("a", events.Do, 1, events.Completed).add(progressOf(1)), 1)
		}},
		{"P10: a request without the last progress", "P10", func(h *history) {
			h.forget = true
			finishes(fallsSilent(reports(beating(h), 1)), 2)
		}},
		{"P3: progress that no reply led to", "P3", func(h *history) {
			beating(h)
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionRetry)
			h.raw(h.event(progressOf(1)))
		}},
	})
}
