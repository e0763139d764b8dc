package events

import (
	"fmt"
	"time"
)

// Evolve is the fold: it takes a task's state (nil before the first event) and
// its next event, and returns the state after it. It changes t and the result
// shares its memory: Clone first if the state before is still wanted. hash is
// Hash of the event's record, which the next event names as prev.
//
// An error means that the log isn't a task's history: a gap in seq, a broken
// chain, a transition that the table doesn't have. t is then unchanged.
func Evolve(t *Task, e *Event, hash string) (*Task, error) {
	if err := follows(t, e); err != nil {
		return t, err
	}
	if f, ok := e.Fact.(*TaskReceived); ok {
		t = received(e, f)
	} else if err := apply(t, e); err != nil {
		return t, fmt.Errorf("event %s of task %q in state %s: %w", TaskEventID(e.Task, e.Seq), e.Task, t.State, err)
	}
	t.Seq, t.Prev, t.UpdatedAt = e.Seq, hash, e.At
	return t, nil
}

// follows checks that e is the next event of t.
func follows(t *Task, e *Event) error {
	_, first := e.Fact.(*TaskReceived)
	switch {
	case t == nil && (!first || e.Seq != 1):
		return fmt.Errorf("event %s of task %q: its history doesn't begin here (%s)", TaskEventID(e.Task, e.Seq), e.Task, e.Fact.Type())
	case t == nil:
		return nil
	case first:
		return fmt.Errorf("event %s of task %q: received again", TaskEventID(e.Task, e.Seq), e.Task)
	case e.Seq != t.Seq+1:
		return fmt.Errorf("event %s of task %q: seq %d follows %d", TaskEventID(e.Task, e.Seq), e.Task, e.Seq, t.Seq)
	case e.Prev != t.Prev:
		return fmt.Errorf("event %s of task %q: prev is %q, the event before hashes to %q", TaskEventID(e.Task, e.Seq), e.Task, e.Prev, t.Prev)
	}
	return nil
}

func received(e *Event, f *TaskReceived) *Task {
	t := &Task{
		ID: e.Task, Workflow: f.Workflow, Version: f.Version, State: StatePending,
		Priority: f.Priority, Labels: f.Labels, ReplyTo: f.ReplyTo, Traceparent: f.Traceparent,
		SubmittedAt: e.At, Digest: f.Digest, Input: f.Input, Plan: f.Plan,
		CompleteBy: f.CompleteBy, StatusSeq: e.Seq,
	}
	t.Steps = make([]Step, len(f.Plan.Steps))
	for i := range t.Steps {
		t.Steps[i].State = StepPending
	}
	return t
}

func apply(t *Task, e *Event) error {
	switch f := e.Fact.(type) {
	case *TaskStarted:
		t.CompleteBy = e.Due
		return t.enter(e, "started", "")
	case *TaskProcessed:
		t.Output = f.Output
		return t.enter(e, "processed", "")
	case *TaskUndoing:
		return t.undoing(e, f)
	case *TaskUndone:
		return t.enter(e, "undone", "")
	case *TaskCancelled:
		if err := t.enter(e, "cancelled", ""); err != nil {
			return err
		}
		t.accept(e, f.By)
		return nil
	case *TaskHeld:
		if err := t.enter(e, "held", ""); err != nil {
			return err
		}
		t.Error = f.Error
		t.endWaiting()
		return nil
	case *TaskResumed:
		return t.resumed(e, f)
	}
	return applyToStep(t, e)
}

// enter moves the task by the table. either chooses where the row leaves it
// open.
func (t *Task) enter(e *Event, verb string, either TaskState) error {
	r, ok := row(TaskTransitions, verb, t.State)
	if !ok {
		return fmt.Errorf("the table of tasks has no %q here", verb)
	}
	if t.State = r.To; r.To == "" {
		t.State = either
	}
	t.StatusSeq = e.Seq
	t.Timer = armed(e)
	return nil
}

// armed is the timer that an event arms; none disarms.
func armed(e *Event) Timer {
	if e.Due.IsZero() {
		return Timer{}
	}
	return Timer{Seq: e.Seq, Due: e.Due}
}

func (t *Task) accept(e *Event, by By) {
	if by.RequestID == "" {
		return
	}
	t.Accepted = append(t.Accepted, Accepted{by.RequestID, e.Seq})
	if n := len(t.Accepted) - MaxAcceptedControls; n > 0 {
		t.Accepted = t.Accepted[n:]
	}
}

func (t *Task) undoing(e *Event, f *TaskUndoing) error {
	if err := t.enter(e, "undoing", ""); err != nil {
		return err
	}
	t.Ending, t.Keep = f.Ending, f.Keep
	if f.Error != nil {
		t.Error = f.Error
	}
	t.accept(e, f.By)
	t.endWaiting()
	return nil
}

// endWaiting: on a decision to undo or hold what waits ends; running attempts
// stay current.
func (t *Task) endWaiting() {
	for i := range t.Steps {
		s := &t.Steps[i]
		if r, ok := row(StepTransitions, "ended", s.State); ok {
			s.State = r.To
			s.Timer = Timer{}
		}
	}
}

// resumed: what a hold ended may start again, with a fresh failure count; an
// undo in error likewise.
func (t *Task) resumed(e *Event, f *TaskResumed) error {
	next := StateProcessing
	if t.Ending != "" {
		next = StateUndoing
	}
	if err := t.enter(e, "resumed", next); err != nil {
		return err
	}
	t.accept(e, f.By)
	t.Error = nil
	if next == StateProcessing {
		t.CompleteBy = e.Due
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if next == StateUndoing {
			s.reviveUndo()
		} else if r, ok := row(StepTransitions, "revived", s.State); ok {
			s.State = r.To
			s.Run.revive()
		}
	}
	return nil
}

func (s *Step) reviveUndo() {
	if s.Undo == nil {
		return
	}
	if r, ok := row(UndoTransitions, "revived", s.Undo.State); ok {
		s.State = StepUndoing
		s.Undo.State = r.To
		s.Undo.revive()
	}
}

// revive makes a run that ended ready for another attempt. Attempts go on
// counting; the key is renewed only after a rejection, since only then is it
// settled that the old one had no effect.
func (r *Run) revive() {
	r.FailureCount, r.CooledDown, r.Error = 0, false, nil
	r.EndedAt = time.Time{}
	if r.Rejected {
		r.Rejected = false
		r.Generation++
	}
}

func applyToStep(t *Task, e *Event) error {
	switch f := e.Fact.(type) {
	case *RunSkipped:
		return t.onRun(e, Do, f.Step, "skipped", 0, func(s *Step, r *Run) { r.EndedAt = e.At })
	case *RunReleased:
		return t.released(e, f)
	case *AttemptStarted:
		return t.attemptStarted(e, f)
	case *AttemptCompleted:
		return t.onRun(e, f.Kind, f.Step, "completed", f.Attempt, func(s *Step, r *Run) { s.completed(e, f, r) })
	case *AttemptFailed:
		return t.attemptFailed(e, f)
	case *AttemptExpired:
		return t.onRun(e, f.Kind, f.Step, "expired", f.Attempt, func(s *Step, r *Run) {
			t.countFailure(r)
			r.Error = &Error{Code: CodeExpired}
			s.Unknown = s.Unknown || f.Kind == Do
		})
	case *AttemptWaiting:
		return t.onRun(e, f.Kind, f.Step, "waiting", f.Attempt, func(s *Step, r *Run) {
			r.CooledDown = r.CooledDown || f.CoolDown
		})
	case *AttemptRejected:
		return t.onRun(e, f.Kind, f.Step, "rejected", f.Attempt, func(s *Step, r *Run) {
			r.Error, r.Rejected, r.EndedAt = f.Error, true, e.At
		})
	case *RunErrored:
		return t.onRun(e, f.Kind, f.Step, "errored", 0, func(s *Step, r *Run) {
			r.Error, r.EndedAt = f.Error, e.At
		})
	}
	return fmt.Errorf("no rule for %s", e.Fact.Type())
}

// onRun moves a step, or its undo and with it the step, by the tables, and then
// lets change set what the event brings. attempt 0: the event names none.
func (t *Task) onRun(e *Event, k Kind, step, verb string, attempt int, change func(*Step, *Run)) error {
	i, ok := t.Plan.Step(step)
	if !ok {
		return fmt.Errorf("the plan has no step %q", step)
	}
	s := &t.Steps[i]
	state, undo, err := s.move(k, verb)
	if err != nil {
		return fmt.Errorf("step %q: %w", step, err)
	}
	if k == Undo && s.Undo == nil {
		s.Undo = &Run{}
	}
	r := t.Run(i, k)
	if attempt != 0 && verb != "started" && attempt != r.Attempt {
		return fmt.Errorf("step %q: attempt %d is current, not %d", step, r.Attempt, attempt)
	}
	s.State = state
	if k == Undo {
		r.State = undo
	}
	r.Timer = armed(e)
	change(s, r)
	return nil
}

// move looks up where an event takes a step and its undo.
func (s *Step) move(k Kind, verb string) (step, undo StepState, err error) {
	if k == Do {
		r, ok := row(StepTransitions, verb, s.State)
		if !ok {
			return "", "", fmt.Errorf("the table of steps has no %q in state %s", verb, s.State)
		}
		return r.To, "", nil
	}
	from := StepState("")
	if s.Undo != nil {
		from = s.Undo.State
	}
	u, ok := row(UndoTransitions, verb, from)
	if !ok {
		return "", "", fmt.Errorf("the table of undos has no %q in state %q", verb, from)
	}
	step = StepUndoing
	if r, ok := row(StepTransitions, "undo."+verb, s.State); ok {
		step = r.To
	} else if s.State != StepUndoing && from != "" {
		return "", "", fmt.Errorf("the table of steps has no undo.%s in state %s", verb, s.State)
	}
	return step, u.To, nil
}

// countFailure counts a failed or expired attempt.
func (t *Task) countFailure(r *Run) {
	r.FailureCount++
	t.FailureCount++
}

func (t *Task) attemptStarted(e *Event, f *AttemptStarted) error {
	return t.onRun(e, f.Kind, f.Step, "started", f.Attempt, func(s *Step, r *Run) {
		if r.StartedAt.IsZero() {
			r.StartedAt = e.At
		}
		r.Attempt, r.Key, r.CompleteBy, r.StartedSeq = f.Attempt, f.Key, e.Due, e.Seq
		if len(f.Input) > 0 {
			r.Input = f.Input
		}
	})
}

func (s *Step) completed(e *Event, f *AttemptCompleted, r *Run) {
	r.Error, r.EndedAt = nil, e.At
	if f.Kind == Do {
		s.Output, s.Unknown, s.CompletedSeq = f.Output, false, e.Seq
	}
}

// attemptFailed: an attempt that failed before a request was sent (no such
// agent) is an attempt too, with a number of its own and without effect.
func (t *Task) attemptFailed(e *Event, f *AttemptFailed) error {
	return t.onRun(e, f.Kind, f.Step, "failed", 0, func(s *Step, r *Run) {
		t.countFailure(r)
		r.Attempt, r.Error = f.Attempt, f.Error
		s.Unknown = s.Unknown || f.Kind == Do && f.Effect != EffectNone
	})
}

// released: an operator settled a step in error, or its undo.
func (t *Task) released(e *Event, f *RunReleased) error {
	i, ok := t.Plan.Step(f.Step)
	if !ok {
		return fmt.Errorf("the plan has no step %q", f.Step)
	}
	s := &t.Steps[i]
	if _, ok := row(StepTransitions, "released", s.State); !ok {
		return fmt.Errorf("the table of steps has no released in state %s", s.State)
	}
	s.State, s.Unknown, s.Timer = f.As, false, Timer{}
	s.Run.Error, s.Run.EndedAt = nil, e.At
	if f.As == StepCompleted {
		s.Output, s.CompletedSeq = f.Output, e.Seq
	}
	if u := s.Undo; u != nil && f.As == StepUndone {
		if _, ok := row(UndoTransitions, "released", u.State); ok {
			u.State, u.Error, u.EndedAt, u.Timer = StepCompleted, nil, e.At, Timer{}
		}
	}
	t.accept(e, f.By)
	return nil
}

// Evolve folds an event into the state of its partition.
func (p *PartitionState) Evolve(e *Event) error {
	if e.Epoch < p.Epoch {
		return fmt.Errorf("epoch falls from %d to %d", p.Epoch, e.Epoch)
	}
	if e.At.Before(p.At) {
		return fmt.Errorf("at falls from %s to %s", p.At.Format(TimeLayout), e.At.Format(TimeLayout))
	}
	if f, ok := e.Fact.(*PartitionClaimed); ok {
		if e.Epoch != p.Epoch+1 {
			return fmt.Errorf("claim: epoch %d follows %d", e.Epoch, p.Epoch)
		}
		p.Owner = f.Owner
	}
	p.Epoch, p.At = e.Epoch, e.At
	if next := e.Cause.Offset + 1; next > p.Reflected[e.Cause.Inbox] {
		p.Reflected[e.Cause.Inbox] = next
	}
	return nil
}
