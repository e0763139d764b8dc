package verify

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// checkRules are the rules of facts of a check.
var checkRules map[events.Verb]*factRule

func init() {
	checkRules = map[events.Verb]*factRule{
		events.VerbStarted: {from: byRecoveries, begins: true, checkAttempts: (*eventCheck).checkCheckStart, arms: attemptTimer, count: (*eventCheck).countStarted, asks: asksChecked},
		events.VerbCompleted: {from: byReplies, only: true, promise: "P3", checkAttempts: (*eventCheck).checkAnswer,
			count: (*eventCheck).countChecked, lead: leadChecked},
		events.VerbFailed: {from: []events.Inbox{events.Replies, events.Recoveries}, begins: true, loose: true,
			checkAttempts: (*eventCheck).checkFailure, arms: failedTimer, count: (*eventCheck).countFailed, lead: leadFailed},
		events.VerbRejected: {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countCheckRejected, lead: leadRejected},
		events.VerbExpired:  {from: byRecoveries, only: true, promise: "P4", loose: true, checkAttempts: (*eventCheck).checkExpiry, count: (*eventCheck).countExpired},
		events.VerbWaiting: {from: byRecoveries, own: true, promise: "P4", wait: true, checkAttempts: (*eventCheck).checkWait,
			arms: waitingTimer, count: (*eventCheck).countWait, asks: asksWait},
		events.VerbErrored: {from: byRecoveries, begins: true, checkAttempts: (*eventCheck).checkCheckGivenUp, count: (*eventCheck).countUnchecked},
	}
}

// findTimer finds the timer that the event may end: that of its slot, or that of the step's operation, if a check begins
// when that one is due.
func (s *eventCheck) findTimer() {
	s.fired = s.slot
	armed := func(slot events.Slot) bool {
		i := slices.IndexFunc(s.t.open.timers.Armed, func(a events.Armed) bool { return a.Slot == slot })
		if i >= 0 {
			s.timer, s.fired = s.t.open.timers.Armed[i].Timer, slot
		}
		return i >= 0
	}
	if !armed(s.slot) && s.slot.Kind == events.Check && s.rule.begins && !s.run.running {
		armed(events.Slot{Step: s.slot.Step, Kind: events.Do})
	}
}

// beginCheck gives a check its whole budget, if it is about another attempt than the check before.
func (s *eventCheck) beginCheck() {
	if s.slot.Kind != events.Check || s.run == nil {
		return
	}
	r := s.run
	if attempt := s.t.open.run(s.index, events.Do).attempt; r.of != attempt {
		r.of, r.fresh, r.failures, r.cooled, r.code, r.final, r.notBefore = attempt, 0, 0, false, 0, false, time.Time{}
		r.failedAt, r.waits, r.granted = time.Time{}, false, false
	}
}

// precedesUndo reports whether a check would be followed by the undo of its step: the task is being undone, or the step's
// error is being caught.
func (s *eventCheck) precedesUndo() bool {
	return s.t.open.state.State == events.StateUndoing || s.t.steps[s.index].flags.has(erred|asking)
}

// countAsking counts that a check of a step in error begins or goes on: the step is being caught, and doesn't hold the task.
func (s *eventCheck) countAsking() {
	if s.slot.Kind == events.Check && s.t.open.state.Ending == "" && s.about.Phase != events.PhaseNone && s.t.steps[s.index].flags.has(erred) {
		s.countSettled()
		s.mark(asking)
	}
}

// endAsking counts the end of a check. A step that was in error is in error again.
func (s *eventCheck) endAsking() {
	if s.t.steps[s.index].flags.has(asking) {
		s.unmark(asking)
		s.mark(erred)
		s.t.open.erred++
	}
}

// checkCheckStart checks that only an unknown effect is asked about, once for each attempt, while no attempt runs (P23).
func (s *eventCheck) checkCheckStart(attempts events.Attempts) *Fault {
	own := s.t.open.run(s.index, events.Do)
	switch {
	case !s.t.steps[s.index].flags.has(unknown):
		return faultf("P23", "a check of step %q, whose effect isn't unknown", s.about.Step)
	case own.running:
		return faultf("P23", "a check of step %q while attempt %d of it runs", s.about.Step, own.attempt)
	case s.t.steps[s.index].flags.has(erred) && s.t.open.state.Ending == "" && !own.catches:
		return faultf("P23", "a check of step %q, which is in error, and doesn't catch it", s.about.Step)
	case s.run.checked == own.attempt:
		return faultf("P23", "a second check of attempt %d of step %q", own.attempt, s.about.Step)
	case !s.precedesUndo() && s.mayRetryStep() && s.e.At.Before(own.notBefore):
		return faultf("P23", "a check of step %q %s before the wait for its next attempt was over", s.about.Step, own.notBefore.Sub(s.e.At))
	}
	return s.checkAttemptStart(attempts)
}

// checkCheckGivenUp checks that a check is given up when its attempts are used, and once for each attempt of the step (P23).
func (s *eventCheck) checkCheckGivenUp(attempts events.Attempts) *Fault {
	if own := s.t.open.run(s.index, events.Do); s.run.checked == own.attempt {
		return faultf("P23", "the check of attempt %d of step %q ends again", own.attempt, s.about.Step)
	}
	return s.checkGivenUp(attempts)
}

// mayRetryStep reports whether the budget of the step allows another attempt after the check.
func (s *eventCheck) mayRetryStep() bool {
	own, most := s.t.open.run(s.index, events.Do), s.t.open.state.Plan.AttemptsOf(s.index, events.Do).MaxAttempts
	return !own.final && (own.failures < most || own.cooled && own.failures == most)
}

// asksChecked returns what a supervisor asks for when a check begins instead: the next attempt, or to give up.
func asksChecked(s *eventCheck) []events.Action {
	if s.fired.Kind == events.Check || s.mayRetryStep() {
		return toGoOn
	}
	return toGiveUp
}

// checkAskedBefore checks that an unknown effect was asked about before what follows, and that what follows isn't against the
// answer (P23). An undo that has begun is retried without a question, also if a migration adds a check meanwhile.
func (s *eventCheck) checkAskedBefore(what string) *Fault {
	own := s.t.open.run(s.index, events.Do)
	if s.t.plan.Steps[s.index].Check == nil || own.attempt == 0 || s.t.open.state.Steps[s.index].Undo != nil {
		return nil
	}
	check, is := s.t.open.run(s.index, events.Check), s.t.steps[s.index].flags
	switch {
	case is.has(unknown) && check.checked != own.attempt:
		return faultf("P23", "%s of step %q, and nobody asked what became of attempt %d", what, s.about.Step, own.attempt)
	case s.about.Kind == events.Undo && check.checked == own.attempt && check.became == events.BecameNone && !is.has(completed|handSettled):
		return faultf("P23", "%s of step %q, and its check said that nothing happened", what, s.about.Step)
	}
	return nil
}

// checkAnswer checks that the parts of an answer fit: only what happened has an output, and an answer that can't be used
// says nothing.
func (s *eventCheck) checkAnswer(events.Attempts) *Fault {
	f, ok := s.e.Fact.(*events.CheckCompleted)
	if ok && f.Became != events.BecameUnknown && f.Error != nil {
		return faultf("P23", "the answer to a check of step %q can't be used, and says %s", f.Step, f.Became)
	}
	if ok && f.Became != events.BecameCompleted && len(f.Output) > 0 {
		return faultf("P23", "the answer to a check of step %q says %s, and has an output", f.Step, f.Became)
	}
	return nil
}

func (s *eventCheck) countChecked() {
	f, ok := s.e.Fact.(*events.CheckCompleted)
	if !ok {
		return
	}
	s.endAttempt()
	s.run.checked, s.run.became = s.run.of, f.Became
	s.endAsking()
	switch f.Became {
	case events.BecameCompleted:
		s.unmark(unknown)
		s.countSettled()
		s.mark(completed)
		s.t.open.run(s.index, events.Do).dropProgress()
		s.t.open.run(s.index, events.Do).done = s.e.Seq
	case events.BecameNone:
		s.unmark(unknown)
	case events.BecameUnknown:
	}
}

func (s *eventCheck) countCheckRejected() {
	s.endAttempt()
	s.countUnchecked()
}

// countUnchecked counts a check that ended without an answer.
func (s *eventCheck) countUnchecked() {
	s.endAsking()
	s.run.checked, s.run.became = s.run.of, events.BecameUnknown
}

// resumeCheck lets the last attempt of a step be asked about again after a resubmit.
func (s *eventCheck) resumeCheck(i int) {
	s.unmark(asking)
	if r := s.t.open.run(i, events.Check); !r.running && !s.t.steps[i].flags.has(completed|handSettled) {
		r.of, r.checked = 0, 0
	}
}

// mustGoOn reports whether an event of the step must follow the end of its check: it failed, its task is processed and
// has time left.
func (s *eventCheck) mustGoOn() bool {
	t := s.t.open.state
	return t.State == events.StateProcessing && t.Steps[s.index].State == events.StepFailed && s.e.At.Before(t.CompleteBy)
}

func leadChecked(s *eventCheck, l *lead, _ *input) {
	f, ok := s.e.Fact.(*events.CheckCompleted)
	if !ok {
		return
	}
	l.from, l.body = f.Instance, sumOfAnswer(f.Became, f.Output)
	l.written = f.Error == nil || f.Error.Code != events.CodeTooLarge
}

// sumOfAnswer returns a hash of an answer to a check.
func sumOfAnswer(became events.Became, output []byte) uint64 {
	return sumOfText(string(became)) ^ sumOf(output)
}

// followsCheck reports whether the event can be what follows the end of a check of its step.
func (s *eventCheck) followsCheck() bool {
	if s.first || s.slot.Kind != events.Do || s.t.plan.Steps[s.index].Check == nil {
		return false
	}
	c := s.t.open.run(s.index, events.Check)
	return !c.running && c.checked == s.run.attempt
}

// interruptChecks gives checks that a hold or an undo interrupts their whole budget again.
func (s *eventCheck) interruptChecks() {
	switch o := s.t.open; {
	case s.about.Verb == events.VerbHeld, s.about.Verb == events.VerbUndoing:
		for i := range s.t.steps {
			if r := o.run(i, events.Check); !r.running {
				r.of = 0
				s.t.steps[i].flags &^= asking
			}
		}
	case s.about.Kind == events.Check && o.state.State == events.StateError:
		s.run.of = 0
		s.t.steps[s.index].flags &^= asking
	}
}
