package scheduler

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// needsCheck reports whether an agent is asked first what became of a step's last attempt.
func (d *decider) needsCheck(i int, k events.Kind) bool {
	return k != events.Check && d.Task.NeedsCheck(i) && d.mayCheck(i)
}

// mayCheck reports whether an attempt to check a step may begin. After the task's complete-by the task's timer decides, and
// the check follows with the undo.
func (d *decider) mayCheck(i int) bool { return d.precedesUndo(i) || d.now.Before(d.Task.CompleteBy) }

// precedesUndo reports whether a check of the step would be followed by its undo: the task is being undone, or the step is
// being caught.
func (d *decider) precedesUndo(i int) bool {
	return d.Task.State == events.StateUndoing || d.Task.Steps[i].State == events.StepError
}

// completeCheck applies the answer to a check.
func (d *decider) completeCheck(i int, ref events.RequestRef, instance string, r *events.Reply) {
	f := &events.CheckCompleted{Step: ref.Step, Attempt: ref.Attempt, Instance: instance}
	f.Became, f.Output, f.Error = r.Became()
	n := len(f.Output) - len(d.Task.Steps[i].Output)
	if len(f.Output) > MaxOutputBytes || d.derived.taskBytes(d.Task)+n > MaxTaskBytes {
		// The effect is there, and its output can't be stored, so it stays unknown.
		err := &events.Error{Code: events.CodeTooLarge, Message: tooLarge("the output of step "+quoted(ref.Step), len(f.Output), MaxOutputBytes, d.derived.taskBytes(d.Task)+n)}
		f.Became, f.Output, f.Error = events.BecameUnknown, nil, err
	}
	d.emit(f, time.Time{}, nil)
	if s := d.Task.Steps[i]; f.Error != nil && f.Error.Code == events.CodeTooLarge && s.State == events.StepFailed && d.canContinue(events.Do) {
		d.failRun(i, events.Do, f.Error) // the operation isn't called again
		return
	}
	d.afterCheck(i)
}

// afterCheck continues a step after its check: what was due before the check follows now.
func (d *decider) afterCheck(i int) {
	s := d.Task.Steps[i]
	switch {
	case s.State == events.StepError && d.canCatch():
		d.catchStep(i)
	case !d.canContinue(events.Do), s.State != events.StepFailed: // completed, held, or being undone
		d.advance()
	case !d.now.Before(d.Task.CompleteBy): // the task's timer decides
	case !d.mayRetry(i):
		d.giveUp(i, events.Do)
	case d.hasSlot(i, events.Do):
		d.startAttempt(i, events.Do)
	default:
		d.armRetry(i, events.Do, events.NextRecovery{Until: d.now})
	}
}

// mayRetry reports whether the budget of a step allows another attempt. The wait before it is over.
func (d *decider) mayRetry(i int) bool {
	s := &d.Task.Steps[i].Run
	if s.Error != nil && !d.Task.Plan.Retries(i, events.Do, s.Error) {
		return false
	}
	most := d.Task.Plan.AttemptsOf(i, events.Do).MaxAttempts
	return s.FailureCount < most || s.CooledDown && s.FailureCount == most
}

// checkValue returns the value of a check's request.
func (d *decider) checkValue(i int) (value []byte, err *events.Error) {
	s := d.Task.Steps[i]
	value = events.CheckValue(events.CheckOf{IdempotencyKey: s.Key, Input: s.Input})
	if n := len(value); n > MaxRequestBytes {
		return nil, &events.Error{Code: events.CodeTooLarge, Message: fmt.Sprintf("the request has %d bytes; at most %d", n, MaxRequestBytes)}
	}
	return value, nil
}
