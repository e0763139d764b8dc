package verify

import (
	"container/heap"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Ids of ended tasks are forgotten by events of their partition, and by nothing else. A later task may have such an id:
// it is another task here, and has the earlier one (task.earlier).

// forgetting is an ended task, and from when on its id may be forgotten, in ms.
type forgetting struct {
	at   int64
	task *task
}

// forgettings is a heap of ended tasks by when their ids may be forgotten. Those that were undone since are obsolete.
type forgettings []forgetting

func (h forgettings) Len() int           { return len(h) }
func (h forgettings) Less(i, j int) bool { return h[i].at < h[j].at }
func (h forgettings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *forgettings) Push(x any)        { *h = append(*h, x.(forgetting)) }
func (h *forgettings) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// isForgotten reports whether the id of an ended task is forgotten at an event.
func (c *Checker) isForgotten(p *partition, t *task, e *events.Event) bool {
	if t == nil || t.forgetAt == 0 || !t.state.Terminal() {
		return false
	}
	until := p.state.Forgot
	if c.oneTask || !c.o.Since.IsZero() { // the events of the partition aren't fed, or not all
		until = e.At
	}
	return t.forgetAt <= until.UnixMilli()
}

// beginsAgain reports whether an event is the first of a task whose id an earlier task had, and may have.
func (c *Checker) beginsAgain(p *partition, t *task, e *events.Event) bool {
	_, received := e.Fact.(*events.TaskReceived)
	return received && e.Seq == 1 && c.isForgotten(p, t, e)
}

// checkEnd checks from when on the id of a task may be forgotten: its plan's time after its end, and not at all without
// one (P2). The id of a child stays known at least until its parent's scheduler said.
func (c *Checker) checkEnd(p *partition, t *task, e *events.Event) (what string) {
	s := t.open.state
	if !s.State.Terminal() {
		t.forgetAt = 0
		return ""
	}
	want := time.Time{}
	if keep := s.Plan.DedupeFor; keep > 0 {
		want = e.At.Add(keep)
		if p := s.Parent; p != nil && (p.KnownUntil.IsZero() || p.KnownUntil.After(want)) {
			want = p.KnownUntil
		}
	}
	if !s.ForgetAt.Equal(want) {
		return fmt.Sprintf("its id may be forgotten from %s on, and by its plan from %s on", instantOrNever(s.ForgetAt), instantOrNever(want))
	}
	t.forgetAt = 0
	if !want.IsZero() {
		t.forgetAt = want.UnixMilli()
		heap.Push(&p.forgettings, forgetting{t.forgetAt, t})
	}
	return ""
}

func instantOrNever(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format(events.TimeLayout)
}

// checkForgot checks an event that forgets ids: its hash, its owner, its name and its cause (P2, P10, P11), and that no
// supervisor will miss the next id (P2). The fold has checked that it forgets none too early.
func (c *Checker) checkForgot(p *partition, e *events.Event, f *events.PartitionForgot, r *events.Record) {
	fault := func(promise, what string) {
		c.faults.add(Fault{promise, "", topicEvents, r.Partition, r.Offset, what})
	}
	err := c.reader.CheckSum(r)
	if err == nil && e.Sum == "" {
		err = errNoSum
	}
	if err != nil {
		fault("P2", err.Error())
		return
	}
	if e.Cause.Inbox != events.Recoveries {
		fault("P10", fmt.Sprintf("it forgets ids, and comes of %s: only a recovery can ask for that", e.Cause))
	}
	what := p.checkOwner(r)
	if id, _ := r.Header(events.HeaderID); what == "" && (int64(e.Seq) != f.Until.UnixMilli() || id != e.ID(r.Partition)) {
		what = fmt.Sprintf("the event that forgets ids until %s is named %q", instantOrNever(f.Until), id)
	}
	if what != "" {
		fault("P11", what)
	}
	next := p.nextForgetting(f.Until.UnixMilli())
	if next != 0 && (f.Next.IsZero() || f.Next.UnixMilli() > next) {
		fault("P2", fmt.Sprintf("it says that the next id may be forgotten from %s on; one may be from %s on", instantOrNever(f.Next), instant(next)))
	}
}

// nextForgetting drops what is forgotten until an instant, and returns from when on the next id may be forgotten, in ms; 0:
// none may be.
func (p *partition) nextForgetting(until int64) int64 {
	for len(p.forgettings) > 0 {
		if x := p.forgettings[0]; x.at > until && x.task.forgetAt == x.at {
			return x.at
		}
		heap.Pop(&p.forgettings)
	}
	return 0
}

// lifeWith returns the task, or the earlier task with its id, that has an attempt with a token; the task itself if none
// has.
func (t *task) lifeWith(ref events.RequestRef, token uint64) *task {
	for x := t; x != nil; x = x.earlier {
		if i, ok := x.findAttempt(ref); ok && x.attempts[i].token == token {
			return x
		}
	}
	return t
}

// anyBroken reports whether a fault was found in the history of the task, or of an earlier one with its id.
func (t *task) anyBroken() bool {
	for x := t; x != nil; x = x.earlier {
		if x.broken {
			return true
		}
	}
	return false
}

// taskOfKey returns the task that has a name in idempotency keys (events.Task.KeyName); nil: there is none.
func (c *Checker) taskOfKey(name string) *task {
	if t := c.tasks[name]; t != nil && t.name == name {
		return t
	}
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return c.tasks[name]
	}
	for t := c.tasks[name[:at]]; t != nil; t = t.earlier {
		if t.name == name {
			return t
		}
	}
	return c.tasks[name]
}
