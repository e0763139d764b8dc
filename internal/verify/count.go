package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// What happened is counted apart from the fold: the checkers must not lean on the code that they check.

func (s *turn) completed() {
	s.end()
	if s.run.done = s.e.Seq; s.about.Kind == events.Undo {
		s.mark(undone)
	} else {
		s.unmark(unknown)
		s.mark(completed)
	}
}

func (s *turn) rejected() {
	s.end()
	s.run.rejected = true
	s.errored()
}

func (s *turn) skipped() {
	if i, ok := s.t.plan.Step(s.about.Step); ok {
		s.index = i
		s.mark(skipped)
	}
}

func (s *turn) expired() {
	due := s.t.attempts[s.run.index].due
	s.end()
	s.failure(time.UnixMilli(due))
	if s.about.Kind == events.Do {
		s.mark(unknown)
	}
}

func (s *turn) waits() {
	s.run.notBefore = s.e.Due
	if f, ok := s.e.Fact.(*events.AttemptWaiting); ok {
		s.run.cooled = s.run.cooled || f.CoolDown
	}
}

func (s *turn) mark(f flags) {
	was := s.t.steps[s.index].flags
	if !was.has(done) && f.has(done) {
		s.t.open.done++
	}
	s.t.steps[s.index].flags = was | f
}
func (s *turn) unmark(f flags) { s.t.steps[s.index].flags &^= f }

func (s *turn) started() {
	f, ok := s.e.Fact.(*events.AttemptStarted)
	if !ok {
		return
	}
	r := s.run
	r.attempt, r.running, r.began = f.Attempt, true, s.e.Seq
	r.fresh++
	r.key, r.renewed, r.notBefore = f.Key, false, time.Time{}
	r.index = len(s.t.attempts)
	s.t.attempts = append(s.t.attempts, attempt{due: millis(s.e.Due), started: millis(s.r.Time), token: sumOfText(f.TokenHash),
		step: uint16(s.index), number: uint16(f.Attempt), undo: f.Kind == events.Undo,
		generation: uint8(min(s.t.steps[s.index].generationOf(f.Kind), manyGenerations))})
	if f.Kind == events.Undo {
		s.mark(undoAsked)
	}
	s.c.started(s.t, s.index, f)
}

// errored: a step is in error.
func (s *turn) errored() {
	k, err := s.about.Kind, s.about.Error()
	s.t.open.gaveUp = gaveUp{s.e.Seq, s.index, sumOfError(err), err == nil || err.Code == events.CodeTooLarge}
	if k == events.Do && !s.t.steps[s.index].flags.has(erred) {
		s.mark(erred)
		s.t.open.erred++
	}
}

// settles: it isn't any more.
func (s *turn) settles() {
	if s.t.steps[s.index].flags.has(erred) {
		s.unmark(erred)
		s.t.open.erred--
	}
}

// end ends the running attempt.
func (s *turn) end() {
	s.run.running, s.run.closed = false, s.e.Fact.Type()
	a := &s.t.attempts[s.run.index]
	a.ended, a.below = true, s.replied
}

// failed: of a running attempt, or of a request that couldn't be sent.
func (s *turn) failed() {
	f, ok := s.e.Fact.(*events.AttemptFailed)
	if !ok {
		return
	}
	if s.run.running {
		s.end()
	} else {
		s.run.attempt, s.run.closed = f.Attempt, s.e.Fact.Type()
		s.run.fresh++
	}
	base := s.e.Due
	if base.IsZero() {
		base = s.e.At
	}
	if f.Deferred {
		s.deferred(base)
	} else {
		s.failure(base)
	}
	if f.Kind == events.Do && f.Effect != events.EffectNone {
		s.mark(unknown)
	}
}

// deferred: the agent did nothing and asked to be called later, which counts as no failure.
func (s *turn) deferred(due time.Time) {
	r := s.run
	r.cooled = false
	r.fresh--
	rule := s.t.plan.AttemptsOf(s.index, s.slot.Kind)
	r.notBefore = due.Add(rule.Delay(s.t.id, s.slot.Step, s.slot.Kind, r.attempt, r.failures))
	if r.failures >= rule.MaxAttempts {
		r.notBefore = due.Add(rule.CoolDown)
	}
}

// failure counts one: the next attempt may not begin before its backoff, from
// the instant that its timer was due.
func (s *turn) failure(due time.Time) {
	r := s.run
	r.failures++
	rule := s.t.plan.AttemptsOf(s.index, s.slot.Kind)
	if r.failures < rule.MaxAttempts {
		r.notBefore = due.Add(rule.Delay(s.t.id, s.slot.Step, s.slot.Kind, r.attempt, r.failures))
	} else {
		r.notBefore = due.Add(rule.CoolDown)
	}
}

func (s *turn) released() {
	i, ok := s.t.plan.Step(s.about.Step)
	if !ok {
		return
	}
	s.index = i
	if s.about.As == events.StepUndone {
		s.mark(handUndone)
		return
	}
	s.unmark(unknown)
	s.settles()
	s.mark(handSettled)
	s.t.open.run(i, events.Do).done = s.e.Seq
}

// resumed: what doesn't run starts afresh, of steps or of undos.
func (s *turn) resumed() {
	kind, over := events.Do, completed|handSettled
	if s.t.open.state.Ending != "" {
		kind, over = events.Undo, undone|handUndone
	}
	for i := range s.t.steps {
		if s.index = i; kind == events.Do {
			s.settles()
		}
		r := s.t.open.run(i, kind)
		if r.running || s.t.steps[i].flags.has(over) {
			continue
		}
		r.fresh, r.failures, r.cooled, r.notBefore = 0, 0, false, time.Time{}
		if r.rejected {
			r.rejected, r.renewed = false, true
			if kind == events.Do {
				s.t.steps[i].generation++
			} else {
				s.t.steps[i].undoing++
			}
		}
	}
}
