package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// A step that ends in error can be caught: then the task goes on as if the step were done. What the step may have changed
// is undone first, while the other steps of the task go on.

// canCatch reports whether errors of steps are caught now. Once the task is being undone, they aren't.
func (d *decider) canCatch() bool {
	return d.Task.Ending == "" && (d.Task.State == events.StateProcessing || d.Task.State == events.StateError)
}

// catches reports whether a step catches an error that has any of these codes.
func (d *decider) catches(i int, codes ...string) bool {
	return d.canCatch() && d.Task.Plan.Catches(i, codes...)
}

// catchStep goes on after a step ended in error. If it may have had an effect, it is checked, and its undo begins. During a
// hold neither begins: the step stays in error, and a resubmit runs it again.
func (d *decider) catchStep(i int) {
	switch s := d.Task.Steps[i]; {
	case d.Task.State == events.StateProcessing && d.needsCheck(i, events.Undo):
		d.startAttempt(i, events.Check)
	case !s.Unknown || d.Task.Plan.Steps[i].Undo == nil:
		d.emitCaught(i, s.Error)
		d.advance()
	case d.Task.State == events.StateProcessing:
		d.startAttempt(i, events.Undo)
	}
}

func (d *decider) emitCaught(i int, err *events.Error) {
	d.emit(&events.RunCaught{Step: d.Task.Plan.Steps[i].ID, Error: err}, time.Time{}, nil)
}

// endCatch records that a step is caught whose undo is complete.
func (d *decider) endCatch(i int, k events.Kind) {
	if k == events.Undo && d.Task.BeingCaught(i) {
		d.emitCaught(i, d.Task.Steps[i].Error)
	}
}

// resumeCatches continues the undos of steps that are being caught, after a resubmit.
func (d *decider) resumeCatches() {
	for i := range d.Task.Steps {
		if d.Task.State == events.StateProcessing && !d.needDefinitions && undoIsPending(d.Task.Steps[i]) {
			d.startAttempt(i, events.Undo)
		}
	}
}

func undoIsPending(s *events.Step) bool { return s.Undo != nil && s.Undo.State == events.StepPending }
