package events

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// endedTask is a task with the id order-7 that ended at an instant and may be forgotten an hour later.
func endedTask(at time.Time) (*Task, *Summary) {
	plan := samplePlan().WithDedupeFor(time.Hour)
	s := &Summary{}
	var t *Task
	for i, f := range []Fact{&TaskReceived{Workflow: "order", Version: 1, Plan: plan}, &TaskUndoing{Ending: StateUndone}, &TaskUndone{ForgetAt: at.Add(time.Hour)}} {
		e := &Event{Task: "order-7", Seq: uint64(i + 1), At: at, Fact: f}
		if t != nil {
			e.Prev = t.Prev
		}
		var err error
		if t, err = Evolve(t, e, "h"); err != nil {
			panic(err)
		}
		s.Evolve(e)
	}
	return t, s
}

// TestForgottenIDsBeginAgain checks that the first event of a task is folded as that of a new one from the ForgetAt of an
// earlier task with its id on, and refused before.
func TestForgottenIDsBeginAgain(t *testing.T) {
	end := instantOf(0)
	first := func(at time.Time) *Event {
		return &Event{Task: "order-7", Seq: 1, At: at, Fact: &TaskReceived{Workflow: "refund", Version: 2, Plan: samplePlan()}}
	}
	task, sum := endedTask(end)
	if task.ForgetAt != task.ForgetAtEnd(end) || task.ForgetAt != end.Add(time.Hour) || task.Finished().ForgetAt != task.ForgetAt {
		t.Errorf("forgotten at %s", task.ForgetAt)
	}
	if got := StoredForgetAt(task.Finished().Encode()); !got.Equal(task.ForgetAt) {
		t.Errorf("the stored form is forgotten at %s", got)
	}
	for _, of := range []*Task{task, task.Finished()} {
		if _, err := Evolve(of.Clone(), first(end.Add(time.Hour-1)), "h"); err == nil || !strings.Contains(err.Error(), "received again") {
			t.Errorf("received before it may be forgotten: %v", err)
		}
	}
	if early := *sum; true {
		if early.Evolve(first(end.Add(time.Hour - 1))); early.Stopped != 1 {
			t.Error("the summary accepts it before it may be forgotten")
		}
	}
	want, err := Evolve(nil, first(end.Add(time.Hour)), "h")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []*Task{task, task.Finished()} {
		if got, err := Evolve(of.Clone(), first(end.Add(time.Hour)), "h"); err != nil || !bytes.Equal(got.Encode(), want.Encode()) {
			t.Errorf("the new task is %s, %v", got.Encode(), err)
		}
	}
	sum.Evolve(first(end.Add(time.Hour)))
	if !bytes.Equal(sum.Encode(), want.Summary().Encode()) {
		t.Errorf("the new summary is %s", sum.Encode())
	}
	kept, _ := endedTask(end)
	kept.ForgetAt = time.Time{}
	if _, err := Evolve(kept, first(end.Add(1000*time.Hour)), "h"); err == nil {
		t.Error("an id that is never forgotten was used again")
	}
}

// TestStoredForgetAt checks that texts in a stored form aren't taken for its forget_at.
func TestStoredForgetAt(t *testing.T) {
	text := `","forget_at":"2026-01-01T00:00:00.000Z`
	f := &Task{ID: text, Workflow: text, State: StateProcessed, ReplyTo: text, Digest: text, Labels: map[string]string{"a": "b", "digest": "d", "forget_at": "2026-01-01T00:00:00.000Z"}, Output: []byte(`{"forget_at":"2026-01-01T00:00:00.000Z"}`)}
	if at := StoredForgetAt(f.Encode()); !at.IsZero() {
		t.Errorf("%s is forgotten at %s", f.Encode(), at)
	}
	f.ForgetAt = instantOf(3)
	if at := StoredForgetAt(f.Encode()); !at.Equal(f.ForgetAt) {
		t.Errorf("%s is forgotten at %s", f.Encode(), at)
	}
}

// TestPartitionForgets checks the fold of a partition: Forgot rises, and ForgetDue is never late.
func TestPartitionForgets(t *testing.T) {
	p := PartitionState{}
	fold := func(at int, f Fact) error {
		e := &Event{At: instantOf(at), Epoch: 1, Fact: f}
		if !OfPartition(f) {
			e.Task, e.Seq = "order-7", 3
		}
		return p.Evolve(e)
	}
	for i, c := range []struct {
		at        int
		fact      Fact
		fault     string
		due, done time.Time
	}{
		{1, &PartitionClaimed{}, "", time.Time{}, time.Time{}},
		{2, &TaskProcessed{ForgetAt: instantOf(12)}, "", instantOf(12), time.Time{}},
		{3, &TaskUndone{ForgetAt: instantOf(9)}, "", instantOf(9), time.Time{}},
		{4, &TaskCancelled{ForgetAt: instantOf(14)}, "", instantOf(9), time.Time{}},
		{5, &TaskCancelled{}, "", instantOf(9), time.Time{}},
		{10, &PartitionForgot{Until: instantOf(11)}, "after its instant", instantOf(9), time.Time{}},
		{10, &PartitionForgot{Until: instantOf(10), Next: instantOf(10)}, "that ids of", instantOf(9), time.Time{}},
		{10, &PartitionForgot{Until: instantOf(10), Next: instantOf(12)}, "", instantOf(12), instantOf(10)},
		{11, &PartitionForgot{Until: instantOf(10)}, "the event before until", instantOf(12), instantOf(10)},
		{20, &PartitionForgot{Until: instantOf(20)}, "", time.Time{}, instantOf(20)},
	} {
		err := fold(c.at, c.fact)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) || !p.ForgetDue.Equal(c.due) || !p.Forgot.Equal(c.done) {
			t.Errorf("%d: %v; due %s, forgotten until %s", i, err, p.ForgetDue, p.Forgot)
		}
	}
}
