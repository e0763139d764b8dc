package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// endedOne submits a task that ends at once, with an id that may be forgotten a minute later.
func endedOne(h *history) *history {
	h.dedupe = time.Minute
	h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1))
	h.completes("a", events.Do).completes("b", events.Do).completes("c", events.Do)
	return h.add(&events.TaskProcessed{Output: []byte("null"), ForgetAt: h.at.Add(time.Minute)})
}

// endedChild is endedOne of a child whose parent's scheduler said until when it must be known, with another forget_at.
func endedChild(h *history, knownUntil, forgetAt time.Duration) {
	h.dedupe = time.Minute
	s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}"), Parent: &events.Parent{Task: "p", Step: "s", Attempt: 1, Token: token, Depth: 1}}
	if knownUntil > 0 {
		s.Parent.KnownUntil = h.at.Add(knownUntil)
	}
	ends := &events.TaskCancelled{}
	if forgetAt > 0 {
		ends.ForgetAt = h.at.Add(forgetAt)
	}
	h.input(s.Record(ns, "test"))
	h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(), Parent: s.Parent}).add(&events.TaskStarted{})
	h.control(&events.Control{Command: events.Cancel})
	h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateCancelled}).add(ends)
}

// forgot writes the event that forgets ids until now, as a supervisor asked.
func (h *history) forgot(change func(*events.Event, *events.PartitionForgot)) *history {
	x := &events.Recovery{Action: events.ActionForget}
	h.input(x.Record(ns, "supervisor", h.part))
	f := &events.PartitionForgot{Until: h.at}
	e := &events.Event{Seq: uint64(h.at.UnixMilli()), Epoch: h.epoch, At: h.at, Cause: h.cause, Fact: f}
	if change != nil {
		change(e, f)
	}
	h.raw(e)
	return h
}

// usedAgain ends a task, forgets its id, and ends another task with the id.
func usedAgain(h *history) *history {
	endedOne(h).later(2 * time.Minute).forgot(nil)
	h.state = nil
	return endedOne(h.later(time.Second))
}

// TestForgottenIDs checks that an id may be used again once it was forgotten, and not before.
func TestForgottenIDs(t *testing.T) {
	for name, c := range map[string]struct {
		play func(h *history)
		want string
	}{
		"used again": {func(h *history) { usedAgain(h) }, ""},
		"used a third time, and a repeated submission of each": {func(h *history) {
			s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}")}
			usedAgain(h)
			h.input(s.Record(ns, "test")).later(time.Hour).forgot(nil)
			h.state = nil
			endedOne(h).input(s.Record(ns, "test"))
		}, ""},
		"used before it is forgotten": {func(h *history) {
			endedOne(h).later(2 * time.Minute)
			h.state = nil
			h.submit()
		}, "P2: task \"t\": events/0/10: waybill.task.received.v1 after the task ended as processed"},
		"used before it may be forgotten": {func(h *history) {
			endedOne(h).later(time.Second).forgot(func(_ *events.Event, f *events.PartitionForgot) { f.Next = h.at.Add(59 * time.Second) })
			h.state = nil
			h.submit()
		}, "P2: task \"t\": events/0/11: waybill.task.received.v1 after the task ended as processed"},
		"undone after it was forgotten": {func(h *history) {
			whole := endedOne(h).state.Encode()
			h.later(2 * time.Minute).forgot(nil).control(&events.Control{Command: events.UndoTask, Processed: true})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone, Processed: whole})
		}, "waybill.task.undoing.v1 of a task whose id was forgotten"},
		"to be forgotten too early": {func(h *history) {
			endedOne(h)
			h.id, h.state, h.cause = "u", nil, events.Cause{}
			h.submit().control(&events.Control{Command: events.Cancel})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateCancelled})
			h.add(&events.TaskCancelled{ForgetAt: h.at.Add(time.Second)})
		}, "P2: task \"u\": events/0/13: its id may be forgotten from 2026-01-01T00:00:01.030Z on, and by its plan from 2026-01-01T00:01:00.030Z on"},
		"never to be forgotten": {func(h *history) {
			h.dedupe = time.Minute
			h.submit().control(&events.Control{Command: events.Cancel})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateCancelled})
			h.add(&events.TaskCancelled{})
		}, "its id may be forgotten from never on, and by its plan from"},
		"to be forgotten without a rule": {func(h *history) {
			h.submit().control(&events.Control{Command: events.Cancel})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateCancelled})
			h.add(&events.TaskCancelled{ForgetAt: h.at.Add(time.Second)})
		}, "and by its plan from never on"},
		"a child, to be forgotten before its parent": {func(h *history) { endedChild(h, time.Hour, time.Minute) },
			"on, and by its plan from 2026-01-01T01:00:00.0"},
		"a child, as long as its parent":             {func(h *history) { endedChild(h, time.Hour, time.Hour) }, ""},
		"a child of a parent that is known for ever": {func(h *history) { endedChild(h, 0, time.Minute) }, "and by its plan from never on"},
		"the next one is missed": {func(h *history) { endedOne(h).later(time.Second).forgot(nil) },
			"P2: events/0/10: it says that the next id may be forgotten from never on; one may be from 2026-01-01T00:01:00.030Z on"},
		"the next one comes late": {func(h *history) {
			endedOne(h).later(time.Second).forgot(func(_ *events.Event, f *events.PartitionForgot) { f.Next = h.at.Add(time.Hour) })
		}, "one may be from 2026-01-01T00:01:00.030Z on"},
		"before its time": {func(h *history) {
			endedOne(h).forgot(func(_ *events.Event, f *events.PartitionForgot) { f.Until = h.at.Add(time.Minute) })
		}, "P11: events/0/10: it forgets until"},
		"without being asked": {func(h *history) {
			endedOne(h).later(time.Hour).control(&events.Control{Command: events.Cancel})
			cause := h.cause
			h.forgot(func(e *events.Event, _ *events.PartitionForgot) { e.Cause = cause })
		}, "P10: events/0/10: it forgets ids, and comes of controls/0/0"},
		"under another name": {func(h *history) {
			endedOne(h).later(time.Hour).forgot(func(e *events.Event, _ *events.PartitionForgot) { e.Seq++ })
		}, "P11: events/0/10: the event that forgets ids until"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, Options{Requests: true, Faults: 10})
			c.play(h)
			got := h.c.Finish(h.at).Faults
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.Contains(got[0].String(), c.want)) {
				t.Errorf("%v, want %q", got, c.want)
			}
		})
	}
}
