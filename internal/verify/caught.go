package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// catchable reports whether the step of a run catches an error, by its plan. exhausted says that no attempt is left.
func (s *eventCheck) catchable(err *events.Error, exhausted bool) bool {
	if err == nil || s.slot.Kind != events.Do {
		return false
	}
	codes := []string{err.Code}
	if exhausted {
		codes = append(codes, events.CodeTriesExhausted)
	}
	return s.t.plan.Catches(s.index, codes...)
}

// countError records the error of a step, and whether the step catches it.
func (s *eventCheck) countError(err *events.Error) {
	if s.slot.Kind != events.Do {
		return
	}
	r := s.run
	exhausted := s.about.Verb == events.VerbErrored && err != nil && !r.final && r.code == sumOfText(err.Code) &&
		r.failures >= s.t.plan.AttemptsOf(s.index, events.Do).MaxAttempts
	r.err, r.catches = sumOfError(err), s.catchable(err, exhausted)
	if err != nil && err.Code == events.CodeTooLarge {
		r.err = 0 // it may stand for another error, which the event had no room for
	}
}

// checkCaught checks that an error is caught that the step catches, and that its effect is undone or known (P21).
func (s *eventCheck) checkCaught() *Fault {
	i, ok := s.t.plan.Step(s.about.Step)
	if !ok {
		return nil
	}
	f, id, r := s.t.steps[i].flags, s.about.Step, s.t.open.run(i, events.Do)
	switch {
	case f.has(unknown) && s.t.plan.Steps[i].Undo != nil && !f.has(undone|handUndone):
		return faultf("P21", "the error of step %q is caught, and what it may have changed isn't undone", id)
	case !f.has(erred) && !f.has(catching):
		return faultf("P2", "step %q is caught, and it isn't in error", id)
	case s.t.open.state.Ending != "":
		return faultf("P2", "step %q is caught, and the task is being undone", id)
	case r.err != 0 && r.err != sumOfError(s.about.Error()):
		return faultf("P2", "step %q is caught for another error than its own", id)
	case !r.catches:
		return faultf("P2", "the error of step %q is caught, and its plan doesn't say so", id)
	}
	return nil
}

func (s *eventCheck) countCaught() {
	i, ok := s.t.plan.Step(s.about.Step)
	if !ok {
		return
	}
	s.index = i
	if s.t.steps[i].flags.has(catching) {
		s.t.open.uncaught--
	}
	s.countSettled()
	s.unmark(catching)
	s.mark(caught)
}

// checkCatch checks that the undo of a step begins while the task goes on only because the step's error is caught, and that
// its effect is unknown (P21).
func (s *eventCheck) checkCatch() *Fault {
	f := s.t.steps[s.index].flags
	if s.t.open.state.State != events.StateProcessing || !f.has(erred) || !f.has(unknown) || !s.t.open.run(s.index, events.Do).catches {
		return faultf("P6", "undo of step %q while the task is %s, and no error of it is caught", s.slot.Step, s.t.open.state.State)
	}
	return nil
}

// beingCaught reports whether the event is about the undo of a step that is being caught.
func (s *eventCheck) beingCaught() bool {
	return s.run != nil && s.slot.Kind == events.Undo && s.t.open.state.Ending == ""
}

// countCatching counts the beginning of an undo while the task goes on: the step is being caught, and no longer in error.
func (s *eventCheck) countCatching() {
	if s.beingCaught() && !s.t.steps[s.index].flags.has(catching) {
		s.countSettled()
		s.mark(catching)
	}
}

// countTakenOver gives the undos of steps that are being caught a fresh budget, since the undo of the task takes them
// over. It doesn't change running ones.
func (s *eventCheck) countTakenOver() {
	for i := range s.t.steps {
		if s.index = i; !s.t.steps[i].flags.has(catching) || s.t.steps[i].flags.has(undone|handUndone) {
			continue
		}
		s.countSettled()
		if r := s.t.open.run(i, events.Undo); !r.running {
			s.countFresh(r, events.Undo)
		}
	}
}

// countFresh gives a run a fresh budget, and a new key if its last attempt was rejected.
func (s *eventCheck) countFresh(r *run, k events.Kind) {
	r.fresh, r.failures, r.cooled, r.final, r.calls, r.notBefore = 0, 0, false, false, 0, time.Time{}
	r.failedAt, r.waits, r.granted = time.Time{}, false, false
	if !r.rejected {
		return
	}
	r.rejected, r.renewed = false, true
	r.dropProgress()
	if k == events.Do {
		s.t.steps[s.index].generation++
	} else {
		s.t.steps[s.index].undoing++
	}
}
