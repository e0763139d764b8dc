package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// checkTimer compares the timer that an event arms with the plan. Without a timer an attempt might never end; with
// a wrong one its deadline would be wrong.
func (s *eventCheck) checkTimer() *Fault {
	kind, due := s.requiredTimer()
	promise := "P5"
	switch {
	case s.run == nil:
		promise = "P1"
	case kind == events.TimerAttempt && s.t.open.state.Plan.AttemptsOf(s.index, s.slot.Kind).Heartbeat > 0:
		promise = "P22"
	}
	f := s.e.Fact.Type()
	switch p := s.e.Policy; {
	case kind == "" && p != nil:
		return faultf(promise, "%s arms a timer (%s, due at %s), and there is nothing to wait for", f, p.Timer, s.e.Due.Format(events.TimeLayout))
	case kind == "":
		return nil
	case p == nil:
		return faultf(promise, "%s arms no timer: without an answer nothing would follow from it", f)
	case p.Timer != kind:
		return faultf(promise, "%s arms a timer of the kind %s; it is %s", f, p.Timer, kind)
	case kind == events.TimerWaiting && s.e.Due.Equal(s.run.notBefore): // even if that instant has passed
	case !s.e.Due.Equal(due):
		return faultf(promise, "%s arms a timer that is due at %s; by the plan at %s", f, s.e.Due.Format(events.TimeLayout), due.Format(events.TimeLayout))
	}
	return nil
}

// requiredTimer returns the timer that an event must arm, and when it is due; empty: none.
func (s *eventCheck) requiredTimer() (kind events.TimerKind, due time.Time) {
	if s.rule.arms == nil {
		return "", time.Time{}
	}
	return s.rule.arms(s)
}

func startedTimer(s *eventCheck) (events.TimerKind, time.Time) {
	t := s.t.open.state
	return events.TimerTask, earlier(events.Millis(s.e.At.Add(t.Plan.CompleteWithin)), t.CompleteBy)
}

func resumedTimer(s *eventCheck) (kind events.TimerKind, due time.Time) {
	if t := s.t.open.state; t.Ending == "" {
		return events.TimerTask, events.Millis(s.e.At.Add(t.Plan.CompleteWithin))
	}
	return "", time.Time{}
}

func failedTimer(s *eventCheck) (kind events.TimerKind, due time.Time) {
	err := s.about.Error()
	tooLarge := s.e.Policy == nil && s.run.running && err != nil && err.Code == events.CodeTooLarge
	retried := err == nil || s.t.plan.RetryCodesOf(s.index, s.slot.Kind).Allow(err.Code)
	if f, ok := s.e.Fact.(*events.AttemptFailed); ok && !tooLarge && retried && s.mayRetry() {
		return events.TimerFailed, s.e.At.Add(f.RetryAfter)
	}
	return "", time.Time{}
}

func waitingTimer(s *eventCheck) (events.TimerKind, time.Time) {
	due := s.run.notBefore
	if s.e.At.After(due) { // the wait is over, and the step waits only for its agent
		due = s.e.At
	}
	return events.TimerWaiting, due
}

// earlier returns the earlier of two instants. task may be zero, which means none.
func earlier(due, task time.Time) time.Time {
	if !task.IsZero() && task.Before(due) {
		return task
	}
	return due
}

// mayRetry reports whether the event's run may have further attempts.
func (s *eventCheck) mayRetry() bool {
	state := s.t.open.state.State
	return state == events.StateProcessing || s.slot.Kind != events.Do && state == events.StateUndoing
}

// checkPolicy checks that the event tells supervisors the plan's retry policy and how much of it is used (P5).
func (s *eventCheck) checkPolicy() *Fault {
	p := s.e.Policy
	if p == nil {
		return nil
	}
	t := s.t.open.state
	if s.run == nil {
		if p.OnError != t.Plan.OnError || !p.CompleteBy.Equal(t.CompleteBy) {
			return faultf("P1", "the policy of the task says %s at %s; by the plan it is %s, at %s",
				p.OnError, p.CompleteBy.Format(events.TimeLayout), t.Plan.OnError, t.CompleteBy.Format(events.TimeLayout))
		}
		return nil
	}
	rule, onError, completeBy := t.Plan.AttemptsOf(s.index, s.slot.Kind), t.Plan.OnError, t.CompleteBy
	if s.slot.Kind != events.Do {
		onError, completeBy = events.OnErrorHold, time.Time{}
	}
	switch {
	case p.Attempts != rule:
		return faultf("P5", "the policy of step %q is %+v, the plan has %+v", s.slot.Step, p.Attempts, rule)
	case p.FailureCount != s.run.failures:
		return faultf("P5", "the policy of step %q counts %d failures; there were %d", s.slot.Step, p.FailureCount, s.run.failures)
	case p.CooledDown != s.run.cooled:
		return faultf("P5", "the policy of step %q says that a cool-down was granted: %v; it is %v", s.slot.Step, p.CooledDown, s.run.cooled)
	case p.Final != (p.Timer == events.TimerAttempt && !t.Plan.RetryCodesOf(s.index, s.slot.Kind).Allow(events.CodeExpired)):
		return faultf("P5", "the policy of step %q says that a time-out isn't retried: %v", s.slot.Step, p.Final)
	case p.OnError != onError || !p.CompleteBy.Equal(completeBy):
		return faultf("P5", "the policy of step %q says %s, and complete-by %s; it is %s, and %s",
			s.slot.Step, p.OnError, p.CompleteBy.Format(events.TimeLayout), onError, completeBy.Format(events.TimeLayout))
	}
	return nil
}
