package main

import (
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestIDText: a table shows an id in full if it fits. Otherwise it shortens the id so that different ends stay
// different.
func TestIDText(t *testing.T) {
	whole := strings.Repeat("é", idTextMax)
	if got := idText(whole); got != whole {
		t.Errorf("%q is shown as %q", whole, got)
	}
	long := strings.Repeat("x", 250)
	one, other := idText(long+"-1"), idText(long+"-2")
	if one == other || len([]rune(one)) != idTextMax || !strings.HasPrefix(one, "xxx") || !strings.HasSuffix(one, "x-1") {
		t.Errorf("%q and %q", one, other)
	}
}

// TestStepStateText: a step in error is held only while its task is.
func TestStepStateText(t *testing.T) {
	for _, of := range []struct {
		task events.TaskState
		step events.StepState
		want string
	}{{events.StateError, events.StepError, "held"}, {events.StateUndoing, events.StepError, "in error"}, {events.StateCancelled, events.StepError, "in error"}, {events.StateUndone, events.StepUndone, "undone"}} {
		if got := stepStateText(of.task, of.step); got != of.want {
			t.Errorf("a step in state %s of a task that is %s is shown as %s, want %s", of.step, of.task, got, of.want)
		}
	}
}
