package replay_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

const approving = `
workflow: order
version: 1
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve}
  approve: {needs: [reserve], signal: approved, complete_within: 5m}
  again: {needs: [reserve], signal: approved, complete_within: 5m}
  ship: {agent: parcels, operation: ship, needs: [approve, again]}
`

// approved returns an order that received one signal early and one while a step waited.
func approved(t *testing.T) *history {
	h := recordOf(t, program(t, approving))
	h.input(0.5, &events.Signal{Task: "o-1", Name: "approved", ID: "1", By: "alice"})
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	h.input(60, &events.Signal{Task: "o-1", Name: "approved", ID: "2", By: "bob", Data: []byte(`{"yes":true}`)})
	h.reply(64, "ship", 1, events.Completed, `{}`)
	return h
}

// A step that waits for a signal has the reason waiting_signal, with the signal's name and the end of its time.
func TestWhyWaitsForSignal(t *testing.T) {
	h := recordOf(t, program(t, approving))
	h.reply(1, "reserve", 1, events.Completed, `{}`)
	for after, moves := range map[time.Duration]string{
		time.Minute:     "the signal approved",
		6 * time.Minute: "a supervisor that asks for the end of its time; it is 59s late: `waybill doctor` says whether one runs, and whether schedulers can write",
	} {
		w := replay.Explain(h.task, nil, "", nil, noon.Add(after))
		if w.Reason != replay.ReasonWaitingSignal || w.Step != "approve" || w.Moves != moves || *w.Until != "2026-01-31T12:05:01.000Z" {
			t.Errorf("after %s: %+v, until %s", after, w, *w.Until)
		}
	}
}

// A fork under the same definition takes the recorded signals when they came.
func TestForkOfSignals(t *testing.T) {
	h, same := approved(t), program(t, approving)
	for seq := uint64(1); seq <= h.task.Seq; seq++ {
		got := fork(t, h, replay.Fork{Program: same, At: seq, Assume: replay.AssumeSilent})
		if got.State != h.task.State || got.Assumed != 0 || len(got.Forked) != len(got.Recorded) {
			t.Errorf("from event %d on: %s, %s, %d assumed, %s", seq, got.State, recordedTiming(got), got.Assumed, got.Stalled)
			continue
		}
		for i := range got.Forked {
			if a, b := got.Forked[i].Line, got.Recorded[i]; a.Type != b.Type || a.At != b.At {
				t.Errorf("from event %d on: %+v, want %+v", seq, a, b)
			}
		}
	}
}
