package verify

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// scheduleRecord feeds a record of the topic of schedules, at the history's time.
func (h *history) scheduleRecord(kind, name string, v any) *history {
	value, err := json.Marshal(v)
	if err != nil {
		h.t.Fatal(err)
	}
	h.c.Schedule(&events.Record{Topic: ns.Schedules(), Key: []byte(name), Value: value, Offset: h.decided, Time: h.at, Headers: events.CloudHeaders(kind, "test", "x")})
	return h
}

func (h *history) claimSchedules(epoch int) *history {
	h.c.SchedulesRead()
	return h.scheduleRecord(scheduleClaimed, "", map[string]any{"epoch": epoch, "owner": "test"})
}

// starts decides that a schedule starts a task for an instant.
func (h *history) starts(epoch int, s *events.Submission) *history {
	name, at, _ := events.ParseScheduledTask(s.ID)
	return h.scheduleRecord(scheduleStarted, name, map[string]any{"epoch": epoch, "at": at, "submission": json.RawMessage(s.Record(ns, "test").Value)})
}

// TestScheduledTasks checks P27: each decision to start has its task, and each task of a schedule its decision.
func TestScheduledTasks(t *testing.T) {
	submission := func(h *history) *events.Submission {
		return &events.Submission{ID: events.ScheduledTask("nightly", h.at), Workflow: "w", Input: []byte(`{"day":1}`), ReplyTo: ns.Schedules()}
	}
	received := func(h *history, s *events.Submission) {
		h.id = s.ID
		h.input(s.Record(ns, "test"))
		h.receive(s)
	}
	refused := func(h *history, s *events.Submission) {
		n := &events.Notification{Task: s.ID, Status: events.StatusRefused, Reason: "unknown_workflow: none"}
		h.c.Schedule(&events.Record{Topic: ns.Schedules(), Key: []byte(s.ID), Value: n.Record(ns, "test", ns.Schedules(), "x").Value, Time: h.at, Headers: events.CloudHeaders(events.TypeNotification, "test", "y")})
	}
	holds(t, Options{}, []played{
		{"a decision and its task", "", func(h *history) {
			s := submission(h)
			h.claimSchedules(1).starts(1, s).later(time.Second)
			received(h, s)
			h.later(time.Hour)
		}},
		{"decided twice, once in the log of tasks", "", func(h *history) {
			s := submission(h)
			h.claimSchedules(1).starts(1, s).starts(1, s)
			received(h, s)
		}},
		{"a moment ago", "", func(h *history) { h.claimSchedules(1).starts(1, submission(h)).later(time.Minute) }},
		{"of a process that lost the partition", "", func(h *history) {
			h.claimSchedules(1).claimSchedules(2).starts(1, submission(h)).later(time.Hour)
		}},
		{"refused", "", func(h *history) {
			s := submission(h)
			h.claimSchedules(1).starts(1, s)
			refused(h, s)
			h.later(time.Hour)
		}},
		{"refused, because the task is of an older definition", "", func(h *history) {
			s := submission(h)
			old := *s
			old.Input = []byte(`{"day":0}`)
			h.claimSchedules(1).later(time.Second)
			h.starts(1, s) // a backfill
			refused(h, s)
			received(h, &old)
			h.later(time.Hour)
		}},
		{"decided again under a newer definition, when its id was forgotten", "", func(h *history) {
			s := submission(h)
			h.claimSchedules(1).starts(1, s)
			s.Input = []byte(`{"day":2}`)
			h.starts(1, s)
			received(h, s)
		}},
		{"the topic wasn't read", "", func(h *history) { h.starts(1, submission(h)).later(time.Hour) }},

		{"decided by a record that retention has deleted, and received after the first one that is kept", "", func(h *history) {
			deleted := submission(h)
			h.later(5 * time.Millisecond)
			h.decided = 100
			h.claimSchedules(1).later(time.Hour) // no scheduler ran
			received(h, deleted)
		}},
		{"P27: no decision, after retention", "P27", func(h *history) {
			h.decided = 100
			h.claimSchedules(1).later(startWithin + time.Second)
			received(h, submission(h))
		}},
		{"P27: no task", "P27", func(h *history) { h.claimSchedules(1).starts(1, submission(h)).later(time.Hour) }},
		{"P27: no decision", "P27", func(h *history) {
			h.claimSchedules(1).later(time.Second)
			received(h, submission(h))
		}},
		{"P27: another submission", "P27", func(h *history) {
			s := submission(h)
			h.claimSchedules(1).starts(1, s)
			s.Input = []byte(`{"day":2}`)
			received(h, s)
		}},
		{"P27: garbage", "P27", func(h *history) { h.claimSchedules(1).scheduleRecord(scheduleStarted, "nightly", "x") }},
	})
}
