//go:build synctests

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

// flows is the number of workflows of a seed.
const flows = 4

func flowName(number int) string { return fmt.Sprintf("flow%d", number) }

// childStep makes a step run a child of a workflow with a higher number, so that the tree ends. Some children have the
// id of another task.
func childStep(more *rand.Rand, s *workflow.Step, number int) workflow.Step {
	c := workflow.Step{ID: s.ID, Needs: s.Needs, When: s.When, Workflow: flowName(number + 1 + more.IntN(flows-number-1)),
		Input: map[string]any{"n": "${ input.n }"}}
	if more.IntN(3) == 0 {
		c.CompleteWithin = workflow.Within(time.Duration(1+more.IntN(8)) * time.Second)
	}
	switch more.IntN(8) {
	case 0:
		c.ChildID = fmt.Sprintf("task-%d", more.IntN(40)) // may be taken by a submission, before or after
	case 1:
		c.ChildID = "child-${ task.id }"
	}
	return c
}

// itemsOf makes a call, or a step with a child, run for each item of a list. How long the list is depends on the input.
func itemsOf(lists *rand.Rand, s *workflow.Step) {
	call := s.StepKind() == events.CallStep
	if !call && s.StepKind() != events.WorkflowStep || lists.IntN(3) > 0 {
		return
	}
	s.ForEach, s.MaxParallel = "${ [0, 1, 2, 3, 4].filter(i, i < input.n) }", 1+lists.IntN(3)
	s.OnItemError = []string{"", workflow.OnItemErrorFail, workflow.OnItemErrorCollect}[lists.IntN(3)]
	s.Input = map[string]any{"n": "${ item }"}
	switch {
	case !call: // each of them may have items itself
		s.ForEach, s.ChildID = "${ [0, 1].filter(i, i < input.n) }", ""
		if lists.IntN(4) == 0 {
			s.ChildID = "item-${ index }-of-${ task.id }"
		}
	case s.Undo != nil && lists.IntN(2) == 0:
		s.Undo.Input = map[string]any{"of": "${ output }", "item": "${ item }", "index": "${ index }"}
	case s.Undo != nil:
		s.Undo.Input = nil
	}
}

// relative returns the id of a task, or that of a child or an item that it may have.
func relative(lists *rand.Rand, id string) string {
	for range 2 {
		switch lists.IntN(6) {
		case 0:
			id += fmt.Sprintf("/s%d", lists.IntN(4))
		case 1:
			id = events.ItemTaskID(id, fmt.Sprintf("s%d", lists.IntN(4)), lists.IntN(3))
		}
	}
	return id
}

// waitsForHeld reports whether the undo of a task waits for a child whose undo is held.
func waitsForHeld(log *verify.Log, t *events.Task) bool {
	held := func(id string) bool {
		c := log.Task(id)
		return c != nil && (c.State == events.StateError || waitsForHeld(log, c))
	}
	for i, s := range t.Steps {
		if t.State != events.StateUndoing || s.Undo == nil || s.Undo.State != events.StepRunning {
			continue
		}
		if t.Plan.Steps[i].StepKind == events.WorkflowStep && held(s.KindState().Child) {
			return true
		}
		if s.Items == nil {
			continue
		}
		for n := range s.Items.Count {
			if s.Items.Item(n).State == events.StepUndoing && (held(events.ItemTaskIDOf(t, i, n)) || held(fmt.Sprintf("item-%d-of-%s", n, t.ID))) {
				return true
			}
		}
	}
	return false
}
