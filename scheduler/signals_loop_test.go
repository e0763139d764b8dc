package scheduler

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// waitsForSignal returns the definition of a workflow whose only step waits for the signal approved.
func waitsForSignal(t testing.TB) events.Record {
	within := workflow.Duration(time.Hour)
	d, err := workflow.New("sign", 1).CompleteWithin(time.Hour).Step(workflow.Step{ID: "approve", Signal: "approved", CompleteWithin: &within}).Build()
	if err != nil {
		t.Fatal(err)
	}
	return events.Record{Key: []byte(d.Key()), Value: d.JSON()}
}

// TestSignalBeforeItsSubmission checks that a signal which is read before its task's submission waits for it, and that
// one of a task that nobody submits becomes a dead letter once its time is over.
func TestSignalBeforeItsSubmission(t *testing.T) {
	s := newSite(t, 1)
	s.cluster.now = s.clock.Now
	s.catalog.unread = append(s.catalog.unread, waitsForSignal(t))
	log := s.cluster.join(0)
	w := s.worker(log)
	s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
	signal := func(task string) {
		s.cluster.write((&events.Signal{Task: task, Name: "approved", ID: "1"}).Record(ns, "test"))
	}
	signal("t-1")
	s.until(w, "the signal waits", func() bool { return !log.flows(ns.Inbox(events.Signals), 0) })
	s.submit("sign", "t-1")
	s.drain(w)
	if got, dead := s.events("t-1"), s.headers(ns.Deadletters(), events.HeaderReason); len(got) != 6 || len(dead) > 0 {
		t.Errorf("the task has the events %v; dead letters: %v", got, dead)
	}
	signal("nobody")
	s.until(w, "the signal waits", func() bool { return !log.flows(ns.Inbox(events.Signals), 0) })
	s.clock.pass(earlySignalGrace)
	s.drain(w)
	if dead := s.headers(ns.Deadletters(), events.HeaderReason); len(dead) != 1 || dead[0] != string(events.ReasonUnknownTask) {
		t.Errorf("dead letters: %v", dead)
	}
}

// TestSignalFromTheFuture checks that a signal of an unknown task whose client wrote a time far ahead delays no other
// signal of its partition: it is a dead letter at once.
func TestSignalFromTheFuture(t *testing.T) {
	s := newSite(t, 1)
	ahead := time.Hour
	s.cluster.now = func() time.Time { return s.clock.Now().Add(ahead) }
	s.catalog.unread = append(s.catalog.unread, waitsForSignal(t))
	w := s.worker(s.cluster.join(0))
	s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
	s.submit("sign", "t-1")
	s.drain(w)
	for _, task := range []string{"nobody", "t-1"} {
		s.cluster.write((&events.Signal{Task: task, Name: "approved", ID: "1"}).Record(ns, "test"))
	}
	s.drain(w)
	if got := s.events("t-1"); len(got) != 6 {
		t.Errorf("the task has the events %v, want it to end", got)
	}
	if dead := s.headers(ns.Deadletters(), events.HeaderReason); len(dead) != 1 || dead[0] != string(events.ReasonUnknownTask) {
		t.Errorf("dead letters: %v", dead)
	}
}
