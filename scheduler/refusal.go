package scheduler

import (
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// Refusal returns why a command has no effect on a task; empty: the scheduler accepts it. It is all that the scheduler
// asks before it applies a command, except two questions that t may not answer: whether the command was accepted
// before, and, of a processed task without its steps, whether its undo fits into an event. MigrationRefusal says whether a
// task fits the version that a migration names.
func Refusal(x *events.Control, t *events.Task) (why string) {
	switch {
	case !events.Allowed(x.Command, t) && t.UndoHeld():
		return undoHeldReason
	case !events.Allowed(x.Command, t):
		return fmt.Sprintf("%s: task %q is %s", x.Command, t.ID, t.State) + heldBelow(x.Command, t)
	}
	switch x.Command {
	case events.Cancel:
		if t.UndoHeld() && !x.Keep {
			return undoHeldReason
		}
	case events.UndoTask:
		return undoRefusal(x, t)
	case events.Resubmit:
		return resubmitRefusal(x, t)
	case events.Release:
		return releaseRefusal(x, t)
	case events.Migrate: // by the plan of the version: MigrationRefusal
	}
	return ""
}

// heldBelow says what is held of a task that isn't: items or a child, which take the commands to held tasks; empty:
// nothing is, or the command is another one.
func heldBelow(c events.Command, t *events.Task) string {
	if c != events.Resubmit && c != events.Release {
		return ""
	}
	items, child := 0, ""
	for _, s := range t.Steps {
		if s.Items != nil {
			items += s.Items.Held
		}
		if s.Interim().ChildError != nil || s.Undo != nil && s.Undo.Interim().ChildError != nil {
			child = s.KindState().Child
		}
	}
	switch {
	case items > 0:
		id := t.ID
		if strings.ContainsAny(id, " '\"\\") { // it would have to be quoted, for the filter and for the shell
			id = "ID"
		}
		return fmt.Sprintf("; %s of it %s held, not the task itself: `waybill resubmit --filter 'parent:%s state:held'` resubmits held items, `waybill task items` lists them",
			text.Count(items, "item"), text.Verb(items, "is", "are"), id)
	case child != "":
		return fmt.Sprintf("; its child is held, not the task itself: send the command to task %q", child)
	}
	return ""
}

// undoHeldReason refuses a second undo.
const undoHeldReason = "its undo is held; resubmit or release it, or cancel with --keep to leave what can't be undone"

func undoRefusal(x *events.Control, t *events.Task) (why string) {
	switch {
	case t.State != events.StateProcessed:
		return ""
	case !x.Processed:
		return fmt.Sprintf("undo: task %q is processed; to undo what it did, say that the task is processed (--processed)", t.ID)
	case t.Plan == nil: // its steps are read from the log first
		return ""
	}
	_, why = reopenedForm(t)
	return why
}

func resubmitRefusal(x *events.Control, t *events.Task) (why string) {
	if x.Step == "" {
		return ""
	}
	i, ok := t.Plan.Step(x.Step)
	if !ok {
		return "there is no step " + quoted(x.Step)
	}
	if s := t.Steps[i].State; s != events.StepError {
		return fmt.Sprintf("step %q is %s, not in error", x.Step, s)
	}
	return ""
}

// heldCatch reports whether a step's error is to be caught, and the undo before that is in error.
func heldCatch(t *events.Task, i int) bool {
	return t.BeingCaught(i) && t.Steps[i].Undo.State == events.StepError
}

func releaseRefusal(x *events.Control, t *events.Task) (why string) {
	i, ok := t.Plan.Step(x.Step)
	if !ok {
		return "there is no step " + quoted(x.Step)
	}
	s := t.Steps[i]
	caught := heldCatch(t, i)
	switch {
	case caught && x.As == events.StepCompleted:
		return "its undo is in error, and its own error can be caught then; release the step as undone, or resubmit it"
	case t.Ending == "" && x.As == events.StepUndone && !caught:
		return "the task isn't being undone; release the step as completed, or undo the task"
	case t.Ending != "" && x.As == events.StepCompleted:
		return "the task is being undone; release the step as undone"
	case t.Ending != "" && (s.Undo == nil || s.Undo.State != events.StepError):
		return fmt.Sprintf("step %q is %s; only an undo in error can be released", x.Step, s.State)
	case s.State != events.StepError && s.State != events.StepFailed && s.State != events.StepCancelled:
		return fmt.Sprintf("step %q is %s; only a step in error can be released", x.Step, s.State)
	case x.As == events.StepCompleted && s.Items != nil && s.Items.Running > 0:
		return fmt.Sprintf("%s of step %q still %s; release the step after that", text.Count(s.Items.Running, "item"), x.Step, text.Verb(s.Items.Running, "runs", "run"))
	case s.IsChecking():
		return fmt.Sprintf("step %q is being checked; release it after the answer", x.Step)
	case len(x.Output) > MaxOutputBytes || t.Bytes()+len(x.Output) > MaxTaskBytes:
		return tooLarge("the output", len(x.Output), MaxOutputBytes, t.Bytes()+len(x.Output))
	}
	return ""
}

// SignalRefusal returns why no step of a task can take a signal of this name; nil: one can. A signal can still be
// refused for its size, or be ignored as a repeated one.
func SignalRefusal(name string, t *events.Task) *events.Unusable {
	switch {
	case !t.TakesSignals():
		return &events.Unusable{Reason: events.ReasonTaskEnded, Detail: "task " + quoted(t.ID) + " is " + string(t.State) + ", and takes no signals"}
	case !t.AwaitsSignal(name):
		return &events.Unusable{Reason: events.ReasonNotAwaited, Detail: "no step of task " + quoted(t.ID) + " waits, or will wait, for the signal " + quoted(name)}
	case len(t.Signals) >= events.MaxKeptSignals:
		return &events.Unusable{Reason: events.ReasonTooManySignals, Detail: fmt.Sprintf("task %s keeps %d signals already", quoted(t.ID), len(t.Signals))}
	}
	return nil
}
