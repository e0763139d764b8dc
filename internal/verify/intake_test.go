package verify

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// takenIn submits task t as an intake does, for the record at an offset. told is the record that the event names.
func takenIn(h *history, offset, told int64) *history {
	at := func(offset int64) *events.IntakeRef {
		return &events.IntakeRef{Name: "shop", Topic: "orders", TopicID: "abc", Partition: 3, Offset: offset}
	}
	s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}"), Intake: at(offset)}
	h.input(s.Record(ns, "test"))
	h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(), Intake: at(told)})
	return h.add(&events.TaskStarted{})
}

// TestIntakes checks P28, and P10 as it applies to submissions of intakes.
func TestIntakes(t *testing.T) {
	holds(t, whole, []played{
		{"each record led to a task", "", func(h *history) { takenIn(takenIn(h, 17, 17).another(), 18, 18) }},
		{"P28: a record led to two tasks", "P28", func(h *history) { takenIn(takenIn(h, 17, 17).another(), 17, 17) }},
		{"P10: another record than that of the submission", "P10", func(h *history) { takenIn(h, 17, 18) }},
	})
}

// Partitions are checked on their own, and a record's second task may be in any.
func TestIntakesAcrossPartitions(t *testing.T) {
	of := events.IntakeRef{Name: "shop", Topic: "orders", Partition: 3, Offset: 17}
	a, b := New(Options{}), New(Options{})
	a.checkIntake(of, receivedFrom{"o-1", 0, 5})
	b.checkIntake(of, receivedFrom{"o-2", 1, 7})
	a.Merge(b)
	if len(a.faults.list) != 1 || a.faults.list[0].Promise != "P28" || a.faults.list[0].Task != "o-2" {
		t.Errorf("got %v", a.faults.list)
	}
}
