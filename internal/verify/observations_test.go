package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Observations other than the log.
func TestWhatWasSeen(t *testing.T) {
	digest := func(by, sum string, crashed bool) Digest {
		return Digest{View: "tasks", By: by, Offset: 7, Sum: sum, Crashed: crashed}
	}
	holds(t, whole, []played{
		{"P1: an open task without a timer", "P1", func(h *history) {
			s := &events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}
			h.input(s.Record(ns, "test")).add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest()})
		}},
		{"a timer that is due", "", func(h *history) { h.submit().add(do("a", 1)).later(30 * time.Second) }},
		{"P1: a timer that is due for too long", "P1", func(h *history) { h.submit().add(do("a", 1)).later(2 * time.Minute) }},
		{"P1: processed long after its complete-by", "P1", func(h *history) {
			h.twoDone().add(do("c", 1))
			h.at = start0.Add(time.Hour + 2*time.Minute)
			h.c = relaxed(h)
			h.completes("c", events.Do).add(&events.TaskProcessed{})
		}},
		{"P1: a hold that nobody sees", "P1", func(h *history) {
			h.holding().twoDone().add(do("c", 1)).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}).raw(h.event(&events.TaskHeld{}))
		}},
		{"P6: an effect without its undo", "P6", func(h *history) { h.undone().c.Effect(Effect{Happened, key("c", events.Do)}) }},
		{"P6: an effect after its undo", "P6", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).control(&events.Control{Command: events.UndoTask})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
			h.add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
			h.c.Effect(Effect{Happened, key("a", events.Do)})
		}},
		{"P6: an undo that nobody asked for", "P6", func(h *history) { h.processed().c.Effect(Effect{Undone, key("a", events.Do)}) }},
		{"P7: completed without an effect", "P7", func(h *history) {
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P7: two effects under one key", "P7", func(h *history) { h.processed().c.Effect(Effect{Happened, key("a", events.Do)}) }},
		{"P7: an effect of no attempt", "P7", func(h *history) { h.submit().c.Effect(Effect{Happened, key("a", events.Do)}) }},
		{"P7: an effect of no task", "P7", func(h *history) { h.c.Effect(Effect{Happened, key("a", events.Do)}) }},
		{"the same digest", "", func(h *history) {
			h.c.Digest(digest("live", "x", false))
			h.c.Digest(digest("rebuilt", "x", false))
			h.c.Digest(Digest{View: "deadlines", By: "live", Offset: 7, Sum: "y"})
		}},
		{"P8: a rebuild differs", "P8", func(h *history) {
			h.c.Digest(digest("live", "x", false))
			h.c.Digest(digest("rebuilt", "y", false))
		}},
		{"P9: what a crash left is no prefix", "P9", func(h *history) {
			h.c.Digest(digest("after a crash", "x", true))
			h.c.Digest(digest("rebuilt", "y", false))
		}},
		{"P12: acknowledged and lost", "P12", func(h *history) { h.submit().c.Acknowledged("u", h.at) }},
		{"acknowledged, and not consumed yet", "", func(h *history) {
			h.submit().c.Acknowledged("u", h.at)
			h.input((&events.Submission{ID: "u", Workflow: "w"}).Record(ns, "test"))
		}},
		{"acknowledged, and refused", "", func(h *history) {
			h.c.Acknowledged("u", h.at)
			h.input((&events.Submission{ID: "u", Workflow: "w"}).Record(ns, "test"))
			h.deadletter(events.ReasonUnknownWorkflow)
			h.submit()
		}},
		{"reads that stand and go on", "", func(h *history) {
			for p, o := range []int64{5, 5, 6, 1} {
				h.c.Read("client", int32(p/3), o)
			}
			h.c.Read("another", 0, 1)
		}},
		{"P13: a read goes back", "P13", func(h *history) { h.c.Read("client", 0, 5); h.c.Read("client", 0, 4) }},
		{"P13: a read without an offset", "P13", func(h *history) { h.c.Read("client", 0, -1) }},
		{"drained", "", func(h *history) {
			h.processed().c.Lag(h.at, 5)
			h.c.Quiet(h.at)
			h.later(59*time.Second).c.Lag(h.at, 0)
			h.later(time.Hour).c.Lag(h.at, 3)
		}},
		{"drained before it was said that all is quiet, and judged late", "", func(h *history) {
			quiet := h.processed().at
			h.later(59*time.Second).c.Lag(h.at, 0)
			h.c.Quiet(quiet)
			h.later(time.Hour)
		}},
		{"P14: never drained", "P14", func(h *history) {
			h.processed().c.Quiet(h.at)
			h.later(61*time.Second).c.Lag(h.at, 1)
		}},
		{"P14: drained late", "P14", func(h *history) {
			h.processed().c.Quiet(h.at)
			h.later(61*time.Second).c.Lag(h.at, 0)
		}},
		{"P14: a task ends late", "P14", func(h *history) {
			h.twoDone().c.Quiet(h.at)
			h.later(61*time.Second).add(do("c", 1)).completes("c", events.Do).add(&events.TaskProcessed{})
		}},
		{"a task that was submitted later has its own time", "", func(h *history) {
			h.c.Quiet(h.at)
			h.c.Lag(h.at, 0)
			h.later(time.Hour).processed()
		}},
		{"what an operator asks later has its own time", "", func(h *history) {
			h.c.Quiet(h.at)
			h.c.Lag(h.at, 0)
			heldAndResubmitted(h, "waybill.t/c/do/2")
		}},
		{"P14: a task never ends", "P14", func(h *history) { h.twoDone().c.Quiet(h.at); h.later(61 * time.Second) }},
		{"P16: a timer fires late", "P16", late},
		{"a timer fires late while something was disturbed", "", func(h *history) {
			late(h)
			h.c.Disturbed(AllPartitions, h.at.Add(-2*time.Second), h.at.Add(-time.Second))
		}},
		{"P16: a timer fires late while another partition was disturbed", "P16", func(h *history) {
			late(h)
			h.c.Disturbed(1, h.at.Add(-time.Hour), h.at)
		}},
		{"P16: a timer fires late before something was disturbed", "P16", func(h *history) {
			late(h)
			h.c.Disturbed(0, h.at.Add(time.Second), h.at.Add(time.Hour))
		}},
	})
}

// relaxed passes the records written so far to a checker that ignores the times of replies.
func relaxed(h *history) *Checker {
	h.o.ReplyTolerance = 2 * time.Hour
	c := New(h.o)
	s := (&events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}).Record(ns, "test")
	c.Input(&s)
	h.o.Requests = true
	old := h.c
	h.c = c
	for i := range h.all {
		if e := c.Event(&h.all[i]); e != nil {
			if f, ok := e.Fact.(*events.AttemptStarted); ok {
				h.request(f, e.Due)
			}
		}
	}
	for _, k := range old.ledger.order {
		c.Effect(Effect{Happened, k})
	}
	return c
}

// late is a task with a timer that fires 2 s late.
func late(h *history) {
	h.submit().add(do("a", 1)).later(3*time.Second).recovery("a", events.Do, events.ActionWait)
	h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1}).add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
}

// Percentiles are accurate to 1.6 %.
func TestLateness(t *testing.T) {
	var l lateness
	for ms := range 1000 {
		l.add(time.Duration(ms) * time.Millisecond)
	}
	got := l.report()
	want := Lateness{Timers: 1000, P50: 500 * time.Millisecond, P99: 990 * time.Millisecond, Max: 999 * time.Millisecond}
	near := func(a, b time.Duration) bool { return a >= b && a <= b+b*2/100 }
	if got.Timers != want.Timers || got.Max != want.Max || !near(got.P50, want.P50) || !near(got.P99, want.P99) {
		t.Errorf("%+v, want about %+v", got, want)
	}
	for _, d := range []time.Duration{0, 63, 64, 65, 127, 128, 1000, 86_400_000, 1 << 43} {
		d *= time.Millisecond
		if up := upper(bucket(uint64(d.Milliseconds()))); up < d || up > d+d/32+time.Millisecond {
			t.Errorf("%s is in the bucket up to %s", d, up)
		}
	}
	if (&lateness{}).report() != (Lateness{}) {
		t.Error("nothing has percentiles")
	}
}

// The counts of a report.
func TestReport(t *testing.T) {
	h := newHistory(t, whole)
	h.submit().add(do("a", 1)).fails("a", events.Do, 1)
	h.recovery("a", events.Do, events.ActionRetry) // too early: rejected
	h.waits("a", 1).add(do("a", 2)).reply("yyy", events.Do, 1, events.Failed)
	h.deadletter(events.ReasonUnknownStep) // so it was consumed
	h.reply("zzz", events.Do, 1, events.Failed)
	h.c.Acknowledged("t", h.at)
	r := h.c.Finish(h.at.Add(2 * time.Second))
	got := fmt.Sprint(r.Events, r.Tasks, r.Inputs, r.Requests, r.States, r.Pending, r.Overdue, r.Recoveries, r.Lateness, r.Acknowledged, r.Broken)
	if want := "7 1 7 2 map[processing:1] 1 1 {2 1} {2 0s 0s 0s} 1 0"; got != want {
		t.Errorf("%s\nwant %s\n%v", got, want, r.Faults)
	}
	if s := r.String(); !strings.Contains(s, "recoveries: 2 accepted, 1 rejected") {
		t.Errorf("as a text: %s", s)
	}
	if again := h.c.Finish(h.at.Add(2 * time.Second)); fmt.Sprint(again) != fmt.Sprint(r) {
		t.Errorf("again: %v", again)
	}
}

// The timeline shows the first broken task, with the events around its fault.
func TestTimeline(t *testing.T) {
	h := newHistory(t, Options{})
	if h.processed().c.Finish(h.at).Timeline() != nil {
		t.Error("a timeline of nothing")
	}
	h = newHistory(t, Options{})
	h.submit()
	for n := 1; n <= 9; n++ {
		h.add(do("a", n)).reply("a", events.Do, n, events.Failed)
		h.add(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: n}) // the budget is 2
		h.recovery("a", events.Do, events.ActionRetry)
	}
	line := h.c.Finish(h.at).Timeline()
	for i := range h.all {
		line.Add(&h.all[i])
	}
	got := ""
	for _, l := range line.Lines() {
		got += fmt.Sprint(l.Seq, " ")
	}
	if want := "1 2 3 4 5 6 "; got != want || line.Omitted != 0 {
		t.Errorf("%s, %d left out, of %v; want %s", got, line.Omitted, line.Fault, want)
	}
	line = &Timeline{Fault: Fault{Task: "t"}}
	for i := range h.all {
		line.Add(&h.all[i])
	}
	if s := line.String(); !strings.Contains(s, "... 7 events ...") {
		t.Errorf("as a text:\n%s", s)
	}
	if n := len(line.Lines()); n != timelineFirst+timelineBefore || line.Omitted != 20-n {
		t.Errorf("%d lines, %d left out", n, line.Omitted)
	}
}

// A missing part is reported before faults that may follow from it. It has no record, so there is no timeline.
func TestIncomplete(t *testing.T) {
	h := newHistory(t, Options{Faults: 2})
	c := h.processed().c
	c.Incomplete("the half of it")
	r := c.Finish(h.at)
	if r.Broken != 1 || len(r.Faults) != 1 || r.Faults[0].String() != "P2: the half of it" || r.Timeline() != nil {
		t.Errorf("%v", r)
	}
	for n := range 3 {
		c.Corrupt("waybill.events", 0, int64(n), nil, "corrupt")
	}
	c.Incomplete("and more")
	r = c.Finish(h.at)
	if r.Broken != 5 || len(r.Faults) != 2 || r.Faults[0].What != "and more" {
		t.Errorf("%v", r)
	}
}
