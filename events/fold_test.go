package events

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// onePlan returns a plan of one step with an undo.
func onePlan() *Plan {
	a := Attempts{CompleteWithin: time.Second, MaxAttempts: 3, Backoff: 200 * time.Millisecond, Factor: 2}
	return NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "s0", Agent: "a", Operation: "o", Attempts: a,
		Undo: &PlanUndo{Agent: "a", Operation: "u", Attempts: a}}})
}

// after folds facts into a task of onePlan, one per second.
func after(t *testing.T, facts ...Fact) *Task {
	t.Helper()
	var task *Task
	for i, f := range append([]Fact{&TaskReceived{Workflow: "w", Version: 1, Plan: onePlan()}}, facts...) {
		var err error
		if task, err = Evolve(task, next(task, f), "h"); err != nil {
			t.Fatalf("fact %d: %v", i, err)
		}
	}
	return task
}

// next returns the next event of a task with a fact.
func next(task *Task, f Fact) *Event {
	e := &Event{Task: "t", Seq: 1, At: epochStart, Epoch: 1, Fact: f}
	if task != nil {
		e.Seq, e.Prev, e.At = task.Seq+1, task.Prev, epochStart.Add(time.Duration(task.Seq)*time.Second)
	}
	switch f.(type) {
	case *AttemptStarted:
		e.Due, e.Policy = e.At.Add(time.Second), &Policy{Timer: TimerAttempt}
	case *AttemptWaiting:
		e.Due, e.Policy = e.At.Add(time.Second), &Policy{Timer: TimerWaiting}
	}
	return e
}

// TestRefused checks that an event which can't be in a task's history is refused with a reason, and leaves the task
// unchanged.
func TestRefused(t *testing.T) {
	run := []Fact{&TaskStarted{}, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1}}
	ran := append(append([]Fact{}, run...), &AttemptFailed{Kind: Do, Step: "s0", Attempt: 1})
	held := append(append([]Fact{}, run...), &AttemptRejected{Kind: Do, Step: "s0", Attempt: 1}, &TaskHeld{})
	for _, tc := range []struct {
		name  string
		facts []Fact
		fact  Fact
		edit  func(*Event)
		want  string
	}{
		{"another task's event", run, &TaskHeld{}, func(e *Event) { e.Task = "other" }, `is not of task "t"`},
		{"a gap", run, &TaskHeld{}, func(e *Event) { e.Seq++ }, "seq 5 follows 3"},
		{"a broken chain", run, &TaskHeld{}, func(e *Event) { e.Prev = "x" }, "prev is"},
		{"received again", run, &TaskReceived{Plan: onePlan()}, nil, "received again"},
		{"a due that nobody is told how to treat", run, &AttemptFailed{Kind: Do, Step: "s0", Attempt: 1},
			func(e *Event) { e.Due = e.At }, "due and policy"},
		{"a failure of an attempt that isn't current", run, &AttemptFailed{Kind: Do, Step: "s0", Attempt: 2}, nil, "attempt 1 is current, not 2"},
		{"an attempt that leaves a number out", ran, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 3}, nil, "attempt 2 is next, not 3"},
		{"a failure before the request, numbered as the one before", ran, &AttemptFailed{Kind: Do, Step: "s0", Attempt: 1}, nil, "attempt 2 is next, not 1"},
		{"the failure of an undo while the step runs", run, &AttemptFailed{Kind: Undo, Step: "s0", Attempt: 1}, nil, "no"},
		{"a late reply to an undo never begun", run, &AttemptCompleted{Kind: Undo, Step: "s0", Attempt: 1}, nil, "no"},
		{"a step of a pending task", nil, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1}, nil, "task is pending"},
		{"a step started in a hold", held, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 2}, nil, "no"},
		{"an undo in a hold", held, &AttemptStarted{Kind: Undo, Step: "s0", Attempt: 1}, nil, "task is error"},
		{"a release outside a hold", ran, &RunReleased{Step: "s0", As: StepCompleted}, nil, "task is processing"},
		{"a release as nothing known", held, &RunReleased{Step: "s0", As: "lost"}, nil, `"lost"`},
		{"an undo that ends in nothing known", run, &TaskUndoing{Ending: "lost"}, nil, `"lost"`},
		{"a step the plan doesn't have", run, &RunSkipped{Step: "s9"}, nil, `no step "s9"`},
		{"processed while pending", nil, &TaskProcessed{Output: json.RawMessage("1")}, nil, "no"},
		{"a partition's event", run, &PartitionClaimed{Owner: "o"}, nil, "no rule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			task := after(t, tc.facts...)
			e := next(task, tc.fact)
			if tc.edit != nil {
				tc.edit(e)
			}
			before := string(task.Encode())
			_, err := Evolve(task, e, "h")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that says %q", err, tc.want)
			}
			if got := string(task.Encode()); got != before {
				t.Errorf("changed by a refused event\nfrom %s\nto   %s", before, got)
			}
		})
	}
}

// TestFirstEvent checks that a history begins with a submission and its plan.
func TestFirstEvent(t *testing.T) {
	for want, e := range map[string]*Event{
		"doesn't begin": next(nil, &TaskStarted{}),
		"prev":          {Task: "t", Seq: 1, Prev: "x", Fact: &TaskReceived{Plan: onePlan()}},
		"plan":          {Task: "t", Seq: 1, Fact: &TaskReceived{}},
	} {
		if task, err := Evolve(nil, e, "h"); err == nil || task != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want an error that says %q", task, err, want)
		}
	}
}

// TestHoldEndsUndo checks that a hold while undoing ends the wait of an undo, and that a resubmit continues the undo
// with a failure count of 0.
func TestHoldEndsUndo(t *testing.T) {
	facts := []Fact{&TaskStarted{}, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1}, &AttemptCompleted{Kind: Do, Step: "s0", Attempt: 1},
		&TaskUndoing{Ending: StateUndone}, &AttemptStarted{Kind: Undo, Step: "s0", Attempt: 1},
		&AttemptFailed{Kind: Undo, Step: "s0", Attempt: 1}, &AttemptWaiting{Kind: Undo, Step: "s0", Attempt: 1}, &TaskHeld{}}
	held := after(t, facts...)
	if u := held.Steps[0].Undo; u.State != StepPending || u.Timer.Armed() {
		t.Errorf("held: the undo is %s with timer %v", u.State, u.Timer)
	}
	on := after(t, append(facts, &TaskResumed{})...)
	if u := on.Steps[0].Undo; on.State != StateUndoing || on.Steps[0].State != StepUndoing || u.State != StepPending || u.FailureCount != 0 {
		t.Errorf("resumed: task %s, step %s, undo %s with %d failures", on.State, on.Steps[0].State, u.State, u.FailureCount)
	}
	facts = append(facts[:7:7], &RunErrored{Kind: Undo, Step: "s0"}, &TaskHeld{})
	done := after(t, append(facts, &RunReleased{Step: "s0", As: StepUndone})...)
	if u := done.Steps[0].Undo; done.Steps[0].State != StepUndone || u.State != StepCompleted {
		t.Errorf("released: step %s, undo %s", done.Steps[0].State, u.State)
	}
}

// TestEndDisarms checks that no timer is armed after a task's end, whatever was running.
func TestEndDisarms(t *testing.T) {
	task := after(t, &TaskStarted{}, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1}, &TaskHeld{}, &TaskCancelled{})
	if tm := task.Steps[0].Timer; tm.Armed() {
		t.Errorf("cancelled with timer %v armed", tm)
	}
}

// TestBytes checks that Task.Bytes counts all data from outside, including labels and errors with details. Otherwise a
// task could become too large for a snapshot.
func TestBytes(t *testing.T) {
	data := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	fault := &Error{Code: "c", Message: "mm", Details: data(100)}
	task := &Task{Input: data(1000), Output: data(2000), Labels: map[string]string{"k": "vv"}, Error: fault,
		Steps: []*Step{{Run: Run{Input: data(3000), Error: fault}, Output: data(4000), Undo: &Run{Input: data(5000), Error: fault}}}}
	if got, want := task.Bytes(), 15_000+3+3*103; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
