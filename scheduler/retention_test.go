package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// unforgetful are tasks whose ids may not be forgotten now.
type unforgetful struct {
	Tasks
	now bool
}

func (u *unforgetful) MayForget() bool { return !u.now && u.Tasks.MayForget() }

// TestForget asks a partition to forget ids. It is ignored before an id may be forgotten and while a snapshot is written. A
// submission of a known id has no effect, and one of a forgotten id is a new task. A task that is known for ever stays.
func TestForget(t *testing.T) {
	s := newSite(t, 1)
	d, err := workflow.New("r", 1).CompleteWithin(time.Hour).AttemptWithin(10 * time.Second).DedupeFor(time.Minute).
		Step(workflow.Step{ID: "a", Agent: "payments", Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	s.catalog.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
	snapshot := &unforgetful{}
	open := s.cfg.Tasks
	s.cfg.Tasks = func(p int32) (Tasks, error) {
		tasks, err := open(p)
		snapshot.Tasks = tasks
		return snapshot, err
	}
	w := s.worker(s.cluster.join(0))
	ignored := func(why Ignored) (n int) {
		for _, c := range s.committed {
			n += c.Ignored[why]
		}
		return n
	}
	forgotten := func() (n int) {
		for _, e := range s.events("") {
			if strings.Contains(e, "partition.forgot") {
				n++
			}
		}
		return n
	}
	ask := func(what string, want, notDue, snapshots int) {
		t.Helper()
		s.cluster.write((&events.Recovery{Action: events.ActionForget}).Record(ns, "test", 0))
		s.drain(w)
		if got := forgotten(); got != want || ignored(IgnoredNotDue) != notDue || ignored(IgnoredSnapshotRuns) != snapshots {
			t.Errorf("%s: forgot %d times, want %d; ignored: %d not due, want %d; %d while a snapshot runs, want %d", what, got, want,
				ignored(IgnoredNotDue), notDue, ignored(IgnoredSnapshotRuns), snapshots)
		}
	}
	again := func(want int, ids ...string) {
		t.Helper()
		for _, id := range ids {
			s.submit(map[bool]string{true: "pay", false: "r"}[id == "for ever"], id)
			s.drain(w)
			s.complete("payments")
			s.drain(w)
			n := 0
			for _, e := range s.events(id) {
				if e == (&events.TaskReceived{}).Type() {
					n++
				}
			}
			if n != want {
				t.Errorf("%s was received %d times, want %d: %v", id, n, want, s.events(id))
			}
		}
	}
	ask("no task has ended", 0, 1, 0)
	again(1, "for ever")
	ask("only one that is known for ever", 0, 2, 0)
	again(1, "one")
	s.clock.pass(50 * time.Second)
	again(1, "two", "one")
	ask("too early", 0, 3, 0)
	s.clock.pass(20 * time.Second)
	again(1, "one", "two") // nobody has asked yet
	snapshot.now = true
	ask("a snapshot is written", 0, 3, 1)
	snapshot.now = false
	ask("due", 1, 3, 1)
	ask("the next isn't due", 1, 4, 1)
	again(2, "one")
	again(1, "two", "for ever")
	s.clock.pass(time.Hour)
	ask("all", 2, 4, 1)
	again(2, "two")
	again(3, "one")
	again(1, "for ever")
}

// forgettingTree are workflows whose ids may be forgotten after different times: that of the child earlier than that of
// its parent.
const forgettingTree = `
workflow: top
version: 1
complete_within: 2h
KEEP
defaults: {complete_within: 10s}
steps:
  child: {workflow: middle, complete_within: 10m}
  each: {for_each: "${ [1, 2] }", agent: stock, operation: pick, undo: {operation: put_back}}
---
workflow: middle
version: 1
complete_within: 1h
dedupe_for: 1m
defaults: {complete_within: 10s}
steps:
  each: {for_each: "${ [1] }", workflow: bottom}
---
workflow: bottom
version: 1
complete_within: 1h
dedupe_for: 2m
defaults: {complete_within: 10s}
steps:
  a: {agent: stock, operation: pick, undo: {operation: put_back}}
`

// TestChildrenAreKnownAsLongAsTheirParent checks that no id of a child is forgotten before that of its parent, whatever
// its own workflow says, so that the undo of a processed parent finds all of its tree.
func TestChildrenAreKnownAsLongAsTheirParent(t *testing.T) {
	for _, c := range []struct {
		keep string        // of the parent; empty: for ever
		want time.Duration // from the start of the tree until its ids may be forgotten; 0: never
	}{{"dedupe_for: 1d\n", 26 * time.Hour}, {"dedupe_for: 1ms\n", 2*time.Hour + time.Millisecond}, {"", 0}} {
		f := newFamily(t, strings.Split(strings.ReplaceAll(forgettingTree, "KEEP\n", c.keep), "---")...)
		top := f.submit("o", "top", `{}`)
		ends := f.env.Now
		if len(f.tasks) != 5 {
			t.Errorf("%q: there are %d tasks", c.keep, len(f.tasks))
		}
		for id, task := range f.tasks {
			switch at := task.ForgetAt; {
			case task.State != events.StateProcessed:
				t.Errorf("%q: %s is %s: %v", c.keep, id, task.State, task.Error)
			case task.Parent == nil:
			case c.want == 0 && !at.IsZero(), c.want != 0 && !at.Equal(ends.Add(c.want)):
				t.Errorf("%q: %s may be forgotten from %s on, and its parent from %s on", c.keep, id, at, top.ForgetAt)
			}
		}
		f.env.Now = ends.Add(23 * time.Hour)
		f.forget()
		if c.want != 0 && c.want < 23*time.Hour {
			if len(f.tasks) > 0 {
				t.Errorf("%d tasks are still known", len(f.tasks))
			}
			continue
		}
		f.command("o", events.UndoTask, func(x *events.Control) { x.Processed = true })
		for id, task := range f.tasks {
			if task.State != events.StateUndone {
				t.Errorf("%q: %s is %s: %v", c.keep, id, task.State, task.Error)
			}
		}
		f.verified()
	}
}

// forget forgets the ids of ended tasks that may be forgotten, as a supervisor asks.
func (f *family) forget() {
	now, next, forgets := f.env.Now, time.Time{}, false
	for id, task := range f.tasks {
		switch at := task.ForgetAt; {
		case at.IsZero():
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		default:
			delete(f.tasks, id)
			delete(f.folds, id)
			forgets = true
		}
	}
	if !forgets {
		return
	}
	r := (&events.Recovery{Action: events.ActionForget}).Record(f.env.Namespace, "test", 0)
	r.Offset, r.Time = f.offset, now
	f.offset++
	f.verify.Input(&r)
	e := &events.Event{At: now, Seq: uint64(now.UnixMilli()), Epoch: 1, Cause: events.Cause{Inbox: events.Recoveries, Offset: r.Offset},
		Fact: &events.PartitionForgot{Until: now, Next: next}}
	f.write(e.Record(f.env.Namespace, "test", 0, e.Seal(nil)))
}
