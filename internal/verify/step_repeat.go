package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

func init() {
	stepRules[events.VerbRepeated] = &factRule{from: byReplies, only: true, promise: "P3", loose: true, checkAttempts: (*eventCheck).checkRepeat,
		arms: repeatTimer, count: (*eventCheck).countRepeated, lead: leadCompleted}
}

// checkRepeat checks that only a step with a repeat is repeated, and that no call follows the last one (P23).
func (s *eventCheck) checkRepeat(events.Attempts) *Fault {
	switch rule := s.t.open.state.Plan.Steps[s.index].Repeat; {
	case rule == nil:
		return faultf("P23", "step %q is repeated, and the plan has no repeat of it", s.about.Step)
	case s.e.Policy != nil && s.run.calls+1 >= rule.Max:
		return faultf("P23", "step %q is to be called again after %d calls of %d", s.about.Step, s.run.calls+1, rule.Max)
	}
	return nil
}

// checkNextCall checks that a call has a key of its own, doesn't begin before its time, and isn't one too many (P23). key is the call's key; empty:
// its request couldn't be sent.
func (s *eventCheck) checkNextCall(key string) *Fault {
	r := s.run
	if r.lastCall == 0 || r.attempt != r.lastCall { // no call completed since the last attempt
		return nil
	}
	rule := s.t.plan.Steps[s.index].Repeat
	switch early := r.notBefore.Sub(s.e.At); {
	case rule != nil && r.calls >= rule.Max:
		return faultf("P23", "attempt %d of step %q begins after %d calls of %d", s.about.Attempt, s.about.Step, r.calls, rule.Max)
	case key != "" && key == r.key:
		return faultf("P23", "attempt %d of step %q has the key of the call before, %s", s.about.Attempt, s.about.Step, key)
	case early > 0:
		return faultf("P23", "attempt %d of step %q began %s before the time of its call", s.about.Attempt, s.about.Step, early)
	}
	return nil
}

// checkRepeatExhausted checks that a step that ends for its calls has made all of them (P23). The last one may have completed in
// this decision.
func (s *eventCheck) checkRepeatExhausted() *Fault {
	err, rule := s.about.Error(), s.t.open.state.Plan.Steps[s.index].Repeat
	if err == nil || err.Code != events.CodeRepeatExhausted || s.about.Kind != events.Do {
		return nil
	}
	if !s.t.plan.StepKindOf(s.index, events.Do).CallsAgent() || rule == nil && s.run.code == sumOfText(err.Code) {
		return nil // the repeat is that of a child or an item, or an agent uses the code itself
	}
	if rule == nil || s.run.calls != rule.Max {
		return faultf("P23", "step %q ended as %s after %d calls; its repeat is %+v", s.about.Step, err.Code, s.run.calls, rule)
	}
	return nil
}

// repeatTimer returns the time of the next call. There is none if the task doesn't go on, or if the decision ends the
// step: then an event of its end must follow (factRule.loose).
func repeatTimer(s *eventCheck) (events.TimerKind, time.Time) {
	rule := s.t.open.state.Plan.Steps[s.index].Repeat
	if rule == nil || !s.mayRetry() || s.e.Policy == nil {
		return "", time.Time{}
	}
	return events.TimerWaiting, s.e.At.Add(rule.Every)
}

func (s *eventCheck) countRepeated() {
	s.endAttempt()
	s.run.dropProgress()
	r := s.run
	r.calls++
	r.lastCall = s.about.Attempt
	r.fresh, r.failures, r.cooled, r.code, r.final = 0, 0, false, 0, false
	r.renewed, r.notBefore = true, s.e.Due
	s.t.steps[s.index].generation++
	s.mark(unknown)
}
