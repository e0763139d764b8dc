package verify

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// parts writes partitions of three tasks each: one processed, one undone, and one open after a failure. Each has an
// unreadable input that no scheduler has consumed.
func parts(t *testing.T, n int) (inputs, log []events.Record) {
	for p := range n {
		h := &history{t: t, c: New(Options{}), at: start0, part: int32(p)}
		h.claim(1)
		for i, end := range []func() *history{h.processed, h.undone, func() *history { return h.submit().add(do("a", 1)).fails("a", events.Do, 1) }} {
			h.id, h.state = fmt.Sprintf("t%d-%d", p, i), nil
			end()
		}
		h.input(events.Record{Topic: ns.Inbox(events.Tasks), Value: []byte("garbage")})
		inputs, log = append(inputs, h.fed...), append(log, h.all...)
	}
	return inputs, log
}

// Merged checkers of partitions have the same result as one checker.
func TestMergedIsTheWhole(t *testing.T) {
	const n = 3
	inputs, log := parts(t, n)
	for _, tt := range []struct {
		name   string
		change func(log []events.Record) []events.Record
	}{
		{"as they were written", func(log []events.Record) []events.Record { return log }},
		{"without an event", func(log []events.Record) []events.Record { return slices.Delete(slices.Clone(log), 5, 6) }},
		{"without an event in each", func(log []events.Record) []events.Record {
			return slices.DeleteFunc(slices.Clone(log), func(r events.Record) bool { return r.Offset == 5 })
		}},
	} {
		log := tt.change(log)
		o := Options{Inputs: true, Deadletters: true, LatestBy: time.Nanosecond}
		whole, check := New(o), NewPartitioned([]int32{0, 1, 2}, o)
		for i := range inputs {
			whole.Input(&inputs[i])
			check.Input(&inputs[i])
		}
		for i := range log {
			whole.Event(&log[i])
			check.Event(&log[i])
		}
		want, got := whole.Finish(start0.Add(time.Hour)), check.Merge().Finish(start0.Add(time.Hour))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: merged\n%s\nwhole\n%s", tt.name, got, want)
		}
		if want.Tasks != 3*n || (want.Broken > 0) != (tt.name != "as they were written") {
			t.Errorf("%s: %s", tt.name, want)
		}
	}
}

// TestInboxRead: an inbox is known from its first record, or from where it was trimmed meanwhile, to where the read ended.
func TestInboxRead(t *testing.T) {
	p := NewPartitioned([]int32{0, 1, 2, 3}, Options{Inputs: true})
	input := func(partition int32, offset int64) {
		p.Input(&events.Record{Topic: ns.Inbox(events.Replies), Partition: partition, Offset: offset, Value: []byte("garbage")})
	}
	input(0, 5)
	input(0, 6)
	input(1, 5)
	p.Trimmed(1, 9)
	p.InboxRead(events.Replies, map[int32]int64{0: 7, 1: 12, 2: 4}) // partition 3 has no leader
	p.Input(&events.Record{Topic: ns.Inbox(events.Tasks), Partition: 0, Offset: 1, Value: []byte("garbage")})
	p.InboxRead(events.Tasks, map[int32]int64{0: 2})
	for _, x := range []struct {
		inbox     events.Inbox
		partition int32
		from, to  int64
	}{{events.Replies, 0, 5, 7}, {events.Replies, 1, 9, 12}, {events.Replies, 2, 4, 4}, {events.Tasks, 0, 1, 2}} {
		if in := p.Checker(x.partition).inboxOf(x.inbox, x.partition); in.from != x.from || in.to != x.to {
			t.Errorf("%s/%d was read from %d to %d, want %d to %d", x.inbox, x.partition, in.from, in.to, x.from, x.to)
		}
	}
}

// A task belongs to one partition. A duplicate in another partition is found when the checkers are merged.
func TestMergeFindsATaskInTwoPartitions(t *testing.T) {
	var checkers []*Checker
	for p := range int32(2) {
		h := &history{t: t, id: "t", c: New(Options{}), at: start0, part: p}
		h.claim(1)
		h.processed()
		checkers = append(checkers, h.c)
	}
	checkers[0].Merge(checkers[1])
	r := checkers[0].Finish(start0)
	if r.Broken != 1 || r.Faults[0].Promise != "P2" || r.Faults[0].Task != "t" || r.Tasks != 1 {
		t.Errorf("%s", r)
	}
}

// With a time range, the tasks submitted in it are checked to their end, from any position in the log. Other tasks are
// counted.
func TestRangeOfTime(t *testing.T) {
	h := newHistory(t, Options{})
	h.id = "before"
	h.twoDone().add(do("c", 1))
	before := h.state
	h.id, h.state = "within", nil
	h.later(100 * time.Millisecond)
	since := h.at
	h.twoDone().add(do("c", 1))
	h.claim(2)
	within := h.state
	h.id, h.state = "after", nil
	h.later(100 * time.Millisecond)
	until := h.at.Add(-time.Millisecond)
	late := len(h.all)
	h.twoDone()
	h.id, h.state = "before", before
	h.completes("c", events.Do).add(&events.TaskProcessed{})
	h.id, h.state = "within", within
	h.completes("c", events.Do).add(&events.TaskProcessed{})

	from := slices.IndexFunc(h.all, func(r events.Record) bool { return !r.Time.Before(since) })
	for _, tt := range []struct {
		name         string
		o            Options
		from         int
		change       int // index of a changed event; 0: none
		tasks, ended int
		broken       []string
	}{
		{"all", Options{}, 0, 0, 3, 2, nil},
		{"a range", Options{Since: since, Until: until}, from, 0, 1, 1, nil},
		{"a range of the whole log", Options{Since: since, Until: until}, 0, 0, 1, 1, nil},
		{"since", Options{Since: since}, from, 0, 2, 1, nil},
		{"until", Options{Until: until}, 0, 0, 2, 2, nil},
		{"a change in it", Options{Since: since, Until: until}, from, from + 3, 1, 0, []string{"P2 within"}},
		{"a change after it", Options{Since: since, Until: until}, from, late + 3, 1, 1, nil},
	} {
		tt.o.Inputs = true
		c := New(tt.o)
		for i := range h.fed {
			c.Input(&h.fed[i])
		}
		for i := tt.from; i < len(h.all); i++ {
			r := h.all[i]
			if tt.change > 0 && i == tt.change {
				r.Value = append(slices.Clone(r.Value), ' ')
			}
			c.Event(&r)
		}
		got := c.Finish(h.at)
		var broken []string
		for _, f := range got.Faults {
			broken = append(broken, f.Promise+" "+f.Task)
		}
		if got.Tasks != tt.tasks || tt.broken == nil && got.States[events.StateProcessed] != tt.ended || !reflect.DeepEqual(broken, tt.broken) {
			t.Errorf("%s: %s", tt.name, got)
		}
		if outside := got.Others > 0; outside == (tt.name == "all") {
			t.Errorf("%s: %d events of others", tt.name, got.Others)
		}
	}
}

// An input with a dead letter was consumed, and so were the inputs before it. It doesn't matter whether a later one led
// to an event.
func TestPendingBesideDeadLetters(t *testing.T) {
	h := newHistory(t, Options{Deadletters: true})
	h.twoDone()
	h.reply("a", events.Do, 1, events.Completed) // a repetition that leads to nothing
	r := (&events.Submission{ID: "u", Workflow: "none", Input: []byte("{}")}).Record(ns, "shop")
	h.input(r)
	refused := h.fed[len(h.fed)-1]
	h.input(r)
	if got := h.c.Finish(h.at); got.Pending != 3 {
		t.Errorf("without a dead letter: %s", got)
	}
	letter := events.Deadletter(ns, "test", &refused, &events.Unusable{Reason: events.ReasonUnknownWorkflow})
	h.c.Deadletter(&letter)
	if got := h.c.Finish(h.at); got.Pending != 2 || got.Broken != 0 {
		t.Errorf("with one of the first of two: %s", got)
	}
}

// Inputs older than the checked part of the log aren't counted as pending, because it is unknown whether they were
// consumed. Newer inputs that led to nothing are pending.
func TestPendingOfARange(t *testing.T) {
	h := newHistory(t, Options{})
	h.twoDone().add(do("c", 1)).completes("c", events.Do).add(&events.TaskProcessed{})
	h.later(time.Second / 2)
	since := h.at
	h.reply("c", events.Do, 1, events.Completed)
	for name, tt := range map[string]struct {
		since   time.Time
		events  []events.Record
		pending int
	}{
		"all":   {time.Time{}, h.all, 1},
		"since": {since, nil, 1},
		"later": {since.Add(time.Second), nil, 0},
	} {
		c := New(Options{Inputs: true, Since: tt.since})
		for i := range h.fed {
			c.Input(&h.fed[i])
		}
		for i := range tt.events {
			c.Event(&tt.events[i])
		}
		if r := c.Finish(h.at); r.Pending != tt.pending || r.Broken != 0 {
			t.Errorf("%s: %d inputs wait, want %d: %s", name, r.Pending, tt.pending, r)
		}
	}
}
