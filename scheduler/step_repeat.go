package scheduler

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// endCall decides what follows a call of a repeated step that completed: the step is completed, the next call is due
// later, or the step is in error. If the task is held or being undone, no call follows, and only a true condition counts.
func (d *decider) endCall(i int, ref events.RequestRef, instance string, r *events.Reply) {
	done, ferr := d.repeatEnds(i, r)
	if d.needDefinitions {
		return
	}
	if done {
		d.emit(&events.AttemptCompleted{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Output: r.Body}, time.Time{}, nil)
		d.advance()
		return
	}
	f := &events.CallRepeated{Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Output: r.Body}
	rule := d.Task.Plan.Steps[i].Repeat
	if calls := d.Task.Steps[i].Interim().Calls + 1; ferr == nil && calls >= rule.Max {
		ferr = &events.Error{Code: events.CodeRepeatExhausted, Message: fmt.Sprintf("%s completed, and none ended the repeat; the last call's output is in the log", text.Count(calls, "call"))}
	}
	switch {
	case !d.canContinue(events.Do):
		d.emit(f, time.Time{}, nil)
		d.advance()
	case ferr != nil:
		d.emit(f, time.Time{}, nil)
		d.failRun(i, events.Do, ferr)
	default:
		p := d.policyOf(i, f)
		p.FailureCount, p.CooledDown = 0, false // the next call has the whole budget
		d.emit(f, d.now.Add(rule.Every), p)
	}
}

// repeatEnds evaluates the condition that ends a repeat, with the output of a call.
func (d *decider) repeatEnds(i int, r *events.Reply) (bool, *events.Error) {
	if !d.loadProgram() {
		return false, d.definitionError()
	}
	if d.needDefinitions {
		return false, nil
	}
	done, err := d.program.Until(i, d.evaluationScope(), r.Body)
	if err != nil {
		return false, expressionFailed(err)
	}
	return done, nil
}
