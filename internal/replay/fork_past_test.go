package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
)

// sameFromEach forks a task under its own definition, from the event first and from each later one. Each fork must have
// the recorded events. If timed is set, the timestamps must be equal too.
func sameFromEach(t *testing.T, h *history, yaml string, first uint64, timed bool) {
	t.Helper()
	p := program(t, yaml)
	for at := first; at <= h.task.Seq; at++ {
		got := fork(t, h, replay.Fork{Program: p, At: at, Assume: replay.AssumeSilent})
		if len(got.LeftOut) > 0 {
			t.Errorf("from event %d on: without the commands of events %d; none came", at, got.LeftOut)
		}
		if got.State != h.task.State || got.Assumed != 0 || len(got.Forked) != len(got.Recorded) {
			t.Errorf("from event %d on: %s, %d assumed: %s; it had ended %s after %d more events", at, got.State, got.Assumed, recordedTiming(got), h.task.State, len(got.Recorded))
			continue
		}
		for i := range got.Forked {
			if a, b := got.Forked[i].Line, got.Recorded[i]; a.Type != b.Type || a.Step != b.Step || a.Attempt != b.Attempt || timed && a.At != b.At {
				t.Errorf("from event %d on: %s of %s at %s, want %s of %s at %s", at, a.Type, a.Step, a.At, b.Type, b.Step, b.At)
			}
		}
	}
}

// A reply was written within its attempt's time, and an unavailable scheduler processed it late. It counts in a fork
// too.
func TestForkOfWhatWasDecidedLate(t *testing.T) {
	yaml := fmt.Sprintf(order, 1, 1, "")
	h := recordOf(t, program(t, yaml))
	h.reply(45, "reserve", 1, events.Completed, `{"shelf":7}`) // the attempt had 10 s
	h.reply(46, "charge", 1, events.Completed, `{}`)
	h.reply(80, "ship", 1, events.Completed, `{}`)
	if h.task.State != events.StateProcessed {
		t.Fatalf("the task is %s", h.task.State)
	}
	sameFromEach(t, h, yaml, 1, false)
}

// If an agent's topic didn't exist, no request was sent. The failure isn't a reply: an attempt at another agent doesn't
// use it, and an attempt at the same agent fails as before.
func TestForkOfWhatWasNotSent(t *testing.T) {
	yaml := fmt.Sprintf(order, 1, 3, "")
	h := recordOf(t, program(t, yaml))
	delete(h.env.Requests, "bank")
	h.reply(1, "reserve", 1, events.Completed, `{"shelf":7}`)
	h.recover(1)
	h.env.Requests["bank"] = 1
	h.recover(3)
	h.reply(4, "charge", 2, events.Completed, `{}`)
	h.reply(5, "ship", 1, events.Completed, `{}`)
	if h.task.State != events.StateProcessed {
		t.Fatalf("the task is %s", h.task.State)
	}
	sameFromEach(t, h, yaml, 1, false)

	other := program(t, strings.Replace(yaml, "agent: bank", "agent: mail", 1))
	got := fork(t, h, replay.Fork{Program: other, At: 1, Assume: replay.AssumeCompleted})
	want := "task.started, step.started reserve/1, step.completed reserve/1, step.started charge/1, step.completed charge/1?, " +
		"step.started ship/1?, step.completed ship/1, task.processed"
	if recordedTiming(got) != want || got.Assumed != 1 {
		t.Errorf("%s, %d assumed\nwant %s", recordedTiming(got), got.Assumed, want)
	}
}

// Under another definition a task's deadline counts from the same instant as before: from its start, or from its
// resubmission.
func TestForkOfAResubmittedTask(t *testing.T) {
	held := strings.Replace(order, "on_error: undo", "on_error: hold", 1)
	yaml := fmt.Sprintf(held, 1, 1, "")
	h := recordOf(t, program(t, yaml))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.reply(2, "charge", 1, events.Rejected, `{"code":"declined"}`)
	if h.task.State != events.StateError {
		t.Fatalf("the task is %s", h.task.State)
	}
	h.input(7200, &events.Control{Task: "o-1", Command: events.Resubmit, By: events.By{Who: "me", RequestID: "r-1"}})
	resumed := h.task.Seq
	h.reply(7201, "charge", 2, events.Completed, `{}`)
	h.reply(7202, "ship", 1, events.Completed, `{}`)
	longer := program(t, strings.Replace(yaml, "complete_within: 10m", "complete_within: 20m", 1))
	got := fork(t, h, replay.Fork{Program: longer, At: resumed, Assume: replay.AssumeSilent})
	if got.State != events.StateProcessed || got.Assumed != 0 {
		t.Errorf("%s, %d assumed: %s; want it processed, as it was", got.State, got.Assumed, recordedTiming(got))
	}
	if by, want := *got.View.CompleteBy, noon.Add(7200*time.Second+20*time.Minute).Format(events.TimeLayout); by != want {
		t.Errorf("to be complete by %s, want %s", by, want)
	}
}

// A definition with a longer deadline doesn't extend the deadline of the submission.
func TestForkKeepsTheSubmissionsTime(t *testing.T) {
	yaml := fmt.Sprintf(order, 1, 1, "")
	h := recordUntil(t, program(t, yaml), noon.Add(time.Minute))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	for within, want := range map[string]time.Duration{"20m": time.Minute, "30s": 30 * time.Second} {
		other := program(t, strings.Replace(yaml, "complete_within: 10m", "complete_within: "+within, 1))
		got := fork(t, h, replay.Fork{Program: other, Assume: replay.AssumeCompleted})
		if by := *got.View.CompleteBy; got.State != events.StateProcessed || by != noon.Add(want).Format(events.TimeLayout) {
			t.Errorf("%s: %s, to be complete by %s, want %s after noon", within, got.State, by, want)
		}
	}
}

// A busy scheduler may decide two replies at the same instant. They keep their order in a fork, because the order of
// undos depends on it.
func TestForkOfAnswersOfOneInstant(t *testing.T) {
	yaml := strings.Replace(fmt.Sprintf(order, 1, 1, ""), "needs: [reserve], ", "", 1)
	for _, steps := range [][]string{{"charge", "reserve"}, {"reserve", "charge"}} {
		h := recordOf(t, program(t, yaml))
		h.reply(1, steps[0], 1, events.Completed, `{}`)
		h.reply(1, steps[1], 1, events.Completed, `{}`)
		h.reply(2, "ship", 1, events.Completed, `{}`)
		sameFromEach(t, h, yaml, 1, true)
	}
}

// A reply that isn't used isn't counted among the assumed ones.
func TestForkCountsWhatItUsed(t *testing.T) {
	held := strings.Replace(strings.Replace(order, "on_error: undo", "on_error: hold", 1), "needs: [reserve], ", "", 1)
	yaml := fmt.Sprintf(held, 1, 1, "")
	h := recordOf(t, program(t, yaml))
	h.reply(1, "charge", 1, events.Rejected, `{"code":"declined"}`)
	if h.task.State != events.StateError {
		t.Fatalf("the task is %s", h.task.State)
	}
	if got := fork(t, h, replay.Fork{Program: program(t, yaml), At: 1, Assume: replay.AssumeSilent}); got.Assumed != 0 {
		t.Errorf("%d assumed: %s", got.Assumed, recordedTiming(got))
	}
}

// full is an implementation of scheduler.Slots with a fixed number of free slots.
type full int

func (f full) Free(string, string, time.Time) int      { return int(f) }
func (full) Waits(*events.Task, int, events.Kind) bool { return false }

// start starts an attempt that waited for its agent.
func (h *history) start(seconds float64, step int, k events.Kind) {
	h.t.Helper()
	h.env.Now = noon.Add(time.Duration(seconds * float64(time.Second)))
	d := scheduler.Start(h.task.Clone(), step, k, events.Cause{Inbox: events.Replies, Offset: h.offset}, &h.env)
	if len(d.Events) == 0 {
		h.t.Fatalf("no start of step %d", step)
	}
	h.took(d)
}

// A step that waited for its agent waits in a fork too. Otherwise a plan under the same definition would differ after
// each burst.
func TestForkOfWhatWaitedForItsAgent(t *testing.T) {
	const yaml = `
workflow: order
version: 1
on_error: undo
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1s}}
steps:
  a: {agent: stock, operation: do, undo: {operation: un}}
  b: {agent: stock, operation: do, undo: {operation: un}}
  c: {agent: stock, operation: do, when: "${ false }"}
  d: {agent: bank, operation: do, needs: [a], undo: {operation: un}}
`
	h := emptyHistory(t, program(t, yaml))
	h.env.Slots = full(-9) // other tasks wait
	h.input(0, &events.Submission{ID: "o-1", Workflow: "order", Input: []byte("{}")})
	h.start(2, 1, events.Do) // the other one starts first, because it waited longer
	h.reply(3, "b", 1, events.Completed, `1`)
	h.start(3, 0, events.Do)
	h.reply(4, "a", 1, events.Failed, `{"code":"busy"}`)
	h.recover(4)
	h.start(9, 0, events.Do)
	h.env.Slots = full(1)
	h.reply(10, "a", 2, events.Completed, `2`)
	h.reply(11, "d", 1, events.Completed, `3`)
	if h.task.State != events.StateProcessed {
		t.Fatalf("the task is %s", h.task.State)
	}
	sameFromEach(t, h, yaml, 1, true)

	quick := strings.Replace(yaml, "a: {agent: stock", "a: {agent: mail", 1)
	got := fork(t, h, replay.Fork{Program: program(t, quick), At: 1, Assume: replay.AssumeCompleted})
	if want := "task.started, step.started a/1"; !strings.HasPrefix(recordedTiming(got), want) || got.Stalled != "" {
		t.Errorf("by another agent: %s, %s", recordedTiming(got), got.Stalled)
	}
}

// A reply to an attempt that ran when its task was held is processed after the hold began.
func TestForkOfAnswersInAHold(t *testing.T) {
	const yaml = `
workflow: order
version: 1
on_error: hold
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  a: {agent: stock, operation: do}
  b: {agent: bank, operation: do}
  c: {agent: mail, operation: do}
`
	h := recordOf(t, program(t, yaml))
	h.reply(1, "a", 1, events.Failed, `{"code":"no"}`)
	h.recover(1)
	if h.task.State != events.StateError {
		t.Fatalf("the task is %s", h.task.State)
	}
	h.reply(2, "b", 1, events.Completed, `1`)
	h.recover(10) // of c
	sameFromEach(t, h, yaml, 1, true)
}

// After an attempt timed out, nothing is recorded. The outcome in the additional time that another definition gives is
// assumed.
func TestForkPastASilence(t *testing.T) {
	yaml := fmt.Sprintf(order, 1, 1, "")
	h := recordOf(t, program(t, yaml))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.recover(11) // of the charge
	if h.task.State != events.StateUndoing {
		t.Fatalf("the task is %s", h.task.State)
	}
	longer := program(t, strings.Replace(yaml, "complete_within: 10s", "complete_within: 30s", 1))
	for assume, want := range map[replay.Assume]string{
		replay.AssumeCompleted: "task.started, step.started reserve/1, step.completed reserve/1, step.started charge/1, step.completed charge/1?, ",
		replay.AssumeSilent:    "task.started, step.started reserve/1, step.completed reserve/1, step.started charge/1, step.expired charge/1?, ",
	} {
		got := fork(t, h, replay.Fork{Program: longer, At: 1, Assume: assume})
		if !strings.HasPrefix(recordedTiming(got), want) {
			t.Errorf("%s: %s\nwant %s...", assume, recordedTiming(got), want)
			continue
		}
		after := noon.Add(11 * time.Second) // not before the end of the recorded silence
		if assume == replay.AssumeSilent {
			after = noon.Add(31 * time.Second)
		}
		if at := got.Forked[4].At; at != after.Format(events.TimeLayout) {
			t.Errorf("%s: at %s, want %s", assume, at, after)
		}
	}
	shorter := program(t, strings.Replace(yaml, "complete_within: 10s", "complete_within: 5s", 1))
	got := fork(t, h, replay.Fork{Program: shorter, At: 1, Assume: replay.AssumeCompleted})
	if want := "step.started charge/1, step.expired charge/1, "; !strings.Contains(recordedTiming(got), want) {
		t.Errorf("%s\nwant %s", recordedTiming(got), want)
	}
}

// The reply of one agent isn't used for another agent, nor for another operation.
func TestForkWithAnotherAgent(t *testing.T) {
	h := failed(t)
	yaml := fmt.Sprintf(order, 1, 1, "")
	for what, other := range map[string]string{
		"agent":     strings.Replace(yaml, "agent: bank", "agent: mail", 1),
		"operation": strings.Replace(yaml, "operation: charge", "operation: pay", 1),
	} {
		got := fork(t, h, replay.Fork{Program: program(t, other), At: 1, Assume: replay.AssumeCompleted})
		if want := "step.completed reserve/1, step.started charge/1, step.completed charge/1?, "; got.State != events.StateProcessed || !strings.Contains(recordedTiming(got), want) {
			t.Errorf("another %s: %s: %s\nwant %s", what, got.State, recordedTiming(got), want)
		}
	}
}

// A fork names the commands that it leaves out. Without them a task may take another course under its own definition.
func TestForkSaysWhatItLeavesOut(t *testing.T) {
	held := strings.Replace(order, "on_error: undo", "on_error: hold", 1)
	yaml := fmt.Sprintf(held, 1, 1, "")
	h := recordOf(t, program(t, yaml))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.reply(2, "charge", 1, events.Rejected, `{"code":"declined"}`)
	at := h.task.Seq
	h.input(7200, &events.Control{Task: "o-1", Command: events.Resubmit, By: events.By{Who: "me", RequestID: "r-1"}})
	h.reply(7201, "charge", 2, events.Completed, `{}`)
	h.reply(7202, "ship", 1, events.Completed, `{}`)
	got := fork(t, h, replay.Fork{Program: program(t, yaml), At: 1, Assume: replay.AssumeSilent})
	if got.State != events.StateError || len(got.LeftOut) != 1 || got.LeftOut[0] != at+1 {
		t.Errorf("%s, left out %d; want it held, and %d", got.State, got.LeftOut, at+1)
	}
	look, err := (&replay.Plan{Program: program(t, yaml), Assume: replay.AssumeSilent}).Evaluate(h.records)
	if err != nil || look.Commands != 1 || !look.Changed {
		t.Errorf("%+v, %v; want one command left out", look, err)
	}
}
