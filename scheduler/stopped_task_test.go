package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// breakChain writes an event of a task that doesn't follow its last one.
func (s *site) breakChain(task string) {
	e := &events.Event{Task: task, Seq: uint64(len(s.events(task)) + 1), Prev: "of another history", At: s.clock.Now(), Epoch: 1,
		Cause: events.Cause{Inbox: events.Tasks},
		Fact:  &events.TaskUndoing{Ending: events.StateUndone}}
	s.cluster.write(e.Record(ns, "test", events.Partition([]byte(task), s.cfg.Partitions), e.Value()))
}

// TestStoppedTaskHasOneDeadRecovery checks that an owner writes one dead letter for the recovery of a stopped task,
// although a supervisor repeats it forever. It writes another one only if the first was rolled back.
func TestStoppedTaskHasOneDeadRecovery(t *testing.T) {
	s := newSite(t, 1)
	first := s.worker(s.cluster.join(0))
	s.submit("w", "t-1", "t-2")
	s.drain(first)
	s.breakChain("t-1")
	first.close(func() {})
	dead := func() []string { return s.headers(ns.Deadletters(), events.HeaderReason) }
	for owners := 1; owners <= 2; owners++ {
		log := s.cluster.join(0)
		w := s.worker(log)
		s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
		s.committed = nil
		rolledBack := false
		log.end = func(func()) (bool, bool, error) {
			handled := !rolledBack
			rolledBack = true
			return false, handled, nil
		}
		for range 5 {
			s.due("t-1")
			s.drain(w)
		}
		if got := dead(); !rolledBack || !slices.Equal(got, slices.Repeat([]string{string(events.ReasonTaskStopped)}, owners)) {
			t.Errorf("%d owners were asked five times each (rolled back: %v), dead letters: %v", owners, rolledBack, got)
		}
		ignored := 0
		for _, c := range s.committed {
			ignored += c.Ignored[IgnoredTaskStopped]
		}
		if ignored != 4 {
			t.Errorf("%d of five recoveries were ignored: %+v", ignored, s.committed)
		}
		w.close(func() {})
	}
}

// TestControlOfAStoppedTaskIsAnswered checks that a control of a stopped task is answered at once, with the reason.
func TestControlOfAStoppedTaskIsAnswered(t *testing.T) {
	s := newSite(t, 1)
	first := s.worker(s.cluster.join(0))
	s.submit("w", "t-1")
	s.drain(first)
	s.breakChain("t-1")
	first.close(func() {})
	w := s.worker(s.cluster.join(0))
	x := &events.Control{Task: "t-1", Command: events.Cancel, By: events.By{Who: "olga", RequestID: "q-1"}}
	s.cluster.write(x.Record(ns, "test"))
	s.drain(w)
	answers := s.cluster.all(ns.Answers())
	if len(answers) != 1 {
		t.Fatalf("answers: %v", answers)
	}
	a, err := events.DecodeAnswer(&answers[0])
	if err != nil || a.Accepted || a.Control != "q-1" || a.State != events.StateProcessing || !strings.Contains(a.Reason, "of another history") {
		t.Errorf("%+v, %v", a, err)
	}
	if got := s.headers(ns.Deadletters(), events.HeaderReason); !slices.Equal(got, []string{string(events.ReasonTaskStopped)}) {
		t.Errorf("dead letters: %v", got)
	}
}
