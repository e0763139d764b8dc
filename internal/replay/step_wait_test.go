package replay_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

const waiting = `
workflow: order
version: 1
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve}
  settle: {needs: [reserve], wait: 1m}
  ship: {agent: parcels, operation: ship, needs: [settle]}
`

// settled returns an order that waited for a minute. Its supervisor was 2 s late.
func settled(t *testing.T) *history {
	h := recordOf(t, program(t, waiting))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.recover(63)
	h.reply(64, "ship", 1, events.Completed, `{}`)
	return h
}

// A waiting step has the reason waiting_timer, with the end of the wait. A supervisor that is late is named.
func TestWhyWaits(t *testing.T) {
	h := recordOf(t, program(t, waiting))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	since := &replay.Since{}
	for i := range h.records {
		since.Add(&h.records[i])
	}
	for _, tt := range []struct {
		after float64
		moves string
	}{
		{30, "the end of the wait"},
		{71, "a supervisor that asks for the end of the wait; it is 10s late: `waybill doctor` says whether one runs, and whether schedulers can write"},
	} {
		w := replay.Explain(h.task, since, "", nil, noon.Add(time.Duration(tt.after*float64(time.Second))))
		if w.Reason != replay.ReasonWaitingTimer || w.Step != "settle" || w.Moves != tt.moves ||
			*w.Since != "2026-01-31T12:00:01.000Z" || *w.Until != "2026-01-31T12:01:01.000Z" {
			t.Errorf("after %v s: %+v, since %s until %s", tt.after, w, *w.Since, *w.Until)
		}
		if agents := replay.AgentsAwaited(h.task, noon.Add(time.Duration(tt.after*float64(time.Second)))); len(agents) > 0 {
			t.Errorf("agents %q are awaited", agents)
		}
	}
}

// Under the same definition a wait ends when it ended in the log.
func TestForkOfAWait(t *testing.T) {
	h, same := settled(t), program(t, waiting)
	forksAsRecorded(t, h, same, replay.AssumeSilent)
}

// A step that is under way as a wait starts again if the new definition makes it a call, and the other way round.
func TestForkIntoAnotherKind(t *testing.T) {
	call := `
workflow: order
version: 2
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve}
  settle: {needs: [reserve], agent: bank, operation: settle}
  ship: {agent: parcels, operation: ship, needs: [settle]}
`
	h := recordOf(t, program(t, waiting))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	got := fork(t, h, replay.Fork{Program: program(t, call), Assume: replay.AssumeCompleted})
	if want := "step.started settle/1, step.completed settle/1?, step.started ship/1?, step.completed ship/1?, task.processed?"; recordedTiming(got) != want {
		t.Errorf("a wait as a call: %s (%s)", recordedTiming(got), got.Stalled)
	}
	h = recordOf(t, program(t, call))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	got = fork(t, h, replay.Fork{Program: program(t, waiting), Assume: replay.AssumeCompleted})
	if want := "wait.started settle/1, wait.completed settle/1, step.started ship/1, step.completed ship/1?, task.processed?"; recordedTiming(got) != want {
		t.Errorf("a call as a wait: %s (%s)", recordedTiming(got), got.Stalled)
	}
}
