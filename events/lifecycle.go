package events

import (
	"fmt"
	"slices"
)

// The lifecycle of a task is the same for every reader. The fold of the task (evolve.go) and the row of a list
// (summary.go) store different parts of it. Both call the functions below, which are pure: they map a fact and a state
// to the next state. A supervisor's timers (timers.go) need only the About of the same facts.

// nextTaskState returns the state of the task after a fact about it. ending is the state in which the task's undo will
// end; empty: no undo has begun.
func (a *About) nextTaskState(from, ending TaskState) (TaskState, error) {
	if a.Verb == VerbUndoing && a.Ending != StateUndone && a.Ending != StateCancelled {
		return "", fmt.Errorf("undoing ends in %q: neither undone nor cancelled", a.Ending)
	}
	r, ok := row(TaskTransitions, a.Verb, from)
	switch {
	case !ok:
		return "", fmt.Errorf("the table of tasks has no %q here", a.Verb)
	case r.To != "":
		return r.To, nil
	case ending != "": // a resumed task continues as before the hold
		return StateUndoing, nil
	}
	return StateProcessing, nil
}

// stepStates are the states of a step, of its undo and of its check. Those of undo and check are empty before they begin.
type stepStates struct{ step, undo, check StepState }

// next returns the states after a fact about the step. task is the state of the task.
func (s stepStates) next(a *About, task TaskState) (stepStates, error) {
	table := StepTransitions
	if a.Kind == Undo {
		r, ok := row(UndoTransitions, a.Verb, s.undo)
		if !ok {
			return s, fmt.Errorf("the table of undos has no %q in state %q", a.Verb, s.undo)
		}
		table, s.undo = undoneSteps, r.To
	}
	switch {
	case a.Kind == Check:
		r, ok := row(CheckTransitions, a.Verb, s.check)
		if !ok {
			return s, fmt.Errorf("the table of checks has no %q in state %q", a.Verb, s.check)
		}
		table, s.check = checkedSteps, r.To
	case s.check == StepRunning && (a.Phase.Begins() || a.Verb == VerbReleased):
		return s, fmt.Errorf("%q while a check of the step runs", a.tableVerb())
	}
	r, ok := row(table, a.Verb, s.step)
	switch {
	case !ok:
		return s, fmt.Errorf("the table of steps has no %q in state %s", a.tableVerb(), s.step)
	case !slices.Contains(r.During, task):
		return s, fmt.Errorf("the table of steps has no %q while the task is %s", a.tableVerb(), task)
	}
	if a.Verb == VerbCaught && s.undo != "" && s.undo != StepCompleted {
		return s, fmt.Errorf("caught while its undo is %s", s.undo)
	}
	switch {
	case a.Kind == Check:
		return s.nextOfCheck(a, r, task), nil
	case r.To != "":
		s.step = r.To
	case a.Verb == VerbItem: // the state stays
	case a.Verb == VerbRepeated:
		s.step = afterCall(task)
	default:
		return s.afterRelease(a, r)
	}
	return s, nil
}

// afterCall returns the state of a step after a call that doesn't complete it. It waits for the next call, unless the
// task is held or being undone: then nothing new starts.
func afterCall(task TaskState) StepState {
	if task == StateProcessing {
		return StepWaiting
	}
	return StepCancelled
}

// afterRelease returns the states after an operator released the step. If its undo has begun, the undo must be in
// error, and is released with it.
func (s stepStates) afterRelease(a *About, r *Transition[StepState]) (stepStates, error) {
	if !slices.Contains(r.Either, a.As) {
		return s, fmt.Errorf("released as %q", a.As)
	}
	if s.step = a.As; s.undo == "" {
		return s, nil
	}
	u, ok := row(UndoTransitions, a.Verb, s.undo)
	if !ok || a.As != StepUndone {
		return s, fmt.Errorf("released as %s while its undo is %s", a.As, s.undo)
	}
	s.undo = u.To
	return s, nil
}

// tableVerb returns the fact's verb as the table of steps names it.
func (a *About) tableVerb() Verb {
	switch a.Kind {
	case Undo:
		return undoPrefix + a.Verb
	case Check:
		return checkPrefix + a.Verb
	case Do:
	}
	return a.Verb
}

// afterEnd returns the states after a decision to undo or hold. Waiting attempts of the step and of its undo end.
// Running attempts stay current. A running step without an agent at work goes on during a hold, and ends when the task
// is undone. The undo of a step that is being caught then becomes part of the task's undo, also if it was in error.
func (s stepStates) afterEnd(a *About, k StepKind) stepStates {
	if r, ok := row(StepTransitions, verbEnded, s.step); ok {
		s.step = r.To
	} else if r, ok := row(StepTransitions, verbInterrupted, s.step); ok && a.Verb == VerbUndoing && !k.CallsAgent() {
		s.step = r.To
	}
	if r, ok := row(UndoTransitions, verbEnded, s.undo); ok {
		s.undo = r.To
	}
	if r, ok := row(CheckTransitions, verbEnded, s.check); ok {
		s.check = r.To
	}
	if at, ok := s.afterRevive(StateUndoing); ok && a.Verb == VerbUndoing {
		return at
	}
	return s
}

// afterRevive returns the states in a task that continues after a hold. If the step's undo has begun, the undo
// continues. ok is false if the step needs no new attempt. The states are then invalid.
func (s stepStates) afterRevive(task TaskState) (stepStates, bool) {
	table := StepTransitions
	if task == StateUndoing || s.undo != "" {
		table = undoneSteps
		u, ok := row(UndoTransitions, verbRevived, s.undo)
		if !ok {
			return s, false
		}
		s.undo = u.To
	}
	r, ok := row(table, verbRevived, s.step)
	return stepStates{r.To, s.undo, s.check}, ok
}

// checkAttempt checks the number of the fact's attempt. last is the number of the run's last attempt. A fact that
// begins an attempt has the next number. Any other has the last number. A failure of a run that isn't running begins an
// attempt too, since its request could not be sent.
func (a *About) checkAttempt(last int, running bool) error {
	switch {
	case a.Phase == PhaseNone:
	case a.Phase.Begins() || a.Verb == VerbFailed && !running:
		if a.Attempt != last+1 {
			return fmt.Errorf("attempt %d is next, not %d", last+1, a.Attempt)
		}
	case a.Attempt != last:
		return fmt.Errorf("attempt %d is current, not %d", last, a.Attempt)
	}
	return nil
}
