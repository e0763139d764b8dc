package batch

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
)

// Target is a task that a batch is about, as it was selected.
type Target struct {
	Task     string           `json:"task"`
	Workflow string           `json:"workflow"`
	Version  int              `json:"version"`
	State    events.TaskState `json:"state"`
	Step     string           `json:"step,omitempty"` // held; the first one of several
	Code     string           `json:"code,omitempty"` // of the task's error
}

// TargetOf returns a task of a list as a target.
func TargetOf(v *events.SummaryView) Target {
	t := Target{Task: v.ID, Workflow: v.Workflow, Version: v.Version, State: v.State}
	if v.ErrorCode != nil {
		t.Code = *v.ErrorCode
	}
	if len(v.StepsInError) > 0 {
		t.Step = v.StepsInError[0]
	}
	return t
}

// Takes reports whether a task's state may allow a command. The scheduler decides, by the whole task.
func Takes(x *events.Control, state events.TaskState) bool {
	if state == events.StateProcessed && x.Command == events.UndoTask {
		return x.Processed
	}
	return events.Allowed(x.Command, &events.Task{State: state})
}

// Select returns the targets whose state may allow the command, and that a migration changes, in the order of the list, and the number of the others.
func Select(x *events.Control, listed []Target) (targets []Target, left int) {
	for _, t := range listed {
		if Takes(x, t.State) && (x.Command != events.Migrate || t.Version != x.Version) {
			targets = append(targets, t)
		}
	}
	return targets, len(listed) - len(targets)
}

// Group is a number of targets that are alike.
type Group struct {
	Workflow string           `json:"workflow" jsonschema:"The name of the workflow."`
	Version  int              `json:"version" jsonschema:"The version of the workflow."`
	State    events.TaskState `json:"state" jsonschema:"The state of the tasks."`
	Step     string           `json:"step,omitempty" jsonschema:"The held step, or the first one of several. Absent: none is held."`
	Code     string           `json:"code,omitempty" jsonschema:"The code of the error. Absent: no error."`
	Tasks    int              `json:"tasks" jsonschema:"The number of the tasks."`
	Sample   string           `json:"sample" jsonschema:"The id of the first one."`
}

// Preview groups targets by workflow, state, held step and error, the largest group first.
func Preview(targets []Target) []Group {
	at := map[Target]int{}
	var groups []Group
	for _, t := range targets {
		like := t
		like.Task = ""
		i, seen := at[like]
		if !seen {
			i = len(groups)
			at[like] = i
			groups = append(groups, Group{t.Workflow, t.Version, t.State, t.Step, t.Code, 0, t.Task})
		}
		groups[i].Tasks++
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Tasks, a.Tasks) })
	return groups
}

// namespace is that of the request ids of batches.
var namespace = uuid.MustParse("6f1c2d0e-8c1f-5b7a-9d58-0d8f2f9b7c31")

// RequestID returns the request id of a batch's command to a task.
func RequestID(batch, task string) string {
	return uuid.NewSHA1(namespace, []byte(batch+"\x00"+task)).String()
}
