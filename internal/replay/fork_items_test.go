package replay_test

import (
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// moreItems has the list of the recorded task twice.
const moreItems = `workflow: kinds
version: 2
complete_within: 1h
defaults: {complete_within: 5s}
steps:
  each:
    for_each: "${ input.items + input.items }"
    agent: inventory
    operation: reserve
    undo: {operation: release}
output: "${ steps.each.output }"
`

// Items that the log doesn't have end as is assumed, beside those that it has. Those that nobody answers keep the task open.
func TestForkWithMoreItems(t *testing.T) {
	records := byTask(recorded(t))["kinds-0"]
	for assume, want := range map[replay.Assume]struct {
		state   events.TaskState
		assumed int
	}{
		replay.AssumeCompleted: {events.StateProcessed, 1},
		replay.AssumeRejected:  {events.StateUndone, 2}, // its end, and the undo of the other
		replay.AssumeFailed:    {events.StateUndone, 2},
		replay.AssumeSilent:    {events.StateUndone, 2}, // at its complete-by; the undos of both
	} {
		got, err := replay.Fork{Program: program(t, moreItems), At: 1, Assume: assume}.Run(records)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != want.state || got.Assumed != want.assumed {
			t.Errorf("%s: %s, %d assumed, stalled %q: %s", assume, got.State, got.Assumed, got.Stalled, recordedTiming(got))
		}
	}
}

// The task of an item runs one step of its definition. One that has no such step is refused.
func TestForkOfAnItem(t *testing.T) {
	records := byTask(recorded(t))["kinds-0/each/0"]
	got, err := replay.Fork{Program: program(t, moreItems), At: 1, Assume: replay.AssumeSilent}.Run(records)
	if err != nil || got.State != events.StateProcessed || got.Assumed != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	const other = "workflow: kinds\nversion: 2\ncomplete_within: 1h\nsteps: {each: {wait: 1s}}\n"
	if _, err := (replay.Fork{Program: program(t, other), At: 1}).Run(records); err == nil {
		t.Error("a definition without the item's step was taken")
	}
}
