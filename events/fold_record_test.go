package events

import (
	"errors"
	"strings"
	"testing"
)

// TestFoldRecord checks that a record which is unreadable, or isn't the task's next, leaves the task unchanged. The
// error has the record's position. An event of a partition leaves the task unchanged without an error.
func TestFoldRecord(t *testing.T) {
	first := next(nil, &TaskReceived{Workflow: "order", Version: 1, Input: []byte(`{}`), Plan: onePlan()})
	r := first.Record(sampleNS, "s", 3, first.Value())
	task, e, err := FoldRecord(nil, &r)
	if err != nil || e == nil || task.State != StatePending {
		t.Fatalf("the first event makes %+v of %+v: %v", task, e, err)
	}
	claim := &Event{Seq: 1, Epoch: 1, At: epochStart, Cause: Cause{Tasks, 3, 1}, Fact: &PartitionClaimed{Owner: "s"}}
	claimed := claim.Record(sampleNS, "s", 3, claim.Value())
	if same, e, err := FoldRecord(task, &claimed); err != nil || same != task || e == nil {
		t.Errorf("a claim makes %+v of the task: %v", same, err)
	}
	unknown := r
	unknown.Headers = CloudHeaders("waybill.step.dreamt.v1", "s", TaskEventID(first.Task, 2))
	for what, r := range map[string]Record{"again": r, "of an unknown type": unknown} {
		before := string(task.Encode())
		same, _, err := FoldRecord(task, &r)
		var u *Unreadable
		if !errors.As(err, &u) || same != task || string(task.Encode()) != before || !strings.HasPrefix(err.Error(), Origin(&r)+": ") {
			t.Errorf("an event %s: %v; the task is %s, before %s", what, err, same.Encode(), before)
		}
		if errors.Is(err, ErrUnknownType) != (what != "again") {
			t.Errorf("an event %s: %v", what, err)
		}
	}
}
