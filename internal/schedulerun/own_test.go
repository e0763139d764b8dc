package schedulerun

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/topicowner"
)

// TestAcceptedTasksAreAskedFor: a submission is sent again as it is until a scheduler has accepted it. Then the owner only asks for
// the task's status, less often the older the task is, and for as long as the task hasn't ended.
func TestAcceptedTasksAreAskedFor(t *testing.T) {
	const ns = events.Namespace(events.DefaultNamespace)
	decided := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	now := decided
	s := &Service{cfg: Config{Kafka: kafka.Config{Namespace: ns}, Source: "test", Now: func() time.Time { return now }}, state: schedule.NewState(), topic: topicowner.New(topicowner.Config{})}
	o := &owner{Service: s, sent: map[string]time.Time{}, cancels: map[string]time.Time{}}
	records := schedule.Records{Namespace: ns, Source: "test"}
	submission := events.Submission{ID: events.ScheduledTask("s", decided), Workflow: "w", ReplyTo: ns.Schedules()}
	r, err := records.Decided("s", &schedule.Start{Epoch: 1, At: decided, Cause: schedule.Queue, Submission: submission.Record(ns, "test").Value})
	if err != nil {
		t.Fatal(err)
	}
	queued, err := records.Decided("s", &schedule.Wait{Epoch: 1, At: decided})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(r events.Record) {
		r.Time = decided
		s.state.Apply(&r)
	}
	notify := func(status string) {
		apply((&events.Notification{Task: submission.ID, Workflow: "w", Status: status, At: now}).Record(ns, "test", ns.Schedules(), "x"))
	}
	expect := func(after time.Duration, sent, asks bool) {
		t.Helper()
		now = now.Add(after)
		rs := o.outbox(now)
		if len(rs) > 0 != sent {
			t.Fatalf("%s after the decision %d records", now.Sub(decided), len(rs))
		}
		if !sent {
			return
		}
		_, in, err := events.DecodeInput(events.Tasks, &rs[0])
		if got, is := in.(*events.Submission); err != nil || !is || got.StatusQuery != asks || got.Digest() != submission.Digest() {
			t.Fatalf("%s after the decision %+v, %v", now.Sub(decided), in, err)
		}
	}
	apply(queued)
	apply(r)
	expect(0, true, false)
	expect(time.Second, false, false)
	expect(resendInterval, true, false)
	notify(events.StatusReceived)
	expect(resendInterval, false, false)
	expect(askInterval, true, true)
	expect(askInterval, false, false)
	expect(time.Minute, true, true)
	expect(48*time.Hour, true, true)
	expect(4*time.Hour, false, false)
	expect(2*time.Hour, true, true)
	notify(events.StatusForgotten)
	expect(48*time.Hour, false, false)
	if len(o.sent) > 0 {
		t.Errorf("%v", o.sent)
	}
}

// TestClockThatIsAheadAtTheStart: the clock of a process is two hours ahead until it is corrected by a first sample. The owner
// doesn't decide by it.
func TestClockThatIsAheadAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := 2 * time.Hour
		s := &Service{cfg: Config{Now: func() time.Time { return time.Now().Add(ahead) }}, state: schedule.NewState(), topic: topicowner.New(topicowner.Config{})}
		o := &owner{Service: s, claimedAt: time.Now(), claimRead: time.Now()}
		time.Sleep(10 * time.Second)
		if off := time.Until(o.now()); off != 0 {
			t.Errorf("it is off by %s", off)
		}
		ahead = 0
		if off := time.Until(o.now()); off != 0 {
			t.Errorf("after the correction it is off by %s", off)
		}
	})
}
