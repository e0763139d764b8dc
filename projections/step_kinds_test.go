package projections_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

var kindsPlan = events.NewPlan(events.OnErrorHold, 30*time.Minute, []events.PlanStep{
	{ID: "pause", StepKind: events.WaitStep},
	{ID: "approve", StepKind: events.SignalStep, Signal: "approval", Attempts: testAttempts},
	{ID: "charge", Agent: "payments", Operation: "charge", Attempts: testAttempts, Check: &events.PlanUndo{Agent: "payments", Operation: "look", Attempts: testAttempts}},
	{ID: "poll", Agent: "shipping", Operation: "poll", Attempts: testAttempts, Repeat: &events.PlanRepeat{Every: time.Second, Max: 5}},
	{ID: "gift", Agent: "shipping", Operation: "wrap", Attempts: testAttempts, Catch: []string{"*"}},
})

// kindsLog writes the events of tasks with steps of all kinds.
type kindsLog struct {
	*history
	task string
	rs   []events.Record
}

// add adds an event after a time. timer is the timer that it arms; empty: none.
func (k *kindsLog) add(after time.Duration, timer events.TimerKind, f events.Fact) uint64 {
	k.at = k.at.Add(after)
	e := &events.Event{Task: k.task, Seq: 1, Epoch: k.state.Epoch, Fact: f}
	if t := k.tasks[k.task]; t != nil {
		e.Seq, e.Prev = t.Seq+1, t.Prev
	}
	if timer != "" {
		e.Due, e.Policy = events.Millis(k.at.Add(time.Hour)), &events.Policy{Timer: timer}
	}
	k.rs = append(k.rs, k.record(e))
	return e.Seq
}

func (k *kindsLog) begin(task string) {
	k.task = task
	k.add(0, "", &events.TaskReceived{Workflow: "kinds", Version: 1, Digest: "d", Plan: kindsPlan})
	k.add(0, events.TimerTask, &events.TaskStarted{})
}

func (k *kindsLog) start(after time.Duration, step string, kind events.Kind, attempt int) {
	k.add(after, events.TimerAttempt, &events.AttemptStarted{Kind: kind, Step: step, Attempt: attempt, Agent: "a", Operation: "o", Key: "k"})
}

// TestStepsOfKinds checks what is counted of steps that wait, take a signal, are checked, are repeated, and are caught;
// and that a step's duration begins again with a resubmit.
func TestStepsOfKinds(t *testing.T) {
	k := &kindsLog{history: newHistory(1)}
	k.begin("all")
	k.add(0, events.TimerStep, &events.WaitStarted{Step: "pause", Attempt: 1, Wait: time.Hour})
	k.add(10*time.Second, "", &events.WaitCompleted{Step: "pause", Attempt: 1})
	k.add(0, events.TimerStep, &events.SignalStarted{Step: "approve", Attempt: 1, Signal: "approval"})
	taken := k.add(time.Minute, "", &events.TaskSignalled{Name: "approval", ID: "1"})
	k.add(0, "", &events.SignalCompleted{Step: "approve", Attempt: 1, Received: taken})
	k.start(0, "charge", events.Do, 1)
	k.add(10*time.Second, events.TimerFailed, &events.AttemptExpired{Kind: events.Do, Step: "charge", Attempt: 1})
	k.start(0, "charge", events.Check, 1)
	k.add(time.Second, "", &events.CheckCompleted{Step: "charge", Attempt: 1, Became: events.BecameCompleted, Output: []byte(`1`)})
	k.start(0, "poll", events.Do, 1)
	k.add(time.Second, events.TimerWaiting, &events.CallRepeated{Step: "poll", Attempt: 1, Output: []byte(`1`)})
	k.start(time.Second, "poll", events.Do, 2)
	k.add(time.Second, "", &events.AttemptCompleted{Kind: events.Do, Step: "poll", Attempt: 2})
	k.start(0, "gift", events.Do, 1)
	broken := &events.Error{Code: "torn", Step: "gift"}
	k.add(time.Second, "", &events.AttemptRejected{Kind: events.Do, Step: "gift", Attempt: 1, Error: broken})
	k.add(0, "", &events.RunCaught{Step: "gift", Error: broken})
	k.add(0, "", &events.TaskProcessed{})

	k.begin("resubmitted")
	k.start(0, "poll", events.Do, 1)
	k.add(time.Second, "", &events.AttemptRejected{Kind: events.Do, Step: "poll", Attempt: 1, Error: broken})
	k.add(0, "", &events.TaskHeld{Error: broken})
	k.add(time.Hour, events.TimerTask, &events.TaskResumed{})
	k.start(0, "poll", events.Do, 2)
	k.add(2*time.Second, "", &events.AttemptCompleted{Kind: events.Do, Step: "poll", Attempt: 2})

	k.add(0, events.TimerStep, &events.WaitStarted{Step: "pause", Attempt: 1, Wait: time.Hour})
	k.start(0, "charge", events.Do, 1)
	k.add(0, events.TimerFailed, &events.AttemptExpired{Kind: events.Do, Step: "charge", Attempt: 1})
	k.begin("held")
	k.start(0, "gift", events.Do, 1)
	k.add(0, "", &events.AttemptRejected{Kind: events.Do, Step: "gift", Attempt: 1, Error: broken})
	k.add(0, "", &events.TaskHeld{Error: broken})

	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	apply(t, a.v, k.rs)
	a.v.Save()
	got, err := a.s.Steps([]int32{testPartition}, "kinds", 1)
	if err != nil {
		t.Fatal(err)
	}
	const at, failed, held = projections.AtRunning, projections.AtFailed, projections.AtHeld
	want := map[string]projections.StepStats{
		"pause":   {At: [projections.StepPlaces]int64{at: 1}, Do: projections.StepRun{Attempts: 2, Completed: 1}},
		"approve": {Do: projections.StepRun{Attempts: 1, Completed: 1}},
		"charge": {At: [projections.StepPlaces]int64{failed: 1}, Do: projections.StepRun{Attempts: 2, Failures: 2, Completed: 1},
			Check: projections.StepRun{Attempts: 1, Completed: 1}},
		"poll": {Do: projections.StepRun{Attempts: 4, Completed: 2, Errored: 1, Repeated: 1}},
		"gift": {At: [projections.StepPlaces]int64{held: 1}, Do: projections.StepRun{Attempts: 2, Errored: 2, Caught: 1}},
	}
	took := map[string][]time.Duration{"pause": {10 * time.Second}, "approve": {time.Minute}, "charge": {11 * time.Second}, "poll": {3 * time.Second, 2 * time.Second}}
	for step, w := range want {
		for _, d := range took[step] {
			w.DoTook.Add(d.Milliseconds())
		}
		if g := got.Steps[step]; g == nil || fmt.Sprintf("%+v", *g) != fmt.Sprintf("%+v", w) {
			t.Errorf("%s:\n got %+v\nwant %+v", step, g, w)
		}
	}
	if len(got.Steps) != len(want) || fmt.Sprint(got.Tasks) != "map[error:1 processed:1 processing:1]" {
		t.Errorf("%v, %v", got.Tasks, got.Steps)
	}
	a.v.Close()
	closeStore(t, a.s)
}
