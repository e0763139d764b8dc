package events

import (
	"errors"
	"fmt"
	"time"
)

// TaskMigrated records that the task goes on with another version of its workflow. Its state stays as it is. While the
// task is processing, the event's due is the task's complete-by under that version.
type TaskMigrated struct {
	By
	From    int // the version before
	Version int
	Plan    *Plan
}

func (*TaskMigrated) Type() string { return "waybill.task.migrated.v1" }

func (f *TaskMigrated) About() About {
	return About{Verb: VerbMigrated, Arms: TimerTask, Disarms: DisarmsReplanned, By: &f.By}
}

func (f *TaskMigrated) fields(c *codec) {
	c.int("from", &f.From)
	c.int("version", &f.Version)
	c.plan("plan", &f.Plan)
	f.By.fields(c)
}

func (f *TaskMigrated) apply(t *Task, e *Event) error {
	if err := f.check(e, t.Version, t.State); err != nil {
		return err
	}
	for i, s := range t.Steps {
		if err := f.Plan.keeps(t.Plan.Steps[i].ID, t.Plan.Steps[i].StepKind, s.Attempt, s.states()); err != nil {
			return err
		}
	}
	t.FollowPlan(f.Plan, f.Version)
	if t.State == StateProcessing {
		t.CompleteBy, t.Timer = e.Due, timerOf(e)
	}
	t.recordAccepted(e, f.By)
	return nil
}

// check checks what a task and its row in a list have in common.
func (f *TaskMigrated) check(e *Event, version int, state TaskState) error {
	switch {
	case f.Plan == nil:
		return errors.New("migrated without a plan")
	case f.From != version || f.Version == version || f.Version < 1:
		return fmt.Errorf("migrated from version %d to %d; the task has version %d", f.From, f.Version, version)
	case !migratable(state):
		return fmt.Errorf("migrated while the task is %s", state)
	case (state == StateProcessing) == e.Due.IsZero():
		return fmt.Errorf("migrated with the complete-by %q while the task is %s", e.Due.Format(TimeLayout), state)
	}
	return nil
}

// migratable reports whether a task in this state can go on with another version.
func migratable(s TaskState) bool {
	return s == StateProcessing || s == StateError || s == StateUndoing
}

// HasBegun reports whether anything has happened to a step. If not, another plan needn't have it.
func (s *Step) HasBegun() bool { return s.states().begun(s.Attempt) }

func (s stepStates) begun(attempt int) bool {
	return attempt > 0 || s.step != StepPending && s.step != StepCancelled || s.undo != "" || s.check != ""
}

// keeps returns an error if the plan can't have a step of another plan with what happened to it.
func (p *Plan) keeps(id string, kind StepKind, attempt int, at stepStates) error {
	if !at.begun(attempt) {
		return nil
	}
	i, ok := p.Step(id)
	switch {
	case !ok:
		return fmt.Errorf("the new plan has no step %q, which is %s", id, at.step)
	case p.Steps[i].StepKind != kind:
		return fmt.Errorf("step %q is %s, and of kind %s in the new plan, not %s", id, at.step, p.Steps[i].StepKind, kind)
	case at.undo != "" && p.Steps[i].Undo == nil:
		return fmt.Errorf("the new plan has no undo of step %q, which has begun", id)
	case at.check != "" && p.Steps[i].Check == nil:
		return fmt.Errorf("the new plan has no check of step %q, which has begun", id)
	}
	return nil
}

// newStepState returns the state of a step that a plan adds to a task.
func newStepState(task TaskState) StepState {
	if task == StateProcessing || task == StatePending {
		return StepPending
	}
	return StepCancelled // as the steps that the decision to hold or undo has ended
}

// FollowPlan gives the task the plan of another version. Steps that both plans have stay as they are, others are added
// and dropped. The plan must have what has begun.
func (t *Task) FollowPlan(p *Plan, version int) {
	steps := newSteps(len(p.Steps))
	for i := range steps {
		if was, ok := t.Plan.Step(p.Steps[i].ID); ok {
			steps[i] = t.Steps[was]
		} else {
			steps[i].State = newStepState(t.State)
		}
	}
	t.Plan, t.Steps, t.Version = p, steps, version
}

// CompleteByUnder returns the complete-by of a processing task under another plan. It counts from the start of the task, or from
// its last resubmit.
func (t *Task) CompleteByUnder(p *Plan) time.Time {
	if p.CompleteWithin == t.Plan.CompleteWithin {
		return t.CompleteBy
	}
	from := t.CompleteBy.Add(-t.Plan.CompleteWithin)
	if t.CompleteBy.Equal(t.Asked) {
		from = t.SubmittedAt // when it started, too
	}
	return earlier(Millis(from.Add(p.CompleteWithin)), t.Asked)
}

// FollowPlan gives the armed timers the rules of another plan, and drops those of runs that it doesn't have. completeBy
// is the task's under that plan; zero: it stays.
func (t *Timers) FollowPlan(p *Plan, completeBy time.Time) {
	kept := t.Armed[:0]
	for _, a := range t.Armed {
		i, ok := p.Step(a.Slot.Step)
		switch {
		case a.Slot.Step == "":
			a.Policy.OnError = p.OnError
			if !completeBy.IsZero() {
				a.Policy.CompleteBy, a.Timer.Due = completeBy, completeBy
			}
		case !ok || !p.Has(i, a.Slot.Kind):
			continue
		default:
			a.Policy.Attempts = p.AttemptsOf(i, a.Slot.Kind)
			a.Policy.Final = a.Policy.Timer == TimerAttempt && !p.RetryCodesOf(i, a.Slot.Kind).Allow(CodeExpired)
			if a.Slot.Kind == Do {
				a.Policy.OnError = p.OnError
				if !completeBy.IsZero() {
					a.Policy.CompleteBy = completeBy
				}
			}
		}
		kept = append(kept, a)
	}
	t.Armed = kept
}

// replan applies a migration to the timers.
func (t *Timers) replan(e *Event, a *About) {
	f, ok := e.Fact.(*TaskMigrated)
	if !ok {
		return
	}
	t.FollowPlan(f.Plan, e.Due)
	t.set(e, a)
}

// migrated applies a migration to the row of a task.
func (s *Summary) migrated(e *Event, f *TaskMigrated) (ok bool) {
	if f.check(e, s.Version, s.State) != nil {
		return false
	}
	for i := range s.Steps {
		if p := &s.Steps[i]; f.Plan.keeps(p.ID, p.StepKind, p.attempts(), p.states()) != nil {
			return false
		}
	}
	steps := make([]StepSummary, len(f.Plan.Steps))
	for i := range steps {
		p := &f.Plan.Steps[i]
		was := s.step(p.ID)
		switch {
		case was == nil:
			steps[i] = StepSummary{ID: p.ID, StepKind: p.StepKind, Agent: p.Agent, State: newStepState(s.State), Kind: Do}
			continue
		case was.attempts() == 0 && was.CheckAttempt == 0 && (was.Kind == Do || was.Attempt == 0):
			was.StepKind, was.Agent = p.StepKind, p.Agent
		}
		steps[i] = *was
	}
	s.Steps, s.Version = steps, f.Version
	if s.State == StateProcessing {
		s.CompleteBy, s.TaskDue = e.Due, e.Due
	}
	return true
}

// attempts returns the number of attempts of the step's operation.
func (p *StepSummary) attempts() int {
	n, _ := p.run(Do)
	return *n
}
