package scheduler

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
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

// TestSignalWhoseSubmissionWaits checks that a signal which waited in its inbox while no scheduler ran isn't a dead
// letter because it is read before the submission of its task.
func TestSignalWhoseSubmissionWaits(t *testing.T) {
	s := newSite(t, 1)
	s.cluster.now = s.clock.Now
	s.catalog.unread = append(s.catalog.unread, waitsForSignal(t))
	s.submit("sign", "t-1")
	s.cluster.write((&events.Signal{Task: "t-1", Name: "approved", ID: "1"}).Record(ns, "test"))
	s.clock.pass(time.Minute)
	log := s.cluster.join(0)
	submissions := ns.Inbox(events.Tasks)
	log.Pause(0, submissions, inboxgate.PausedForDefinitions, time.Time{})
	w := s.worker(log)
	s.until(w, "the signal waits", func() bool { return w.partitions[0].ok() && !log.flows(ns.Inbox(events.Signals), 0) })
	log.Resume(0, inboxgate.PausedForDefinitions, submissions)
	s.drain(w)
	if got, dead := s.events("t-1"), s.headers(ns.Deadletters(), events.HeaderReason); len(got) != 6 || len(dead) > 0 {
		t.Errorf("the task has the events %v; dead letters: %v", got, dead)
	}
}

func TestIsEarly(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		signal time.Time
		read   submissionsRead
		want   bool
	}{
		"just written, and nothing is read": {ago(time.Second), submissionsRead{ago(time.Hour), ago(time.Hour)}, true},
		"old, and nothing is read":          {ago(6 * time.Second), submissionsRead{ago(time.Hour), ago(time.Hour)}, false},
		"old, reading has just begun":       {ago(time.Hour), submissionsRead{at: ago(time.Second)}, true},
		"old, older submissions are read":   {ago(time.Hour), submissionsRead{ago(2 * time.Hour), ago(0)}, true},
		"old, younger ones are read":        {ago(time.Hour), submissionsRead{ago(time.Minute), ago(0)}, false},
		"a little ahead":                    {ago(-time.Second), submissionsRead{}, true},
		"far ahead, and submissions flow":   {ago(-time.Hour), submissionsRead{ago(0), ago(0)}, false},
		"a grace old, submissions keep up":  {ago(earlySignalGrace), submissionsRead{ago(0), ago(0)}, false},
	} {
		if got := isEarly(c.signal, now, c.read); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
