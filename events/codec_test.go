package events

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// TestEncodingOnlyReads checks that several goroutines may encode the same value. The race detector finds violations.
func TestEncodingOnlyReads(t *testing.T) {
	plan := NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "a", Agent: "x", Operation: "o", Undo: &PlanUndo{Agent: "x", Operation: "u"}}})
	task := &Task{ID: "t", State: StateUndoing, Ending: StateUndone, Plan: plan, Timer: Timer{Seq: 3, Due: time.Unix(1, 0)},
		Steps: []*Step{{Run: Run{State: StepRunning, Attempt: 1}, Undo: &Run{State: StepRunning, Attempt: 2}}}}
	e := &Event{Task: "t", Seq: 2, At: time.Unix(1, 0), Due: time.Unix(2, 0), Policy: &Policy{Timer: TimerTask, OnError: OnErrorUndo, FailureCount: 1},
		Fact: &TaskUndoing{Ending: StateUndone, Error: &Error{Code: "c"}}}
	timers := &Timers{Task: "t", Armed: []Armed{{Slot: Slot{"a", Do}, Timer: task.Timer, Attempt: 1, Policy: *e.Policy}}}
	want := [][]byte{task.Encode(), e.Value(), timers.Encode(), encodeObject(plan)}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, got := range [][]byte{task.Encode(), e.Value(), timers.Encode(), encodeObject(plan)} {
				if !bytes.Equal(got, want[i]) {
					t.Errorf("%s; want %s", got, want[i])
				}
			}
		})
	}
	wg.Wait()
}
