package events

import (
	"fmt"
	"slices"
)

// A task goes through one life, whoever follows it: the fold of the task itself (evolve.go) and the
// row of a list (summary.go) hold different parts of it, and both move it by the functions below.
// They hold no state: they say where a fact takes what stands in a state. A supervisor's
// timers (timers.go) follow the same facts by their About alone.

// taskAfter is the state that a fact of the task makes. ending is what it is being undone to; empty: it isn't.
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
	case ending != "": // what was held goes on where it was
		return StateUndoing, nil
	}
	return StateProcessing, nil
}

// stance is where a step and its undo stand. An empty undo hasn't begun.
type stepStates struct{ step, undo StepState }

// after is where a fact of the step takes it, in a task of some state.
func (s stepStates) next(a *About, task TaskState) (stepStates, error) {
	table := StepTransitions
	if a.Kind == Undo {
		r, ok := row(UndoTransitions, a.Verb, s.undo)
		if !ok {
			return s, fmt.Errorf("the table of undos has no %q in state %q", a.Verb, s.undo)
		}
		table, s.undo = undoneSteps, r.To
	}
	r, ok := row(table, a.Verb, s.step)
	switch {
	case !ok:
		return s, fmt.Errorf("the table of steps has no %q in state %s", a.tableVerb(), s.step)
	case !slices.Contains(r.During, task):
		return s, fmt.Errorf("the table of steps has no %q while the task is %s", a.tableVerb(), task)
	}
	if s.step = r.To; r.To == "" {
		return s.afterRelease(a, r)
	}
	return s, nil
}

// released is where a step, or the undo that holds it, is by an operator's word.
func (s stepStates) afterRelease(a *About, r *Transition[StepState]) (stepStates, error) {
	if !slices.Contains(r.Either, a.As) {
		return s, fmt.Errorf("released as %q", a.As)
	}
	s.step = a.As
	if s.undo == "" {
		return s, nil
	}
	u, ok := row(UndoTransitions, a.Verb, s.undo)
	if !ok || a.As != StepUndone {
		return s, fmt.Errorf("released as %s while its undo is %s", a.As, s.undo)
	}
	s.undo = u.To
	return s, nil
}

// inTable is the verb as the table of steps has it.
func (a *About) tableVerb() Verb {
	if a.Kind == Undo {
		return undoPrefix + a.Verb
	}
	return a.Verb
}

// ended is where a step is after a decision to undo or hold: what waits ends, an undo too; running attempts
// stay current.
func (s stepStates) afterEnd() stepStates {
	if r, ok := row(StepTransitions, verbEnded, s.step); ok {
		s.step = r.To
	}
	if r, ok := row(UndoTransitions, verbEnded, s.undo); ok {
		s.undo = r.To
	}
	return s
}

// revived is where a step is in a task that goes on after a hold; false: it isn't among what a hold ended.
func (s stepStates) afterRevive(task TaskState) (stepStates, bool) {
	table := StepTransitions
	if task == StateUndoing {
		table = undoneSteps
		u, ok := row(UndoTransitions, verbRevived, s.undo)
		if !ok {
			return s, false
		}
		s.undo = u.To
	}
	r, ok := row(table, verbRevived, s.step)
	return stepStates{r.To, s.undo}, ok
}

// numbered checks the number of an attempt. last is that of the run's last one. What begins one counts on
// from there; all else is about the last. A failure of what isn't running is that of a request that could
// not be sent: an attempt with a number of its own.
func (a *About) checkAttempt(last int, running bool) error {
	switch {
	case a.Phase == PhaseNone:
	case a.Phase == PhaseStarted || a.Verb == VerbFailed && !running:
		if a.Attempt != last+1 {
			return fmt.Errorf("attempt %d is next, not %d", last+1, a.Attempt)
		}
	case a.Attempt != last:
		return fmt.Errorf("attempt %d is current, not %d", last, a.Attempt)
	}
	return nil
}
