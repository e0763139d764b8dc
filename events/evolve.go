package events

import (
	"errors"
	"fmt"
	"time"
)

// Evolve is the fold. It takes the state of a task (nil before the first event) and its next event,
// and returns the next state. It changes t, and the result shares its memory: Clone first to keep
// the state before. hash is the Hash of the event's record, which the next event names as prev.
//
// An error means that the log isn't the history of a task: there is a gap in seq, the chain is broken, or the table
// lacks the transition. t is then unchanged.
//
// The first event of a task may follow the end of an earlier one with the same id, if that id may have been forgotten
// (PartitionForgot). The result is then the new task.
func Evolve(t *Task, e *Event, hash string) (*Task, error) {
	if t.Renews(e) {
		t = nil
	}
	if err := checkNext(t, e); err != nil {
		return t, fmt.Errorf("event %s: %w", TaskEventID(e.Task, e.Seq), err)
	}
	if f, ok := e.Fact.(*TaskReceived); ok {
		t = newTask(e, f)
	} else if err := fold(t, e); err != nil {
		return t, fmt.Errorf("event %s of task %q in state %s: %w", TaskEventID(e.Task, e.Seq), e.Task, t.State, err)
	}
	t.Seq, t.Prev, t.UpdatedAt = e.Seq, hash, e.At
	return t, nil
}

// checkNext checks that e is the next event of t.
func checkNext(t *Task, e *Event) error {
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

func newTask(e *Event, f *TaskReceived) *Task {
	t := &Task{
		ID: e.Task, Workflow: f.Workflow, Version: f.Version, State: StatePending,
		Priority: f.Priority, Labels: f.AllLabels(), ReplyTo: f.ReplyTo, Traceparent: f.Traceparent, Intake: f.Intake,
		SubmittedAt: e.At, Digest: f.Digest, Input: f.Input, Plan: f.Plan,
		CompleteBy: f.CompleteBy, Asked: f.CompleteBy, StatusSeq: e.Seq, Parent: f.Parent,
	}
	t.OwnKeys = f.Plan.DedupeFor > 0
	t.Steps = newSteps(len(f.Plan.Steps))
	return t
}

func fold(t *Task, e *Event) error {
	if a := e.Fact.About(); a.OfStep() && !t.Open() {
		return errors.New("the table of steps has no row for a task that has ended")
	}
	return e.Fact.apply(t, e)
}

// enterState applies a fact of the task, by the table, to the task and its steps. change applies the rest of it.
func (t *Task) enterState(e *Event, a About, change func()) error {
	to, err := a.nextTaskState(t.State, t.Ending)
	if err != nil {
		return err
	}
	t.State, t.StatusSeq, t.Timer = to, e.Seq, timerOf(e)
	if a.By != nil {
		t.recordAccepted(e, *a.By)
	}
	switch a.Disarms {
	case DisarmsAll:
		t.disarm(false)
	case DisarmsWaiting:
		for i := range t.Steps {
			if a.Verb == VerbResumed {
				t.revive(i)
			} else {
				t.endWaiting(i, &a)
			}
		}
		t.disarm(true)
	case DisarmsNone, DisarmsOwn, DisarmsStep, DisarmsReplanned: // the fact itself has changed its run
	}
	change()
	return nil
}

// disarm disarms the timers of the steps. keepRunning keeps those of running attempts.
func (t *Task) disarm(keepRunning bool) {
	armed := func(r *Run) bool { return r != nil && r.Timer != Timer{} && (!keepRunning || r.State != StepRunning) }
	for i, s := range t.Steps {
		if armed(&s.Run) {
			t.OwnStep(i).Timer = Timer{}
		}
		if armed(s.Undo) {
			t.OwnStep(i).Undo.Timer = Timer{}
		}
		if armed(s.Check) {
			t.OwnStep(i).Check.Timer = Timer{}
		}
	}
}

// timerOf returns the timer that an event arms; the zero Timer: none.
func timerOf(e *Event) Timer {
	if e.Due.IsZero() {
		return Timer{}
	}
	return Timer{Seq: e.Seq, Due: e.Due}
}

func (t *Task) recordAccepted(e *Event, by By) {
	if by.RequestID == "" {
		return
	}
	t.Accepted = append(t.Accepted, Accepted{by.RequestID, e.Seq})
	if n := len(t.Accepted) - MaxAcceptedControls; n > 0 {
		t.Accepted = t.Accepted[n:]
	}
}

// states returns the states of the step and of its undo.
func (s *Step) states() stepStates {
	at := stepStates{step: s.State}
	if s.Undo != nil {
		at.undo = s.Undo.State
	}
	if s.Check != nil {
		at.check = s.Check.State
	}
	return at
}

// setStates sets the states of the step and of its undo. An undo with a state has begun.
func (s *Step) setStates(at stepStates) {
	s.State = at.step
	if at.undo != "" {
		if s.Undo == nil {
			s.Undo = &Run{}
		}
		s.Undo.State = at.undo
	}
	if at.check != "" {
		if s.Check == nil {
			s.Check = &Run{}
		}
		s.Check.State = at.check
	}
}

func (t *Task) endWaiting(i int, a *About) {
	was := t.Steps[i].states()
	at := was.afterEnd(a, t.Plan.Steps[i].StepKind)
	takenOver := a.Verb == VerbUndoing && at.undo == StepPending // see afterEnd
	if at == was && !takenOver {
		return
	}
	s := t.OwnStep(i)
	s.setStates(at)
	s.Unknown = s.Unknown || t.interruptedChild(i, was, at)
	if takenOver {
		s.Undo.revive()
	}
	if at.check != was.check {
		s.setChecking(0) // asked again, it has the whole budget
	}
}

func (t *Task) revive(i int) {
	at, ok := t.Steps[i].states().afterRevive(t.State)
	if !ok {
		return
	}
	s := t.OwnStep(i)
	s.setStates(at)
	if s.Undo != nil {
		s.Undo.revive()
	} else {
		s.Run.revive()
		if s.Check == nil || s.Check.State != StepRunning {
			x := s.KindState()
			x.Checking, x.Checked = 0, 0 // what became of the last attempt is asked again
			s.setKindState(x)
		}
	}
}

// revive makes a run that ended ready for another attempt. Attempts keep counting up. The idempotency key is renewed
// only after a rejection, since only then is it certain that the old one had no effect.
func (r *Run) revive() {
	r.FailureCount, r.CooledDown, r.Error = 0, false, nil
	r.EndedAt = time.Time{}
	x := r.Interim()
	x.Calls, x.ChildError = 0, nil
	r.setInterim(x)
	if r.Rejected {
		r.Rejected = false
		r.Generation++
		r.DropProgress()
	}
}

// onRun applies a fact of a run, by the tables, to the run and its step. Then it calls change to set the event's
// values. It checks everything before it changes anything.
func (t *Task) onRun(e *Event, a About, change func(*Step, *Run)) error {
	i, ok := t.Plan.Step(a.Step)
	if !ok {
		return fmt.Errorf("the plan has no step %q", a.Step)
	}
	if !t.Plan.Has(i, a.Kind) {
		return fmt.Errorf("step %q: the plan has no %s of it", a.Step, a.Kind)
	}
	if k := t.Plan.StepKindOf(i, a.Kind); k != a.StepKind && !a.AnyKind {
		return fmt.Errorf("step %q is of kind %s, not %s", a.Step, k, a.StepKind)
	}
	if a.Kind == Check && t.Steps[i].Attempt == 0 {
		return fmt.Errorf("step %q: a check before its first attempt", a.Step)
	}
	at, err := t.Steps[i].states().next(&a, t.State)
	if r := t.Run(i, a.Kind); err == nil && r != nil {
		err = a.checkAttempt(r.Attempt, r.State == StepRunning)
	} else if err == nil {
		err = a.checkAttempt(0, false)
	}
	if err != nil {
		return fmt.Errorf("step %q: %w", a.Step, err)
	}
	s := t.OwnStep(i)
	s.setStates(at)
	r := t.Run(i, a.Kind)
	if a.Kind == Check {
		s.Timer = Timer{}
		s.beginCheck()
	}
	r.Timer = timerOf(e)
	if a.Phase.Begins() {
		if r.StartedAt.IsZero() {
			r.StartedAt = e.At
		}
		r.Attempt, r.StartedSeq = a.Attempt, e.Seq
	}
	if a.Counts {
		r.FailureCount++
		t.FailureCount++
	}
	if a.By != nil {
		t.recordAccepted(e, *a.By)
	}
	change(s, r)
	if a.Kind == Check && t.State == StateError && !a.Phase.Begins() {
		s.setChecking(0) // no retry follows in a hold
	}
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
		p.adoptTopicIDs(&f.TopicIDs)
	} else if e.Epoch != p.Epoch {
		return fmt.Errorf("epoch %d, which nobody claimed; %d is the last claim's", e.Epoch, p.Epoch)
	}
	if f, ok := e.Fact.(*PartitionForgot); ok {
		if err := p.evolveForgot(e, f); err != nil {
			return err
		}
	}
	p.Epoch, p.At = e.Epoch, e.At
	if at := forgetAtOf(e.Fact); !at.IsZero() && (p.ForgetDue.IsZero() || at.Before(p.ForgetDue)) {
		p.ForgetDue = at
	}
	if next := e.Cause.Offset + 1; next > p.Reflected[e.Cause.Inbox] {
		p.Reflected[e.Cause.Inbox] = next
	}
	return nil
}

// adoptTopicIDs sets the ids of the owner's inboxes. The reflected offset of a recreated topic is reset to 0.
func (p *PartitionState) adoptTopicIDs(ids *TopicIDs) {
	for i, id := range ids {
		if id == "" {
			continue
		}
		p.Reflected[i] = p.ReflectedIn(Inbox(i), id)
		p.TopicIDs[i] = id
	}
}
