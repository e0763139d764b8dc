package events

import (
	"errors"
	"strings"
	"testing"
)

// TestFoldStopsAtUnreadable checks that a record which is unreadable, or isn't the task's next, leaves the task
// unchanged, and that nothing is folded after it. The error has the record's position. An event of a partition leaves
// the task unchanged without an error.
func TestFoldStopsAtUnreadable(t *testing.T) {
	first := next(nil, &TaskReceived{Workflow: "order", Version: 1, Input: []byte(`{}`), Plan: onePlan()})
	r := first.Record(sampleNS, "s", 3, first.Value())
	var f Fold
	e, err := f.Add(&r)
	task := f.Task
	if err != nil || e == nil || task.State != StatePending || f.Next != r.Offset+1 {
		t.Fatalf("the first event makes %+v of %+v: %v", task, e, err)
	}
	claim := &Event{Seq: 1, Epoch: 1, At: epochStart, Cause: Cause{Tasks, 3, 1}, Fact: &PartitionClaimed{Owner: "s"}}
	claimed := claim.Record(sampleNS, "s", 3, claim.Value())
	if e, err := f.Add(&claimed); err != nil || f.Task != task || e == nil {
		t.Errorf("a claim makes %+v of the task: %v", f.Task, err)
	}
	unknown := r
	unknown.Headers = CloudHeaders("waybill.step.dreamt.v1", "s", TaskEventID(first.Task, 2))
	for what, r := range map[string]Record{"again": r, "of an unknown type": unknown} {
		before := string(task.Encode())
		f := f
		_, err := f.Add(&r)
		var u *Unreadable
		if !errors.As(err, &u) || f.Task != task || string(task.Encode()) != before || !strings.HasPrefix(err.Error(), Origin(&r)+": ") {
			t.Errorf("an event %s: %v; the task is %s, before %s", what, err, f.Task.Encode(), before)
		}
		if _, again := f.Add(&claimed); !errors.Is(again, err) || !errors.Is(f.Apply(e, &claimed), err) {
			t.Errorf("an event after an event %s: %v, want %v", what, again, err)
		}
		if errors.Is(err, ErrUnknownType) != (what != "again") {
			t.Errorf("an event %s: %v", what, err)
		}
	}
}
