package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// callStep calls an operation of an agent, in attempts. It decides about undos too.
type callStep struct{}

var _ = registerStepKind(events.CallStep, callStep{})

// start starts the first attempt, or the next one after a resubmit. Without a free slot the step stays pending, in the
// queue of its agent.
func (callStep) start(d *decider, i int) {
	if d.hasSlot(i, events.Do) {
		d.startAttempt(i, events.Do)
	}
}

func (callStep) reply(d *decider, i int, r *events.Reply) {
	ref, run := r.Ref, d.Task.Run(i, r.Ref.Kind)
	agent, _ := d.Task.Plan.Agent(i, ref.Kind)
	instance := d.env.Namespace.InstanceOf(agent, r.Source)
	switch r.Outcome {
	case events.Completed:
		if ref.Kind == events.Check {
			d.completeCheck(i, ref, instance, r)
			return
		}
		d.completeAttempt(i, ref, instance, r)
	case events.Progress:
		d.recordProgress(i, ref, instance, r.Body)
	case events.Failed:
		d.failAttempt(i, &events.AttemptFailed{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Effect: r.Effect, Error: r.Failure(),
			RetryAfter: events.AskedWait(ref.Kind, r.RetryAfter), Deferred: run.Defers(ref.Kind, r.Effect, r.RetryAfter, d.now)})
	case events.Rejected:
		err := r.Failure()
		d.emit(&events.AttemptRejected{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Error: err}, time.Time{}, nil)
		d.onRunError(i, ref.Kind, err)
	case events.Held, events.Resumed: // handleReply refuses them
	}
}

// recover applies the policy in the log.
func (callStep) recover(d *decider, i int, r *events.Recovery) { d.recoverRun(i, r) }
