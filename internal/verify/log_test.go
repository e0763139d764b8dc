package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// history writes a task's events as a scheduler would.
type history struct {
	t     *testing.T
	state *events.Task
	log   *Log
	at    time.Time
	next  int64
	cause events.Cause
}

func newHistory(t *testing.T) *history {
	h := &history{t: t, log: NewLog(), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	att := events.Attempts{CompleteWithin: time.Second, MaxAttempts: 2, Backoff: time.Second, Factor: 1, CoolDown: time.Second}
	plan := events.NewPlan(events.OnErrorUndo, time.Hour, []events.PlanStep{
		{ID: "a", Agent: "x", Operation: "a", Attempts: att, Undo: &events.PlanUndo{Agent: "x", Operation: "u", Attempts: att}},
		{ID: "b", Agent: "x", Operation: "b", Attempts: att, Undo: &events.PlanUndo{Agent: "x", Operation: "u", Attempts: att}},
		{ID: "c", Agent: "x", Operation: "c", Attempts: att, Undo: &events.PlanUndo{Agent: "x", Operation: "u", Attempts: att}},
	})
	claim := h.record(&events.Event{Seq: 1, Epoch: 1, At: h.at, Fact: &events.PartitionClaimed{Owner: "test"}})
	h.log.Add(&claim)
	h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: []byte("{}"), Plan: plan}, 0)
	h.add(&events.TaskStarted{}, time.Hour)
	return h
}

// from makes the next events those of another input.
func (h *history) from(inbox events.Inbox) *history {
	h.cause = events.Cause{Inbox: inbox, Offset: h.cause.Offset + 1}
	return h
}

func (h *history) event(f events.Fact, due time.Duration) *events.Event {
	e := &events.Event{Task: "t", Seq: 1, At: h.at, Cause: h.cause, Epoch: 1, Fact: f}
	if due != 0 {
		e.Due, e.Policy = h.at.Add(due), &events.Policy{Timer: events.TimerAttempt, OnError: events.OnErrorUndo}
	}
	if h.state != nil {
		e.Seq, e.Prev = h.state.Seq+1, h.state.Prev
	}
	return e
}

func (h *history) record(e *events.Event) events.Record {
	r := e.Record(events.DefaultNamespace, "test", 0, e.Value())
	r.Offset = h.next
	h.next++
	return r
}

// add writes a fact that is a task's next.
func (h *history) add(f events.Fact, due time.Duration) {
	h.t.Helper()
	e := h.event(f, due)
	r := h.record(e)
	h.log.Add(&r)
	next, err := events.Evolve(h.state, e, events.Hash(f.Type(), r.Value))
	if err != nil {
		h.t.Fatal(err)
	}
	h.state = next
}

func start(step string, n int) *events.AttemptStarted {
	return &events.AttemptStarted{Kind: events.Do, Step: step, Attempt: n, Agent: "x", Operation: step, Key: "k"}
}

func undo(step string) *events.AttemptStarted {
	return &events.AttemptStarted{Kind: events.Undo, Step: step, Attempt: 1, Agent: "x", Operation: "u", Key: "k"}
}

// complete runs a step to its end.
func (h *history) complete(step string) {
	h.add(start(step, 1), time.Second)
	h.from(events.Replies).add(&events.AttemptCompleted{Kind: events.Do, Step: step, Attempt: 1}, 0)
}

// Each checker is fed a history that breaks its promise, and must see it; and
// one that doesn't, which it must let pass.
func TestBrokenHistoriesAreCaught(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		play       func(h *history)
	}{
		{"a good one", "", func(h *history) {
			h.complete("a")
			h.complete("b")
			h.add(start("c", 1), time.Second)
			h.from(events.Replies).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}, 0)
			h.add(&events.TaskUndoing{Ending: events.StateUndone}, 0)
			h.add(undo("b"), time.Second)
			h.from(events.Replies).add(&events.AttemptCompleted{Kind: events.Undo, Step: "b", Attempt: 1}, 0)
			h.add(undo("a"), time.Second)
			h.from(events.Replies).add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 1}, 0)
			h.add(&events.TaskUndone{}, 0)
		}},
		{"seq has a gap", "P2", func(h *history) {
			e := h.event(start("a", 1), time.Second)
			e.Seq++
			r := h.record(e)
			h.log.Add(&r)
		}},
		{"an event was changed", "P2", func(h *history) {
			e := h.event(start("a", 1), time.Second)
			e.Prev = "AAAAAAAAAAAAAAAAAAAAAA"
			r := h.record(e)
			h.log.Add(&r)
		}},
		{"completed twice", "P2", func(h *history) {
			h.complete("a")
			r := h.record(h.event(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1}, 0))
			h.log.Add(&r)
		}},
		{"a timer recovered twice", "P4", func(h *history) {
			h.add(start("a", 1), time.Second)
			h.at = h.at.Add(time.Second)
			h.from(events.Recoveries).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1}, 0)
			h.from(events.Recoveries).add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1}, time.Second)
		}},
		{"an attempt before its wait was over", "P5", func(h *history) {
			h.add(start("a", 1), time.Second)
			h.from(events.Recoveries).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1}, 0)
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1}, time.Second)
			h.at = h.at.Add(time.Second / 2)
			h.from(events.Recoveries).add(start("a", 2), time.Second)
		}},
		{"more attempts than allowed", "P5", func(h *history) {
			for n := range 3 {
				h.add(start("a", n+1), time.Second)
				h.from(events.Replies).add(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: n + 1}, time.Millisecond)
			}
		}},
		{"undo in the order of completion", "P6", func(h *history) {
			h.complete("a")
			h.complete("b")
			h.add(&events.TaskUndoing{Ending: events.StateUndone}, 0)
			h.add(undo("a"), time.Second)
			h.from(events.Replies).add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 1}, 0)
			h.add(undo("b"), time.Second)
		}},
		{"what may have happened is undone last", "P6", func(h *history) {
			h.complete("a")
			h.add(start("b", 1), time.Second)
			h.from(events.Replies).add(&events.AttemptFailed{Kind: events.Do, Step: "b", Attempt: 1, Effect: events.EffectUnknown}, 0)
			h.add(&events.TaskUndoing{Ending: events.StateUndone}, 0)
			h.add(undo("a"), time.Second)
			h.from(events.Replies).add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 1}, 0)
			h.add(undo("b"), time.Second)
		}},
		{"undo while an attempt runs", "P6", func(h *history) {
			h.complete("a")
			h.add(start("b", 1), time.Second)
			h.add(&events.TaskUndoing{Ending: events.StateUndone}, 0)
			h.add(undo("a"), time.Second)
		}},
		{"an epoch falls", "P11", func(h *history) {
			e := h.event(start("a", 1), time.Second)
			e.Epoch = 0
			r := h.record(e)
			h.log.Add(&r)
		}},
		{"an unreadable event", "P15", func(h *history) {
			r := h.record(h.event(start("a", 1), time.Second))
			r.Value = []byte("{")
			h.log.Add(&r)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory(t)
			tt.play(h)
			var got []string
			for _, f := range h.log.Faults {
				got = append(got, f.Promise)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("faults %v, want %q", h.log.Faults, tt.want)
			}
		})
	}
}
