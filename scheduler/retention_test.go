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
