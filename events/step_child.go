package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// WorkflowStep is the kind of steps that run a child task. The step is done when the child has ended. Its undo is the
// withdrawal of the child: the child is cancelled, or undone if it was processed. Neither run calls an agent, and
// neither has a timer: the child has a complete-by of its own.
const WorkflowStep StepKind = "workflow"

var _ = registerStepKind(WorkflowStep, newFactKind(ChildStarted{}), newFactKind(WithdrawalStarted{}), newFactKind(TaskWithdrawn{}),
	newFactKind(ChildCompleted{Kind: Do}), newFactKind(ChildCompleted{Kind: Undo}), newFactKind(ChildRejected{Kind: Do}), newFactKind(ChildRejected{Kind: Undo}),
	newFactKind(ChildHeld{Kind: Do}), newFactKind(ChildHeld{Kind: Undo}), newFactKind(ChildResumed{Kind: Do}), newFactKind(ChildResumed{Kind: Undo}))

// The verbs of steps with a child, besides those of all steps.
const (
	VerbChildHeld    Verb = "child_held"
	VerbChildResumed Verb = "child_resumed"
	// VerbWithdrawn is about a child: its parent no longer wants it. Its state doesn't change by that.
	VerbWithdrawn Verb = "withdrawn"
)

// The codes of the errors of steps with a child.
const (
	CodeTooDeep        = "too_deep"         // the child would be deeper than MaxDepth
	CodeBadChild       = "bad_child"        // the id of the child can't be used
	CodeWithdrawn      = "withdrawn"        // the error of a child that its parent withdrew
	CodeNoSuchChild    = "no_such_child"    // a child that had completed is unknown now
	CodeCantBeReopened = "cant_be_reopened" // a child that had completed can't be undone
)

// MaxDepth bounds the parents above a task: its parent, the parent of that, and so on.
const MaxDepth = 8

// Parent names the step that a task is the child of.
type Parent struct {
	Task    string
	Step    string
	Attempt int    // of the step
	Token   string // of the attempt; the parent accepts only replies with it
	Depth   int    // of the child: 1 if the parent has no parent, at most MaxDepth
	Item    *int   // the index of the item that the child is for; nil: none
	// StepAlone is true if the child runs Step of its parent's workflow for the item, and no other step.
	StepAlone bool
	// KnownUntil is the earliest instant from which on the id of the child may be forgotten: until then the parent may be
	// undone, and with it the child. Zero: the id is never forgotten.
	KnownUntil time.Time
}

// Ref returns the attempt of the parent's step.
func (p *Parent) Ref() RequestRef { return RequestRef{Step: p.Step, Kind: Do, Attempt: p.Attempt} }

// TokenHash returns the hash of the attempt's token, as the parent's log has it.
func (p *Parent) TokenHash() string { return TokenHash(p.Task, p.Ref(), p.Token) }

// Same reports whether two tasks are children of the same attempt, for the same item.
func (p *Parent) Same(q *Parent) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Task == q.Task && p.Step == q.Step && p.Attempt == q.Attempt && p.Token == q.Token && p.Depth == q.Depth && p.StepAlone == q.StepAlone &&
		p.KnownUntil.Equal(q.KnownUntil) && (p.Item == nil) == (q.Item == nil) && (p.Item == nil || *p.Item == *q.Item)
}

func (p *Parent) fields(c *codec) {
	c.str("task", &p.Task)
	c.str("step", &p.Step)
	c.int("attempt", &p.Attempt)
	c.str("token", &p.Token)
	c.int("depth", &p.Depth)
	c.optionalInt("item", &p.Item)
	c.bool("step_alone", &p.StepAlone)
	c.time("known_until", &p.KnownUntil)
}

// ItemOf returns the step of the workflow that the task runs for an item of its list, and no other; empty: it runs all.
func (t *Task) ItemOf() string { return t.Parent.itemOf() }

// Hidden is Summary.Hidden.
func (t *Task) Hidden() bool { return t.ItemOf() != "" && t.State != StateError }

// ItemOf is Task.ItemOf of the task that a submission asks for.
func (s *Submission) ItemOf() string { return s.Parent.itemOf() }

func (p *Parent) itemOf() string {
	if p == nil || !p.StepAlone {
		return ""
	}
	return p.Step
}

// optionalInt is int for a value that may be absent. Zero is written.
func (c *codec) optionalInt(name string, v **int) {
	if !c.decoding {
		if *v != nil {
			c.name(name)
			c.buf = fmt.Append(c.buf, **v)
		}
		return
	}
	if _, ok := c.find(name); ok {
		n := 0
		c.int(name, &n)
		*v = &n
	}
}

func (c *codec) parent(name string, v **Parent) {
	optional(c, name, v, func(c *codec, p *Parent) { p.fields(c) })
}

// childType returns the ce_type of an event about a child's run.
func childType(k Kind, verb string) string {
	if k == Undo {
		return "waybill.withdrawal." + verb + ".v1"
	}
	return "waybill.child." + verb + ".v1"
}

// ChildStarted records that the submission of a child was written, in the same transaction.
type ChildStarted struct {
	Step     string
	Attempt  int
	Child    string // the id of the child
	Workflow string
	Version  int // 0: the newest when the submission is read
	// TokenHash is the hash of the attempt's token (see the function TokenHash). The token itself is in the submission.
	TokenHash string
	// Input is in the first attempt only: all have the same.
	Input json.RawMessage
	// TaskInput is true if the input is the task's. Input is then empty.
	TaskInput bool
}

func (*ChildStarted) Type() string { return childType(Do, "started") }

func (f *ChildStarted) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: Do, StepKind: WorkflowStep, Attempt: f.Attempt, Phase: PhaseBegan,
		Disarms: DisarmsOwn, Raw: &f.Input}
}

func (f *ChildStarted) apply(t *Task, e *Event) error {
	if f.TaskInput && len(f.Input) > 0 {
		return errors.New("it has an input, and says that its input is the task's")
	}
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.TokenHash = f.TokenHash
		x := s.KindState()
		x.Child = f.Child
		s.setKindState(x)
		switch {
		case f.TaskInput:
			r.Input, r.TaskInput = t.Input, true
		case len(f.Input) > 0:
			r.Input, r.TaskInput = f.Input, false
		}
	})
}

func (f *ChildStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.str("child", &f.Child)
	c.interned("workflow", &f.Workflow)
	c.int("version", &f.Version)
	c.str("token_hash", &f.TokenHash)
	c.raw("input", &f.Input)
	c.bool("task_input", &f.TaskInput)
}

// WithdrawalStarted records that the withdrawal of a step's child was written, in the same transaction.
type WithdrawalStarted struct {
	Step      string
	Attempt   int // of the undo
	Child     string
	TokenHash string
}

func (*WithdrawalStarted) Type() string { return childType(Undo, "started") }

func (f *WithdrawalStarted) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: Undo, StepKind: WorkflowStep, Attempt: f.Attempt, Phase: PhaseBegan, Disarms: DisarmsOwn}
}

func (f *WithdrawalStarted) apply(t *Task, e *Event) error {
	if i, ok := t.Plan.Step(f.Step); ok && t.Steps[i].KindState().Child != f.Child {
		return fmt.Errorf("step %q: its child is %q, not %q", f.Step, t.Steps[i].KindState().Child, f.Child)
	}
	return t.onRun(e, f.About(), func(_ *Step, r *Run) { r.TokenHash = f.TokenHash })
}

func (f *WithdrawalStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.str("child", &f.Child)
	c.str("token_hash", &f.TokenHash)
}

// ChildCompleted records that a child ended: it was processed, or its withdrawal is complete.
type ChildCompleted struct {
	Kind    Kind
	Step    string
	Attempt int
	Output  json.RawMessage // of the child; empty for a withdrawal
}

func (f *ChildCompleted) Type() string { return childType(f.Kind, "completed") }

func (f *ChildCompleted) About() About {
	return About{Verb: VerbCompleted, Step: f.Step, Kind: f.Kind, StepKind: WorkflowStep, Attempt: f.Attempt, Phase: PhaseTaken,
		Disarms: DisarmsOwn, Raw: &f.Output}
}

func (f *ChildCompleted) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.EndedAt = nil, e.At
		r.setChildError(nil)
		if f.Kind == Do {
			s.Output, s.Unknown, s.CompletedSeq = f.Output, false, e.Seq
		}
	})
}

func (f *ChildCompleted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.raw("output", &f.Output)
}

// ChildRejected records that a child ended without a result, and that nothing of it is left: it was undone or cancelled,
// or never accepted. Of a withdrawal, it records that the child can't be undone.
type ChildRejected struct {
	Kind    Kind
	Step    string
	Attempt int
	Error   *Error
	// Unknown is true if the child was processed, and its output can't be stored: then it must be undone.
	Unknown bool
}

func (f *ChildRejected) Type() string { return childType(f.Kind, "rejected") }

func (f *ChildRejected) About() About {
	return About{Verb: VerbRejected, Step: f.Step, Kind: f.Kind, StepKind: WorkflowStep, Attempt: f.Attempt, Phase: PhaseTaken,
		Disarms: DisarmsOwn, Failure: &f.Error}
}

func (f *ChildRejected) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.EndedAt = f.Error, e.At
		r.setChildError(nil)
		if f.Kind == Do {
			s.Unknown = f.Unknown
		}
	})
}

func (f *ChildRejected) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.bool("unknown", &f.Unknown)
	c.errorField("error", &f.Error)
}

// ChildHeld records that the child is held for an operator. The step goes on running.
type ChildHeld struct {
	Kind    Kind
	Step    string
	Attempt int
	Error   *Error // of the child
}

func (f *ChildHeld) Type() string { return childType(f.Kind, "held") }

func (f *ChildHeld) About() About {
	return About{Verb: VerbChildHeld, Step: f.Step, Kind: f.Kind, StepKind: WorkflowStep, Attempt: f.Attempt, Phase: PhaseGoesOn,
		Disarms: DisarmsOwn, Failure: &f.Error}
}

func (f *ChildHeld) apply(t *Task, e *Event) error {
	if f.Error == nil {
		return errors.New("a child is held without an error")
	}
	return t.onRun(e, f.About(), func(_ *Step, r *Run) { r.setChildError(f.Error) })
}

func (f *ChildHeld) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.errorField("error", &f.Error)
}

// ChildResumed records that the child is no longer held.
type ChildResumed struct {
	Kind    Kind
	Step    string
	Attempt int
}

func (f *ChildResumed) Type() string { return childType(f.Kind, "resumed") }

func (f *ChildResumed) About() About {
	return About{Verb: VerbChildResumed, Step: f.Step, Kind: f.Kind, StepKind: WorkflowStep, Attempt: f.Attempt, Phase: PhaseGoesOn,
		Disarms: DisarmsOwn}
}

func (f *ChildResumed) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(_ *Step, r *Run) { r.setChildError(nil) })
}

func (f *ChildResumed) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
}

// setChildError sets why the child is held; nil: it isn't.
func (r *Run) setChildError(err *Error) {
	x := r.Interim()
	x.ChildError = err
	r.setInterim(x)
}

// TaskWithdrawn records, in the log of a child, that its parent withdrew it. A child that isn't being undone yet begins
// its undo in the same transaction. The end of that undo is the reply.
type TaskWithdrawn struct {
	UndoAttempt int    // of the undo of the parent's step
	Token       string // of that attempt
}

func (*TaskWithdrawn) Type() string { return "waybill.task.withdrawn.v1" }

func (*TaskWithdrawn) About() About { return About{Verb: VerbWithdrawn} }

func (f *TaskWithdrawn) apply(t *Task, _ *Event) error {
	switch {
	case t.Parent == nil:
		return errors.New("it has no parent")
	case !t.Open() || t.Ending == "":
		return errors.New("its undo hasn't begun")
	}
	t.Withdrawal = &Withdrawing{Attempt: f.UndoAttempt, Token: f.Token}
	return nil
}

func (f *TaskWithdrawn) fields(c *codec) {
	c.int("undo_attempt", &f.UndoAttempt)
	c.str("token", &f.Token)
}

// Withdrawing is the last withdrawal of a child: the undo of its parent's step that waits for the child's end.
type Withdrawing struct {
	Attempt int
	Token   string
}

func (w *Withdrawing) fields(c *codec) {
	c.int("attempt", &w.Attempt)
	c.str("token", &w.Token)
}

// awaited returns the run of the parent that waits for the child, and its token.
func (t *Task) awaited() (RequestRef, string) {
	if w := t.Withdrawal; w != nil {
		return RequestRef{Step: t.Parent.Step, Kind: Undo, Attempt: w.Attempt}, w.Token
	}
	return t.Parent.Ref(), t.Parent.Token
}

// ReplyToParent returns the reply that a child's parent receives when the child enters its present state; nil: none. was
// is the state before.
func (t *Task) ReplyToParent(was TaskState) *Reply {
	if t.Parent == nil || t.State == was {
		return nil
	}
	ref, token := t.awaited()
	r := &Reply{Task: t.Parent.Task, Ref: ref, Token: token, Item: t.Parent.Item, Effect: EffectNone, Outcome: Completed}
	switch {
	case t.State == StateProcessed:
		r.Body = t.Output
	case t.State.Terminal() && ref.Kind == Do:
		r.Outcome, r.Body = Rejected, t.childError().JSON()
	case t.State.Terminal(): // the withdrawal is complete
	case t.State == StateError:
		r.Outcome, r.Body = Held, t.childError().JSON()
	case was == StateError:
		r.Outcome = Resumed
	default:
		return nil
	}
	return r
}

// childError returns the error of a child that ended without a result, or is held.
func (t *Task) childError() *Error {
	if t.Error == nil {
		return &Error{Code: string(t.State)}
	}
	return t.Error
}

// stepKindOf is Plan.StepKindOf of a step of a kind.
func stepKindOf(step StepKind, k Kind) StepKind {
	if k == Do || k == Undo && step.HasChildren() {
		return step
	}
	return CallStep
}

// interruptedChild reports whether a step had a running child when a decision to undo ended it.
func (t *Task) interruptedChild(i int, was, at stepStates) bool {
	return t.Plan.Steps[i].StepKind == WorkflowStep && was.step == StepRunning && at.step == StepCancelled
}
