package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// inPartition returns a history of the partition, one of two, that the task belongs to.
func inPartition(t *testing.T, of string, o Options) *history {
	o.Partitions, o.Inputs = 2, true
	h := newHistory(t, o)
	h.part, h.c, h.offset, h.inputs = events.Partition([]byte(of), 2), New(o), 0, [events.Inboxes]int64{}
	h.claim(1)
	return h
}

// another starts another task of the same partition.
func (h *history) another() *history {
	h.state = nil
	for i := len(h.all); ; i++ {
		if h.id = fmt.Sprint("task", i); events.Partition([]byte(h.id), 2) == h.part {
			return h
		}
	}
}

// An inbox was trimmed while it was read. The records between the part that was read and the new start are unknown. It
// is no fault that they are missing.
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

// Replies that were redriven by an operator or forwarded by a scheduler don't count as late if the original was in
// time.
func TestRepliesThatOthersWriteLate(t *testing.T) {
	reply := func(h *history) events.Record {
		p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: token, Outcome: events.Completed, Body: []byte("{}")}
		return p.Record(ns, "agent")
	}
	hop := events.Header{Key: events.HeaderHop, Value: []byte("1/7")}
	for _, tt := range []struct {
		name   string
		late   func(h *history) events.Record
		faults int
	}{
		{"its agent", reply, 1},
		{"an operator", func(h *history) events.Record {
			r := reply(h)
			r.Topic, r.Partition, r.Offset = ns.Inbox(events.Replies), h.part, 0
			letter := events.Deadletter(ns, "scheduler", &r, &events.Unusable{Reason: events.ReasonTaskStopped})
			again, err := events.Redrive(ns, "operator", &letter)
			if err != nil {
				t.Fatal(err)
			}
			return again
		}, 0},
		{"a scheduler", func(h *history) events.Record {
			r := reply(h)
			r.Headers = append(r.Headers, hop)
			return r
		}, 0},
	} {
		h := inPartition(t, "stray", Options{})
		h.another().submit().add(&events.AttemptStarted{Kind: events.Do, Step: "a", Attempt: 1, Agent: "x", Operation: "a", Key: key("a", events.Do)})
		h.input(tt.late(h.later(2 * time.Second)))
		if r := h.c.Finish(h.at); r.Broken != tt.faults || r.LateReplies != tt.faults {
			t.Errorf("%s: %s", tt.name, r)
		}
	}
}
