package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// signalStep waits for a signal. A signal that came before is kept by the task.
type signalStep struct{}

var _ = registerStepKind(events.SignalStep, signalStep{})

// start arms the timer of the step's time. The step takes the oldest kept signal of its name at once.
func (signalStep) start(d *decider, i int) {
	p := &d.Task.Plan.Steps[i]
	f := &events.SignalStarted{Step: p.ID, Attempt: d.Task.Steps[i].Attempt + 1, Signal: p.Signal}
	d.emit(f, d.attemptDeadline(i, events.Do), d.policyOf(i, f))
	for k := range d.Task.Signals {
		if d.Task.Signals[k].Name == p.Signal {
			d.completeBySignal(i, &d.Task.Signals[k])
			return
		}
	}
}

// reply isn't called: without a request there is no token that a reply could have.
func (signalStep) reply(d *decider, _ int, _ *events.Reply) { d.Ignored = IgnoredStaleReply }

// recover ends a step whose time is over, also during a hold. Its timer is due. A person who doesn't answer isn't asked
// again, so there is no further attempt.
func (signalStep) recover(d *decider, i int, r *events.Recovery) {
	if r.Action != events.ActionFire {
		d.Ignored = IgnoredOutsidePolicy
		return
	}
	d.failRun(i, events.Do, &events.Error{Code: events.CodeExpired, Message: "no signal " + quoted(d.Task.Plan.Steps[i].Signal) + " came in time"})
}

// completeBySignal completes a running step with a kept signal.
func (d *decider) completeBySignal(i int, k *events.KeptSignal) {
	d.emit(&events.SignalCompleted{Step: d.Task.Plan.Steps[i].ID, Attempt: d.Task.Steps[i].Attempt, Received: k.Seq}, time.Time{}, nil)
}

// handleSignal records a signal. The step that has waited longest for it takes it.
func (d *decider) handleSignal(s *events.Signal) {
	if u := d.checkSignal(s); u != nil || d.Ignored != "" {
		d.Unusable = u
		return
	}
	e := d.emit(&events.TaskSignalled{Name: s.Name, ID: s.ID, By: s.By, Claimed: s.Claimed, Data: s.Data}, time.Time{}, nil)
	if i := firstWaiting(d.Task, s.Name); i >= 0 {
		d.completeBySignal(i, &events.KeptSignal{Seq: e.Seq})
		d.advance()
	}
}

// checkSignal returns why no step of the task can take the signal. A repeated signal is ignored.
func (d *decider) checkSignal(s *events.Signal) *events.Unusable {
	t := d.Task
	switch {
	case t == nil:
		return &events.Unusable{Reason: events.ReasonUnknownTask, Detail: "no task " + quoted(s.Task) + " is known here"}
	case t.TakesSignals() && t.HasSignal(s.Name, s.ID):
		d.Ignored = IgnoredDuplicate
		return nil
	}
	if u := SignalRefusal(s.Name, t); u != nil {
		return u
	}
	// A step that takes the signal holds its data, name and sender as the task does.
	if n, total := len(s.Data), d.derived.taskBytes(t)+len(s.Data)+len(s.Name)+len(s.ID)+len(s.By)+len(s.Claimed); total > MaxTaskBytes {
		return &events.Unusable{Reason: events.ReasonTooLarge, Detail: tooLarge("the signal's data", n, MaxTaskBytes, total)}
	}
	return nil
}

// firstWaiting returns the running step that has waited longest for a signal; -1: none waits for it.
func firstWaiting(t *events.Task, name string) int {
	first := -1
	for i, s := range t.Steps {
		if p := &t.Plan.Steps[i]; p.StepKind != events.SignalStep || p.Signal != name || s.State != events.StepRunning {
			continue
		}
		if first < 0 || s.StartedSeq < t.Steps[first].StartedSeq {
			first = i
		}
	}
	return first
}
