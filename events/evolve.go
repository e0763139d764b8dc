package events

import (
	"errors"
	"fmt"
	"slices"
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
		return t, fmt.Errorf("event %s: %w", TaskEventID(e.Task, e.Seq), err)
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
	f, first := e.Fact.(*TaskReceived)
	switch {
	case e.Due.IsZero() != (e.Policy == nil):
		// A timer that no supervisor knows how to treat would never fire.
		return fmt.Errorf("%s: due and policy go together", e.Fact.Type())
	case t == nil && (!first || e.Seq != 1):
		return fmt.Errorf("the task's history doesn't begin here (%s)", e.Fact.Type())
	case t == nil && e.Prev != "":
		return fmt.Errorf("prev is %q in a task's first event", e.Prev)
	case t == nil && f.Plan == nil:
		return fmt.Errorf("received without a plan")
	case t == nil:
		return nil
	case e.Task != t.ID:
		return fmt.Errorf("%s is not of task %q", e.Fact.Type(), t.ID)
	case first:
		return fmt.Errorf("received again")
	case e.Seq != t.Seq+1:
		return fmt.Errorf("seq %d follows %d", e.Seq, t.Seq)
	case e.Prev != t.Prev:
		return fmt.Errorf("prev is %q, the event before hashes to %q", e.Prev, t.Prev)
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
	t.Steps = newSteps(len(f.Plan.Steps))
	return t
}

func apply(t *Task, e *Event) error {
	switch f := e.Fact.(type) {
	case *TaskStarted:
		if err := t.enter(e, "started", ""); err != nil {
			return err
		}
		t.CompleteBy = e.Due
		return nil
	case *TaskProcessed:
		if err := t.enter(e, "processed", ""); err != nil {
			return err
		}
		t.Output = f.Output
		return nil
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
	if t.State.Terminal() {
		t.disarm(false)
	}
	return nil
}

// disarm ends the timers of the steps; those of running attempts stay if they
// are to be kept.
func (t *Task) disarm(keepRunning bool) {
	armed := func(r *Run) bool { return r != nil && r.Timer != Timer{} && (!keepRunning || r.State != StepRunning) }
	for i, s := range t.Steps {
		if armed(&s.Run) {
			t.OwnStep(i).Timer = Timer{}
		}
		if armed(s.Undo) {
			t.OwnStep(i).Undo.Timer = Timer{}
		}
	}
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
	if f.Ending != StateUndone && f.Ending != StateCancelled {
		return fmt.Errorf("undoing ends in %q: neither undone nor cancelled", f.Ending)
	}
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

// endWaiting: on a decision to undo or hold what waits ends, an undo too;
// running attempts stay current.
func (t *Task) endWaiting() {
	for i, s := range t.Steps {
		if r, ok := row(StepTransitions, "ended", s.State); ok {
			t.OwnStep(i).State = r.To
		}
		if s.Undo != nil {
			if r, ok := row(UndoTransitions, "ended", s.Undo.State); ok {
				t.OwnStep(i).Undo.State = r.To
			}
		}
	}
	t.disarm(true)
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
	for i, s := range t.Steps {
		if next == StateUndoing {
			t.reviveUndo(i)
		} else if r, ok := row(StepTransitions, "revived", s.State); ok {
			s = t.OwnStep(i)
			s.State = r.To
			s.Run.revive()
		}
	}
	t.disarm(true)
	return nil
}

func (t *Task) reviveUndo(i int) {
	s := t.Steps[i]
	if s.Undo == nil {
		return
	}
	step, ok := row(StepTransitions, "undo.revived", s.State)
	undo, ok2 := row(UndoTransitions, "revived", s.Undo.State)
	if ok && ok2 {
		s = t.OwnStep(i)
		s.State, s.Undo.State = step.To, undo.To
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
	if !t.Open() {
		return fmt.Errorf("the table of steps has no row for a task that has ended")
	}
	switch f := e.Fact.(type) {
	case *RunSkipped:
		return t.onRun(e, Do, f.Step, "skipped", unnumbered, func(s *Step, r *Run) { r.EndedAt = e.At })
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
		return t.onRun(e, f.Kind, f.Step, "errored", unnumbered, func(s *Step, r *Run) {
			r.Error, r.EndedAt = f.Error, e.At
		})
	}
	return fmt.Errorf("no rule for %s", e.Fact.Type())
}

// unnumbered is the attempt of an event that names none.
const unnumbered = -1

// onRun moves a step, or its undo and with it the step, by the tables, and then
// lets change set what the event brings. Everything is checked before anything
// is changed.
func (t *Task) onRun(e *Event, k Kind, step, verb string, attempt int, change func(*Step, *Run)) error {
	i, ok := t.Plan.Step(step)
	if !ok {
		return fmt.Errorf("the plan has no step %q", step)
	}
	state, undo, err := t.move(i, k, verb)
	if err == nil {
		err = numbered(verb, attempt, t.Run(i, k))
	}
	if err != nil {
		return fmt.Errorf("step %q: %w", step, err)
	}
	s := t.OwnStep(i)
	if k == Undo && s.Undo == nil { // it begins
		s.Undo = &Run{}
	}
	s.State = state
	r := t.Run(i, k)
	if k == Undo {
		r.State = undo
	}
	r.Timer = armed(e)
	change(s, r)
	return nil
}

// move looks up where an event takes a step and its undo.
func (t *Task) move(i int, k Kind, verb string) (step, undo StepState, err error) {
	s, prefix := t.Steps[i], ""
	if k == Undo {
		if t.Plan.Steps[i].Undo == nil {
			return "", "", fmt.Errorf("the plan has no undo of it")
		}
		prefix = "undo."
		from := StepState("")
		if s.Undo != nil {
			from = s.Undo.State
		}
		r, ok := row(UndoTransitions, verb, from)
		if !ok {
			return "", "", fmt.Errorf("the table of undos has no %q in state %q", verb, from)
		}
		undo = r.To
	}
	r, ok := row(StepTransitions, prefix+verb, s.State)
	if !ok {
		return "", "", fmt.Errorf("the table of steps has no %q in state %s", prefix+verb, s.State)
	}
	if !slices.Contains(r.During, t.State) {
		return "", "", fmt.Errorf("the table of steps has no %q while the task is %s", prefix+verb, t.State)
	}
	return r.To, undo, nil
}

// numbered checks the number of an attempt. What begins one counts on from the
// last; all else is about the last. A failure of what isn't running is that of
// a request that could not be sent: an attempt with a number of its own.
func numbered(verb string, attempt int, r *Run) error {
	if r == nil {
		r = &Run{}
	}
	switch {
	case attempt == unnumbered:
	case verb == "started" || verb == "failed" && r.State != StepRunning:
		if attempt != r.Attempt+1 {
			return fmt.Errorf("attempt %d is next, not %d", r.Attempt+1, attempt)
		}
	case attempt != r.Attempt:
		return fmt.Errorf("attempt %d is current, not %d", r.Attempt, attempt)
	}
	return nil
}

// countFailure counts a failed or expired attempt.
func (t *Task) countFailure(r *Run) {
	r.FailureCount++
	t.FailureCount++
}

func (t *Task) attemptStarted(e *Event, f *AttemptStarted) error {
	if f.TaskInput && len(f.Input) > 0 {
		return errors.New("it has an input, and says that its input is the task's")
	}
	return t.onRun(e, f.Kind, f.Step, "started", f.Attempt, func(s *Step, r *Run) {
		if r.StartedAt.IsZero() {
			r.StartedAt = e.At
		}
		r.Attempt, r.Key, r.CompleteBy, r.StartedSeq, r.TokenHash = f.Attempt, f.Key, e.Due, e.Seq, f.TokenHash
		switch {
		case f.TaskInput:
			r.Input, r.TaskInput = t.Input, true
		case len(f.Input) > 0:
			r.Input, r.TaskInput = f.Input, false
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
	return t.onRun(e, f.Kind, f.Step, "failed", f.Attempt, func(s *Step, r *Run) {
		if f.Attempt != r.Attempt { // no request was sent
			r.TokenHash = ""
		}
		if f.Deferred {
			r.CooledDown = false // the attempt past max_attempts wasn't made: it can be granted again
		} else {
			t.countFailure(r)
		}
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
	s := t.Steps[i]
	r, ok := row(StepTransitions, "released", s.State)
	switch {
	case !ok:
		return fmt.Errorf("step %q: the table of steps has no released in state %s", f.Step, s.State)
	case !slices.Contains(r.During, t.State):
		return fmt.Errorf("step %q: the table of steps has no released while the task is %s", f.Step, t.State)
	case !slices.Contains(r.Either, f.As):
		return fmt.Errorf("step %q: released as %q", f.Step, f.As)
	}
	if s.Undo != nil {
		r, ok := row(UndoTransitions, "released", s.Undo.State)
		if !ok || f.As != StepUndone {
			return fmt.Errorf("step %q: released as %s while its undo is %s", f.Step, f.As, s.Undo.State)
		}
		u := t.OwnStep(i).Undo
		u.State, u.Error, u.EndedAt, u.Timer = r.To, nil, e.At, Timer{}
	}
	s = t.OwnStep(i)
	s.State, s.Unknown, s.Timer = f.As, false, Timer{}
	s.Run.Error, s.Run.EndedAt = nil, e.At
	if f.As == StepCompleted {
		s.Output, s.CompletedSeq = f.Output, e.Seq
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
		p.read(&f.TopicIDs)
	} else if e.Epoch != p.Epoch {
		return fmt.Errorf("epoch %d, which nobody claimed; %d is the last claim's", e.Epoch, p.Epoch)
	}
	p.Epoch, p.At = e.Epoch, e.At
	if next := e.Cause.Offset + 1; next > p.Reflected[e.Cause.Inbox] {
		p.Reflected[e.Cause.Inbox] = next
	}
	return nil
}

// read takes over the ids of the inboxes that the owner reads. The offsets of a topic that was
// deleted and created again begin at 0.
func (p *PartitionState) read(ids *TopicIDs) {
	for i, id := range ids {
		if id == "" {
			continue
		}
		p.Reflected[i] = p.ReflectedIn(Inbox(i), id)
		p.TopicIDs[i] = id
	}
}
