package replay

import "github.com/waybill-run/waybill/events"

// Cause is a task on the way from a task down to the cause of why it doesn't advance, or why it failed.
type Cause struct {
	Task     string           `json:"task" jsonschema:"The child task's id."`
	Item     *int             `json:"item,omitempty" jsonschema:"The index of the item that the task is for. Absent: it is for no item."`
	Workflow string           `json:"workflow" jsonschema:"The name of its workflow."`
	Version  int              `json:"version" jsonschema:"The version of its workflow."`
	State    events.TaskState `json:"state" jsonschema:"The state of the task."`
	Reason   Reason           `json:"reason" jsonschema:"Why the task doesn't advance."`
	Step     string           `json:"step,omitempty" jsonschema:"The step with this reason. Absent: none."`
	Since    *string          `json:"since" format:"date-time" jsonschema:"Since when. null: unknown."`
	Until    *string          `json:"until" format:"date-time" jsonschema:"When the timer is due. null: no timer is armed."`
	Moves    string           `json:"moves" jsonschema:"What would unblock the task, for people."`
	Error    *events.Error    `json:"error,omitempty" jsonschema:"The error that led to the reason. Absent: none."`
	Items    *ItemsWhy        `json:"items,omitempty" jsonschema:"Where the items of the step are. Absent: it has none."`
}

// Cause returns the explanation of a child as a part of its ancestor's.
func (w *Why) Cause(t *events.Task) Cause {
	c := Cause{Task: t.ID, Workflow: t.Workflow, Version: t.Version, State: w.State, Reason: w.Reason, Step: w.Step, Since: w.Since, Until: w.Until,
		Moves: w.Moves, Error: w.Error, Items: w.items()}
	if t.Parent != nil {
		c.Item = t.Parent.Item
	}
	return c
}

// items returns where the items are of the step that has the task's reason.
func (w *Why) items() *ItemsWhy {
	for i := range w.Steps {
		if w.Steps[i].Step == w.Step {
			return w.Steps[i].Items
		}
	}
	return nil
}

// ChildBelow returns the child task that the reason leads to: the one that the step waits for, or whose failure is the error
// of a task that was undone or is held; empty: none. Items that run are in running, if none of them is held.
func (w *Why) ChildBelow(t *events.Task, ids ItemIDs) (child string, running []int) {
	i, ok := t.Plan.Step(w.Step)
	if !ok && t.Error != nil {
		i, ok = t.Plan.Step(t.Error.Step)
	}
	if !ok || !t.Plan.Steps[i].StepKind.HasChildren() {
		return "", nil
	}
	s := t.Steps[i]
	switch w.Reason {
	case ReasonWaitingChild, ReasonChildHeld:
		for k := range w.Steps {
			if w.Steps[k].Step == w.Step {
				return w.Steps[k].Child, nil
			}
		}
	case ReasonWaitingItems:
		for n := range s.Items.Next {
			if at := s.Items.Item(n).State; at == events.StepRunning || at == events.StepUndoing {
				running = append(running, n)
			}
		}
		return "", running
	case ReasonHold, ReasonEnded:
		switch {
		case t.Error == nil || t.State == events.StateProcessed:
		case s.Items == nil:
			return s.KindState().Child, nil
		default:
			if n := failedItem(s.Items, t.Error); n >= 0 {
				return ids(i, n), nil
			}
		}
	default: // the reason isn't about a child
	}
	return "", nil
}
