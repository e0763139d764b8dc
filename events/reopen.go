package events

import (
	"errors"
	"fmt"
)

// An undo of a processed task continues a task that has ended. What readers keep of an ended task isn't enough for
// that, so the event itself has the whole state: a fold needs no other event.

// ProcessedTask returns the state that the event has of the processed task that it undoes; nil: it has none.
func (e *Event) ProcessedTask() (*Task, error) {
	f, ok := e.Fact.(*TaskUndoing)
	if !ok || len(f.Processed) == 0 {
		return nil, nil
	}
	return f.processedTask(e.Task)
}

func (f *TaskUndoing) processedTask(id string) (*Task, error) {
	t, err := DecodeTask(f.Processed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("processed: %w", err)
	case t.ID != id || t.State != StateProcessed || t.Plan == nil:
		return nil, fmt.Errorf("processed: it is of task %q in state %s, with a plan: %v", t.ID, t.State, t.Plan != nil)
	}
	return t, nil
}

// Reopened reports whether the task is open, and was processed before: an operator undoes it. No other open task has an
// output.
func (t *Task) Reopened() bool { return t.Open() && len(t.Output) > 0 }

// reopen replaces the state of a processed task by the whole state that the fact has. It does nothing to other tasks,
// and changes nothing if it fails.
func (t *Task) reopen(f *TaskUndoing) error {
	if t.State != StateProcessed {
		if len(f.Processed) > 0 {
			return errors.New("it has the state of a processed task, and the task isn't processed")
		}
		return nil
	}
	if a := f.About(); len(f.Processed) == 0 {
		return errors.New("it lacks the state of the processed task")
	} else if _, err := a.nextTaskState(t.State, t.Ending); err != nil {
		return err
	}
	whole, err := f.processedTask(t.ID)
	switch {
	case err != nil:
		return err
	case whole.Seq != t.Seq || whole.Prev != t.Prev:
		return fmt.Errorf("processed: it is as of event %d with the hash %q; the task is as of event %d with the hash %q", whole.Seq, whole.Prev, t.Seq, t.Prev)
	}
	*t = *whole
	return nil
}

// reopen gives the row of a processed task its steps again, from the event that undoes it.
func (s *Summary) reopen(e *Event) (ok bool) {
	f, undoing := e.Fact.(*TaskUndoing)
	switch {
	case !undoing:
		return true
	case s.State != StateProcessed:
		return len(f.Processed) == 0
	}
	t, err := f.processedTask(s.ID)
	if err != nil || t.Seq != s.Seq {
		return false
	}
	s.Steps = make([]StepSummary, len(t.Steps))
	for i := range t.Steps {
		s.Steps[i] = t.stepSummary(i)
	}
	return true
}
