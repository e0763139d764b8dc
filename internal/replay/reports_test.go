package replay_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

const beating = `
workflow: order
version: 1
complete_within: 2h
defaults: {complete_within: 10s, retry: {max_attempts: 3, backoff: 1s, factor: 1}}
steps:
  reserve: {agent: stock, operation: reserve}
  charge: {agent: bank, operation: charge, needs: [reserve], complete_within: 1h, heartbeat: 30s}
`

// quietBefore does the same without a heartbeat, impatient with a shorter one.
const (
	quietBefore = `
workflow: order
version: 2
complete_within: 2h
defaults: {complete_within: 10s, retry: {max_attempts: 3, backoff: 1s, factor: 1}}
steps:
  reserve: {agent: stock, operation: reserve}
  charge: {agent: bank, operation: charge, needs: [reserve], complete_within: 1h}
`
	impatient = `
workflow: order
version: 3
complete_within: 2h
defaults: {complete_within: 10s, retry: {max_attempts: 3, backoff: 1s, factor: 1}}
steps:
  reserve: {agent: stock, operation: reserve}
  charge: {agent: bank, operation: charge, needs: [reserve], complete_within: 1h, heartbeat: 20s}
`
)

// longCharge returns an order whose charge reported progress, fell silent, and completed in its second attempt.
func longCharge(t *testing.T) *history {
	h := recordOf(t, program(t, beating))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.reply(25, "charge", 1, events.Progress, `{"at":1}`)
	h.reply(50, "charge", 1, events.Progress, `{"at":2}`)
	h.recover(82) // 2 s late
	if h.task.Steps[1].State == events.StepWaiting {
		h.recover(83)
	}
	h.reply(100, "charge", 2, events.Progress, `null`)
	h.reply(112, "charge", 2, events.Progress, `{"at":3}`)
	h.reply(130, "charge", 2, events.Completed, `{"charged":5}`)
	return h
}

// Under the same definition an attempt reports, falls silent and expires as it did in the log, from wherever it is
// forked.
func TestForkOfProgress(t *testing.T) {
	h, same := longCharge(t), program(t, beating)
	if h.task.State != events.StateProcessed {
		t.Fatalf("the task is %s", h.task.State)
	}
	forksAsRecorded(t, h, same, replay.AssumeFailed)
}

// Without the heartbeat the silent attempt goes on, and what it would answer isn't recorded. With a shorter one it
// expires before its second report.
func TestForkWithAnotherHeartbeat(t *testing.T) {
	h := longCharge(t)
	got := fork(t, h, replay.Fork{Program: program(t, quietBefore), At: 1, Assume: replay.AssumeCompleted})
	if want := "task.started, step.started reserve/1, step.completed reserve/1, step.started charge/1, step.progressed charge/1, step.progressed charge/1, step.completed charge/1?, task.processed?"; recordedTiming(got) != want {
		t.Errorf("without a heartbeat: %s", recordedTiming(got))
	}
	got = fork(t, h, replay.Fork{Program: program(t, impatient), At: 1, Assume: replay.AssumeCompleted})
	if want := "task.started, step.started reserve/1, step.completed reserve/1, step.started charge/1, step.expired charge/1, step.waiting charge/1, step.started charge/2, step.progressed charge/2, " +
		"step.progressed charge/2, step.completed charge/2, task.processed"; recordedTiming(got) != want {
		t.Errorf("with a shorter heartbeat: %s", recordedTiming(got))
	}
}

// What a long call waits for names its last progress.
func TestWhyShowsProgress(t *testing.T) {
	h := recordOf(t, program(t, beating))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.reply(25, "charge", 1, events.Progress, `{"at":1}`)
	w := replay.Explain(h.task, nil, "", nil, noon.Add(30*time.Second))
	want := `the agent's reply or next progress, or the end of its heartbeat; its last progress came at 2026-01-31T12:00:25.000Z: {"at":1}`
	if w.Reason != replay.ReasonAtWork || w.Moves != want || *w.Until != "2026-01-31T12:00:55.000Z" {
		t.Errorf("%+v until %s", w, *w.Until)
	}
}
