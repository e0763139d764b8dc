package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// waitStep waits for an instant. A supervisor asks for its end.
type waitStep struct{}

var _ = registerStepKind(events.WaitStep, waitStep{})

// start evaluates the wait and arms its timer. A wait that can't end before the task's complete-by puts the step in
// error at once, so that nobody waits in vain.
func (waitStep) start(d *decider, i int) {
	w, err := d.program.Wait(i, d.evaluationScope())
	if err != nil {
		d.failRun(i, events.Do, expressionFailed(err))
		return
	}
	f := &events.WaitStarted{Step: d.Task.Plan.Steps[i].ID, Attempt: d.Task.Steps[i].Attempt + 1, Wait: w.For, Until: w.Until}
	end := f.End(d.now)
	if by := d.Task.CompleteBy; !end.Before(by) {
		d.failRun(i, events.Do, &events.Error{Code: events.CodeWaitTooLong, Message: "the wait ends at " + end.UTC().Format(events.TimeLayout) +
			", and the task's complete-by is " + by.UTC().Format(events.TimeLayout)})
		return
	}
	d.emit(f, end, d.policyOf(i, f))
}

// reply isn't called: without a request there is no token that a reply could have.
func (waitStep) reply(d *decider, _ int, _ *events.Reply) { d.Ignored = IgnoredStaleReply }

// recover ends the wait, also during a hold. Its timer is due, so it isn't early.
func (waitStep) recover(d *decider, i int, r *events.Recovery) {
	if r.Action != events.ActionFire {
		d.Ignored = IgnoredOutsidePolicy
		return
	}
	d.emit(&events.WaitCompleted{Step: r.Step, Attempt: d.Task.Steps[i].Attempt}, time.Time{}, nil)
	d.advance()
}
