package verify

import (
	"fmt"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// inPartition is a history of the partition of two in which a task belongs.
func inPartition(t *testing.T, of string, o Options) *history {
	o.Partitions, o.Inputs = 2, true
	h := newHistory(t, o)
	h.part, h.c, h.offset, h.inputs = events.Partition([]byte(of), 2), New(o), 0, [events.Inboxes]int64{}
	h.claim(1)
	return h
}

// another begins another task that belongs there.
func (h *history) another() *history {
	h.state = nil
	for i := len(h.all); ; i++ {
		if h.id = fmt.Sprint("task", i); events.Partition([]byte(h.id), 2) == h.part {
			return h
		}
	}
}

// An inbox was trimmed while it was read: some of its beginning came, then what was left from an offset on. What lay
// between isn't known: that it isn't there is no fault, nor what became of it.
func TestInboxTrimmedWhileItWasRead(t *testing.T) {
	stray := (&events.Submission{ID: "stray", Workflow: "w", Input: []byte("{}")}).Record(ns, "test")
	for _, tt := range []struct {
		name    string
		between func(h *history)
	}{
		{"an event's input", func(h *history) { h.another().submit() }},
		{"a dead letter's original", func(h *history) {
			h.input(events.Record{Topic: ns.Inbox(events.Tasks), Value: []byte("{")}).deadletter(events.ReasonBadJSON)
		}},
		{"what a record was forwarded as", func(h *history) {
			h.input(stray)
			r := stray
			r.Partition = 1 - h.part
			h.c.Input(&r)
			h.c.Consumed(events.Tasks, r.Partition, 1)
		}},
	} {
		h := inPartition(t, "stray", Options{Deadletters: true})
		h.another().submit()
		h.mute = true
		tt.between(h)
		h.c.InputsRead(events.Tasks, h.part, 2, 3)
		h.another().submit()
		if r := h.c.Finish(h.at); r.Broken != 0 {
			t.Errorf("%s: %s", tt.name, r)
		}
	}
}
