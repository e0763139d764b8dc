package replay

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// CommandCheck says whether the state of a task allows a command, or a signal.
type CommandCheck struct {
	Control *events.Control // nil: it is a signal
	Signal  string          // its name
	Why     string          // why it would have no effect; empty: it is allowed
}

// Version is another version of a task's workflow.
type Version struct {
	Number int
	Plan   *events.Plan
}

// VersionOf returns the version of a definition.
func VersionOf(d *workflow.Definition) Version {
	return Version{d.Version, scheduler.PlanOfDefinition(d)}
}

// Commands returns the commands to a task, those that its state refuses included, and its signals. The scheduler's own
// functions decide, as of an instant. A command that can name a step is listed for each step that it could be about, a migration for each
// of the other versions.
func Commands(t *events.Task, others []Version, now time.Time) []CommandCheck {
	var list []CommandCheck
	add := func(x events.Control) {
		x.Task = t.ID
		list = append(list, CommandCheck{Control: &x, Why: scheduler.Refusal(&x, t)})
	}
	add(events.Control{Command: events.Cancel})
	add(events.Control{Command: events.Cancel, Keep: true})
	add(events.Control{Command: events.Resubmit})
	for i := range t.Steps {
		if t.State == events.StateError && t.Steps[i].State == events.StepError {
			add(events.Control{Command: events.Resubmit, Step: t.Plan.Steps[i].ID})
		}
	}
	add(events.Control{Command: events.UndoTask, Processed: t.State == events.StateProcessed})
	held := false
	for i := range t.Steps {
		if t.State == events.StateError && mayNeedRelease(t.Steps[i]) {
			held = true
			add(events.Control{Command: events.Release, Step: t.Plan.Steps[i].ID, As: events.StepCompleted})
			add(events.Control{Command: events.Release, Step: t.Plan.Steps[i].ID, As: events.StepUndone})
		}
	}
	switch {
	case held:
	case t.State == events.StateError:
		list = append(list, CommandCheck{Control: &events.Control{Task: t.ID, Command: events.Release}, Why: "no step is held"})
	default:
		add(events.Control{Command: events.Release})
	}
	list = append(append(list, migrations(t, others, now)...), signals(t)...)
	if t.Forgotten(now) {
		for i := range list {
			list[i].Why = "its id could be forgotten after " + t.ForgetAt.UTC().Format(time.RFC3339) + " (dedupe_for): schedulers don't know the task any more"
		}
	}
	return list
}

func migrations(t *events.Task, others []Version, now time.Time) (list []CommandCheck) {
	for _, v := range others {
		x := &events.Control{Task: t.ID, Command: events.Migrate, Version: v.Number}
		why := scheduler.Refusal(x, t)
		if why == "" {
			why = scheduler.MigrationRefusal(t, v.Number, v.Plan, now)
		}
		list = append(list, CommandCheck{Control: x, Why: why})
	}
	if len(list) == 0 {
		list = append(list, CommandCheck{Control: &events.Control{Task: t.ID, Command: events.Migrate, Version: t.Version}, Why: "its workflow has no other version"})
	}
	return list
}

// mayNeedRelease reports whether an operator may want to settle a step of a held task by hand.
func mayNeedRelease(s *events.Step) bool {
	return s.State == events.StepError || s.State == events.StepFailed || s.State == events.StepCancelled || s.Undo != nil && s.Undo.State == events.StepError
}

// signals returns the signals that steps of the task wait for at some time, each once, in the order of the plan.
func signals(t *events.Task) []CommandCheck {
	var names []string
	var list []CommandCheck
	for i := range t.Steps {
		name := t.Plan.Steps[i].Signal
		if name == "" || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		c := CommandCheck{Signal: name}
		if u := scheduler.SignalRefusal(name, t); u != nil {
			c.Why = u.Detail
		}
		list = append(list, c)
	}
	return list
}
