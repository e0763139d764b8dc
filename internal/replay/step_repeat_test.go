package replay_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

const polling = `
workflow: order
version: 1
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  deliver: {agent: parcels, operation: track, repeat: {until: "${ output.done }", every: 1m, max: 3}}
`

// delivered returns an order whose parcel was delivered at the second call. Its supervisor was 2 s late.
func delivered(t *testing.T) *history {
	h := recordOf(t, program(t, polling))
	h.reply(1, "deliver", 1, events.Completed, `{"done":false}`)
	h.recover(63)
	h.reply(64, "deliver", 2, events.Completed, `{"done":true}`)
	return h
}

// A step between two calls has the reason waiting_repeat, with the time of the next call.
func TestWhyRepeats(t *testing.T) {
	h := recordOf(t, program(t, polling))
	h.reply(1, "deliver", 1, events.Completed, `{"done":false}`)
	since := &replay.Since{}
	for i := range h.records {
		since.Add(&h.records[i])
	}
	w := replay.Explain(h.task, since, "", nil, noon.Add(30*time.Second))
	if w.Reason != replay.ReasonWaitingCall || w.Step != "deliver" || w.Moves != "the end of the wait: then call 2 of at most 3" ||
		*w.Since != "2026-01-31T12:00:01.000Z" || *w.Until != "2026-01-31T12:01:01.000Z" {
		t.Errorf("%+v, since %s until %s", w, *w.Since, *w.Until)
	}
}

// Under the same definition each call begins and ends as in the log.
func TestForkOfARepeat(t *testing.T) {
	h, same := delivered(t), program(t, polling)
	forksAsRecorded(t, h, same, replay.AssumeSilent)
}

// Under another condition the recorded outputs count, and calls beyond them are assumed.
func TestForkOfARepeatWithAnotherCondition(t *testing.T) {
	other := func(until string) string {
		return `
workflow: order
version: 2
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  deliver: {agent: parcels, operation: track` + until + `}
`
	}
	for until, want := range map[string]string{
		"": "step.completed deliver/1, task.processed",
		`, repeat: {until: "${ has(output.done) }", every: 2m, max: 3}`: "step.completed deliver/1, task.processed",
		`, repeat: {until: "${ output.more }", every: 2m, max: 3}`:      "step.repeated deliver/1, step.errored deliver, task.undoing, task.undone",
		`, repeat: {until: "${ has(output.more) }", every: 2m, max: 3}`: "step.repeated deliver/1, step.started deliver/2, step.repeated deliver/2, step.started deliver/3, " +
			"step.repeated deliver/3?, step.errored deliver?, task.undoing?, task.undone?",
	} {
		h := delivered(t)
		got := fork(t, h, replay.Fork{Program: program(t, other(until)), At: 3, Assume: replay.AssumeCompleted})
		if recordedTiming(got) != want {
			t.Errorf("%q: %s (%s)", until, recordedTiming(got), got.Stalled)
		}
	}
}
