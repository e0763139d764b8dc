package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// handleControl applies an operator's command, or refuses it with a reason. Every control is answered.
func (d *decider) handleControl(x *events.Control) {
	t := d.Task
	if t == nil {
		d.answerControl(x, 0, d.unknownTask(x.Task))
		return
	}
	for _, a := range t.Accepted {
		if a.RequestID == x.RequestID {
			d.Ignored = IgnoredDuplicate
			d.answerControl(x, a.Seq, "")
			return
		}
	}
	if why := Refusal(x, t); why != "" {
		d.answerControl(x, 0, why)
		return
	}
	seq := t.Seq + 1
	if x.DryRun && x.Command != events.Migrate {
		d.answerControl(x, 0, "")
		return
	}
	switch x.Command {
	case events.Cancel:
		d.cancelTask(x)
	case events.UndoTask:
		if why := d.undoTask(x); why != "" {
			d.answerControl(x, 0, why)
			return
		}
	case events.Resubmit:
		d.resumeTask(x.By)
	case events.Release:
		d.releaseStep(x)
	case events.Migrate:
		if why := d.migrateTask(x); why != "" {
			d.answerControl(x, 0, why)
			return
		}
	}
	if d.needHistory || d.needDefinitions {
		return
	}
	if x.DryRun {
		seq = 0
	}
	d.answerControl(x, seq, "")
}

func (d *decider) cancelTask(x *events.Control) {
	if d.Task.UndoHeld() {
		d.emit(&events.TaskCancelled{By: x.By, ForgetAt: d.forgetAt()}, time.Time{}, nil)
		return
	}
	d.emit(&events.TaskUndoing{By: x.By, Ending: events.StateCancelled, Keep: x.Keep, Error: &events.Error{Code: events.CodeCancelled, Message: x.Why}}, time.Time{}, nil)
	d.advance()
}

// resumeTask ends a hold. A task that isn't being undone gets a new complete-by.
func (d *decider) resumeTask(by events.By) {
	if d.Task.Ending != "" {
		d.emit(&events.TaskResumed{By: by}, time.Time{}, nil)
	} else {
		due := events.Millis(d.now.Add(d.Task.Plan.CompleteWithin))
		d.emit(&events.TaskResumed{By: by}, due, d.Task.TaskPolicy(due))
	}
	d.advance()
}

// stillHeld reports whether a step in error still holds the task. During the undo, it is a step whose undo is in error.
func stillHeld(t *events.Task) bool {
	for i := range t.Steps {
		s := t.Steps[i]
		if t.Ending == "" && s.State == events.StepError || s.Undo != nil && s.Undo.State == events.StepError {
			return true
		}
	}
	return false
}

func (d *decider) releaseStep(x *events.Control) {
	i, _ := d.Task.Plan.Step(x.Step) // Refusal has found it
	caught, err := heldCatch(d.Task, i), d.Task.Steps[i].Error
	d.emit(&events.RunReleased{By: x.By, Step: x.Step, As: x.As, Output: x.Output}, time.Time{}, nil)
	if caught {
		d.emitCaught(i, err)
	}
	if !stillHeld(d.Task) {
		by := x.By
		by.RequestID = "" // RunReleased has recorded the request as accepted, and a task records each once
		d.resumeTask(by)
	}
}
