package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestFailedDecisionStopsItsTask has a decision about one of two tasks panic. That task is stopped, and answers commands; the other
// one goes on. The next owner, whose build has no such fault, decides again.
func TestFailedDecisionStopsItsTask(t *testing.T) {
	s := newSite(t, 1)
	var told []string
	s.cfg.Listener.DecisionFailed = func(_ int32, task, why string, stack []byte) {
		told = append(told, task)
		if !strings.Contains(why, "out of luck") || !strings.Contains(string(stack), "testing") {
			t.Errorf("%s\n%s", why, stack)
		}
	}
	token := s.cfg.token
	s.cfg.token = func(task string, ref events.RequestRef) string {
		if task == "t-1" {
			panic("out of luck")
		}
		return token(task, ref)
	}
	first := s.worker(s.cluster.join(0))
	s.submit("w", "t-1", "t-2")
	s.drain(first)
	s.complete("inventory")
	s.drain(first)
	s.lived("t-2")
	x := &events.Control{Task: "t-1", Command: events.Cancel, By: events.By{Who: "olga", RequestID: "q-1"}}
	s.cluster.write(x.Record(ns, "test"))
	s.drain(first)
	stopped := string(events.ReasonTaskStopped)
	if got := s.headers(ns.Deadletters(), events.HeaderReason); !slices.Equal(got, []string{stopped, stopped}) || len(s.events("t-1")) > 0 {
		t.Errorf("dead letters %v, events %v", got, s.events("t-1"))
	}
	if !slices.Equal(told, []string{"t-1"}) {
		t.Errorf("stopped: %v", told)
	}
	first.close(func() {})

	s.cfg.token = token
	w := s.worker(s.cluster.join(0))
	s.submit("w", "t-1")
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.lived("t-1")
}

// TestManyFailedDecisionsEndTheProcess has decisions about more tasks panic than an owner stops.
func TestManyFailedDecisionsEndTheProcess(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Listener.DecisionFailed = func(int32, string, string, []byte) {}
	s.cfg.token = func(string, events.RequestRef) string { panic("out of luck") }
	w := s.worker(s.cluster.join(0))
	s.submit("w", s.many(faultedMax+1, "t-")...)
	defer func() {
		if recover() == nil || len(w.partitions[0].faulted) != faultedMax {
			t.Errorf("%d tasks are stopped", len(w.partitions[0].faulted))
		}
	}()
	s.drain(w)
}
