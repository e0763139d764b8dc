package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Attempts and failures are counted independently of the fold, since the checks must not rely on the code that they
// check.

func (s *eventCheck) countCompleted() {
	s.endAttempt()
	s.run.dropProgress()
	if s.run.done = s.e.Seq; s.about.Kind == events.Undo {
		s.mark(undone)
		if s.beingCaught() {
			s.t.open.uncaught++
		}
	} else {
		s.unmark(unknown)
		s.mark(completed)
	}
}

func (s *eventCheck) countRejected() {
	s.endAttempt()
	s.run.rejected = true
	s.countErrored()
}

func (s *eventCheck) countSkipped() {
	if i, ok := s.t.plan.Step(s.about.Step); ok {
		s.index = i
		s.mark(skipped)
	}
}

func (s *eventCheck) countExpired() {
	due := s.run.due
	s.endAttempt()
	s.countCode(&events.Error{Code: events.CodeExpired})
	s.countFailure(due)
	if s.about.Kind == events.Do {
		s.mark(unknown)
	}
}

func (s *eventCheck) countWait() {
	s.run.notBefore, s.run.failedAt, s.run.waits = s.e.Due, time.Time{}, true
	if f, ok := s.e.Fact.(*events.AttemptWaiting); ok {
		s.run.cooled = s.run.cooled || f.CoolDown
	}
}

func (s *eventCheck) mark(f flags) {
	was := s.t.steps[s.index].flags
	if !was.has(done) && f.has(done) {
		s.t.open.done++
	}
	s.t.steps[s.index].flags = was | f
}
func (s *eventCheck) unmark(f flags) { s.t.steps[s.index].flags &^= f }

func (s *eventCheck) countStarted() {
	f, ok := s.e.Fact.(*events.AttemptStarted)
	if !ok {
		return
	}
	r := s.run
	r.attempt, r.running, r.began = f.Attempt, true, s.e.Seq
	r.fresh++
	r.key, r.renewed, r.notBefore = f.Key, false, time.Time{}
	r.failedAt, r.waits, r.granted = time.Time{}, false, false
	r.completeBy, r.due, r.given = f.EndsBy(s.e), s.e.Due, r.last
	r.index = len(s.t.attempts)
	s.t.attempts = append(s.t.attempts, attempt{due: millis(r.completeBy), started: millis(s.r.Time), token: sumOfText(f.TokenHash),
		step: uint16(s.index), number: uint16(f.Attempt), runAndPlan: runAndPlan(runNumber(f.Kind), len(s.c.earlierPlans[s.t])),
		generation: uint8(min(s.t.steps[s.index].generationOf(f.Kind), manyGenerations))})
	if f.Kind == events.Undo {
		s.mark(undoAsked)
	}
	s.c.recordStarted(s.t, s.index, f)
}

// countErrored counts a step that is now in error.
func (s *eventCheck) countErrored() {
	k, err := s.about.Kind, s.about.Error()
	s.countError(err)
	s.t.open.gaveUp = gaveUp{seq: s.e.Seq, step: s.index, err: sumOfError(err), any: err == nil || err.Code == events.CodeTooLarge, undo: k == events.Undo,
		caught: k == events.Do && s.run.catches}
	if !s.t.plan.StepKindOf(s.index, k).CallsAgent() {
		s.run.running = false // its time is over
	}
	if (k == events.Do || s.beingCaught()) && !s.t.steps[s.index].flags.has(erred) {
		s.mark(erred)
		s.t.open.erred++
	}
}

// countSettled counts a step that is no longer in error.
func (s *eventCheck) countSettled() {
	if s.t.steps[s.index].flags.has(erred) {
		s.unmark(erred)
		s.t.open.erred--
	}
}

// endAttempt ends the running attempt.
func (s *eventCheck) endAttempt() {
	s.endSilence()
	s.run.running, s.run.closed = false, s.e.Fact.Type()
	a := &s.t.attempts[s.run.index]
	a.ended, a.below = true, s.replied
}

// countFailed counts a failure of a running attempt, or of a request that couldn't be sent.
func (s *eventCheck) countFailed() {
	f, ok := s.e.Fact.(*events.AttemptFailed)
	if !ok {
		return
	}
	if s.run.running {
		s.endAttempt()
	} else {
		s.run.attempt, s.run.closed = f.Attempt, s.e.Fact.Type()
		s.run.fresh++
	}
	s.countCode(f.Error)
	base := s.e.Due
	if base.IsZero() {
		base = s.e.At
	}
	if f.Deferred {
		s.countDeferred(base)
	} else {
		s.countFailure(base)
	}
	if f.Kind == events.Do && f.Effect != events.EffectNone {
		s.mark(unknown)
	}
}

// countDeferred counts an attempt whose agent did nothing and asked to be called later. It isn't a failure.
func (s *eventCheck) countDeferred(due time.Time) {
	r := s.run
	r.cooled = false
	r.fresh--
	r.failedAt, r.waits, r.granted = due, false, false
	r.backOff(s.t, s.index, s.slot.Kind)
}

// countFailure counts a failure. The next attempt may not start before its backoff has passed since the timer was due.
func (s *eventCheck) countFailure(due time.Time) {
	r := s.run
	r.failures++
	r.failedAt, r.waits, r.granted = due, false, false
	r.backOff(s.t, s.index, s.slot.Kind)
}

// backOff computes how long a failed run waits at least, by the plan of its task.
func (r *run) backOff(t *task, step int, k events.Kind) {
	rule := t.plan.AttemptsOf(step, k)
	if r.failures < rule.MaxAttempts {
		r.notBefore = r.failedAt.Add(rule.Delay(t.id, t.plan.Steps[step].ID, k, r.attempt, r.failures))
	} else {
		r.notBefore = r.failedAt.Add(rule.CoolDown)
	}
}

func (s *eventCheck) countReleased() {
	i, ok := s.t.plan.Step(s.about.Step)
	if !ok {
		return
	}
	s.index = i
	s.t.open.run(i, events.Do).dropProgress()
	s.t.open.run(i, events.Undo).dropProgress()
	if s.about.As == events.StepUndone {
		s.mark(handUndone)
		if s.t.open.state.Ending == "" {
			s.countSettled()
			s.t.open.uncaught++
		}
		return
	}
	s.unmark(unknown)
	s.countSettled()
	s.mark(handSettled)
	s.t.open.run(i, events.Do).done = s.e.Seq
}

// countInterrupted ends running steps that have no agent at work.
func (s *eventCheck) countInterrupted() {
	for i := range s.t.steps {
		if r := s.t.open.run(i, events.Do); !s.t.plan.Steps[i].StepKind.CallsAgent() {
			if s.index = i; r.running && s.t.plan.Steps[i].StepKind == events.WorkflowStep {
				s.interruptChild(r)
			}
			r.running = false
		}
	}
	s.t.open.unwithdrawn = s.first && s.e.Cause.Inbox == events.Tasks
	s.countTakenOver()
}

// countResumed resets the failures of runs that aren't running: those of steps, or of undos if the task is undoing.
func (s *eventCheck) countResumed() {
	kind, over := events.Do, completed|handSettled|caught
	if s.t.open.state.Ending != "" {
		kind, over = events.Undo, undone|handUndone
	}
	for i := range s.t.steps {
		s.index = i
		k, over := kind, over
		if kind == events.Do {
			s.countSettled()
			s.resumeCheck(i)
		}
		if s.t.steps[i].flags.has(catching) {
			k, over = events.Undo, undone|handUndone
		}
		if r := s.t.open.run(i, k); !r.running && !s.t.steps[i].flags.has(over) {
			s.countFresh(r, k)
		}
	}
}
