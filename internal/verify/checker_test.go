package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/tally"
)

// whole is the options of a checker that gets all topics and has all bounds.
var whole = Options{Ledger: true, Deadletters: true, Alerts: true, Requests: true, RecoverWithin: time.Minute,
	LatestBy: 50 * time.Millisecond, EarliestBy: 100 * time.Millisecond, DrainWithin: time.Minute}

// played is a history. A checker must accept it, or find one broken guarantee in it.
type played struct {
	name, want string
	play       func(h *history)
}

// holds plays histories, each for a new checker that gets all topics.
func holds(t *testing.T, o Options, list []played) {
	t.Helper()
	tally.Add(t, "histories held against the promises", len(list))
	for _, tt := range list {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory(t, o)
			tt.play(h)
			var got []string
			faults := h.c.Finish(h.at).Faults
			for _, f := range faults {
				got = append(got, f.Promise)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("faults %v, want %q", faults, tt.want)
			}
		})
	}
}

// One torn transaction breaks the guarantees of as many tasks as it had records. A caller that separates such faults
// needs all of them.
func TestFaultsAreBounded(t *testing.T) {
	const broken = MaxFaults + 1
	for most, want := range map[int]int{0: MaxFaults, 7: 7, broken + 1: broken} {
		c := New(Options{Faults: most})
		for offset := range broken {
			c.Event(&events.Record{Topic: ns.Events(), Offset: int64(offset), Key: []byte("t"), Value: []byte("garbage")})
		}
		if r := c.Finish(start0); len(r.Faults) != want || r.Broken != broken {
			t.Errorf("at most %d: %d faults are kept, want %d; of %d, want %d", most, len(r.Faults), want, r.Broken, broken)
		}
	}
}

// Each check finds a history that breaks its guarantee, and accepts histories that don't.
func TestBrokenHistoriesAreCaught(t *testing.T) {
	holds(t, whole, []played{
		{"processed", "", func(h *history) { h.processed() }},
		{"undone", "", func(h *history) { h.undone() }},
		{"held, resubmitted, with a new key", "", func(h *history) { heldAndResubmitted(h, "waybill.t/c/do/2") }},
		{"backoff, cool-down, then it works", "", backoffAndCoolDown},
		{"unknown first, the last started first", "", func(h *history) {
			unknownTwice(h)
			h.add(undo("c", 1)).completes("c", events.Undo).add(undo("b", 1)).completes("b", events.Undo)
			h.add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
		}},

		{"P2: seq has a gap", "P2", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			e.Seq++
			h.raw(e)
		}},
		{"P2: an event is gone, and what follows makes no sense without it", "P2", func(h *history) {
			h.submit()
			e := h.event(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
			e.Seq++
			h.raw(e)
		}},
		{"P2: an event was changed", "P2", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			e.Prev = "AAAAAAAAAAAAAAAAAAAAAA"
			h.raw(e)
		}},
		{"P2: completed twice", "P2", func(h *history) {
			h.twoDone()
			h.reply("a", events.Do, 1, events.Completed)
			h.raw(h.event(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1}))
		}},
		{"P2: something after the end", "P2", func(h *history) {
			h.processed()
			h.control(&events.Control{Command: events.Resubmit})
			h.raw(h.event(&events.TaskResumed{By: events.By{RequestID: "request"}}))
		}},
		{"P2: a history that doesn't begin", "P2", func(h *history) {
			h.control(&events.Control{Command: events.Resubmit})
			h.raw(h.event(&events.TaskResumed{By: events.By{RequestID: "request"}}))
		}},
		{"P3: a reply after its attempt expired", "P3", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Second).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1}).add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			h.reply("a", events.Do, 1, events.Completed)
			h.raw(h.event(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1}))
		}},
		{"P3: a reply of an attempt while the next one runs", "P3", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).waits("a", 1).add(do("a", 2))
			h.reply("a", events.Do, 1, events.Completed)
			h.raw(h.event(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1}))
		}},
		{"P3: completed without a reply", "P3", func(h *history) {
			h.submit().add(do("a", 1)).control(&events.Control{Command: events.Cancel})
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P4: a timer recovered twice", "P4", func(h *history) {
			h.holding().submit().add(do("a", 1)).add(do("b", 1)).reply("b", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1}).add(&events.TaskHeld{})
			h.later(time.Second).recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.recovery("a", events.Do, events.ActionHold).raw(h.event(&events.RunErrored{Kind: events.Do, Step: "a"}))
		}},
		{"P5: an attempt before its wait was over", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1}).later(time.Second / 5)
			h.recovery("a", events.Do, events.ActionRetry).add(do("a", 2))
		}},
		{"P5: a retry before its backoff, without a wait", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionRetry).add(do("a", 2))
		}},
		{"P5: a wait that ends before its backoff", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).recovery("a", events.Do, events.ActionWait)
			e := h.event(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			e.Due = h.at.Add(time.Second / 5)
			h.write(e)
		}},
		{"P5: more attempts than allowed", "P5", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).waits("a", 1)
			h.add(do("a", 2)).fails("a", events.Do, 2).recovery("a", events.Do, events.ActionRetry).add(do("a", 3))
		}},
		{"P5: a policy that allows more than the plan", "P5", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			e.Policy.Attempts.MaxAttempts = 9
			h.write(e)
		}},
		{"P5: a policy that forgets a failure", "P5", func(h *history) {
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Failed)
			e := h.event(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1})
			e.Policy.FailureCount = 0
			h.write(e)
		}},
		{"P6: undo in the order of completion", "P6", func(h *history) { h.twoDone().undoing().add(undo("a", 1)) }},
		{"P6: what may have happened is undone last", "P6", func(h *history) { unknownTwice(h); h.add(undo("a", 1)) }},
		{"P6: of what may have happened, the first started first", "P6", func(h *history) { unknownTwice(h); h.add(undo("b", 1)) }},
		{"P6: undo while an attempt runs", "P6", func(h *history) {
			h.twoDone().add(do("c", 1)).control(&events.Control{Command: events.UndoTask})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone}).add(undo("b", 1))
		}},
		{"P6: two undos at once", "P6", func(h *history) { h.twoDone().undoing().add(undo("b", 1)).add(undo("a", 1)) }},
		{"P6: undone, but for one step", "P6", func(h *history) {
			h.twoDone().undoing().add(undo("b", 1)).completes("b", events.Undo).add(&events.TaskUndone{})
		}},
		{"P6: the undo of what never happened", "P6", func(h *history) { h.twoDone().undoing().add(undo("c", 1)) }},
		{"P7: another key for the second attempt", "P7", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).waits("a", 1)
			f := do("a", 2)
			f.Key = "waybill.t/a/do/2"
			h.add(f)
		}},
		{"P7: the same key after a rejection", "P7", func(h *history) { heldAndResubmitted(h, key("c", events.Do)) }},
		{"P11: an epoch falls", "P11", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			e.Epoch = 0
			h.write(e)
		}},
		{"P11: an epoch that nobody claimed", "P11", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			e.Epoch = 2
			h.write(e)
		}},
		{"P15: an unreadable event", "P15", func(h *history) {
			h.submit()
			e := h.event(do("a", 1))
			r := e.Record(ns, "test", 0, []byte("{"))
			r.Offset = h.offset
			h.c.Event(&r)
		}},
		{"P16: a timer fires before it is due", "P16", func(h *history) {
			h.submit().add(do("a", 1)).later(900*time.Millisecond).recovery("a", events.Do, events.ActionWait)
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P16: a timer that says it fires when it is due, and is written before", "P16", func(h *history) {
			h.submit().add(do("a", 1)).later(500*time.Millisecond).recovery("a", events.Do, events.ActionWait)
			e := h.event(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			e.At = h.at.Add(500 * time.Millisecond)
			h.write(e)
		}},
	})
}

// heldAndResubmitted is a task whose step c is rejected and held, and then resubmitted with a key.
func heldAndResubmitted(h *history, key string) {
	h.holding().twoDone().add(do("c", 1)).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected)
	h.add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}).add(&events.TaskHeld{}).later(time.Minute)
	h.control(&events.Control{Command: events.Resubmit}).add(&events.TaskResumed{By: events.By{RequestID: "request"}})
	f := do("c", 2)
	f.Key = key
	h.add(f).later(time.Millisecond).reply("c", events.Do, 2, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "c", Attempt: 2})
	h.c.Effect(Effect{Happened, key})
	h.add(&events.TaskProcessed{})
}

// backoffAndCoolDown is a step that completes at its third attempt, after the cool-down.
func backoffAndCoolDown(h *history) {
	h.submit().add(do("a", 1)).fails("a", events.Do, 1).waits("a", 1).add(do("a", 2)).later(time.Second)
	h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 2})
	h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 2, CoolDown: true})
	h.at = h.timer("a", events.Do).Due
	h.recovery("a", events.Do, events.ActionRetry).add(do("a", 3)).later(time.Millisecond)
	h.reply("a", events.Do, 3, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 3})
	h.c.Effect(Effect{Happened, key("a", events.Do)})
	h.add(do("b", 1)).completes("b", events.Do).add(do("c", 1)).completes("c", events.Do).add(&events.TaskProcessed{})
}

// unknownTwice is a task that is undone after a completed, while the effects of b and c are unknown.
func unknownTwice(h *history) {
	h.submit().add(do("a", 1)).completes("a", events.Do).add(do("b", 1)).add(do("c", 1))
	h.fails("c", events.Do, 1).fails("b", events.Do, 1)
	h.control(&events.Control{Command: events.UndoTask})
	h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
}
