package events

import (
	"slices"
	"strings"
	"time"
)

// Summary is the row of a task in the index: the fields that a list shows, and those by which it is filtered. It has
// the same lifecycle as a Task (lifecycle.go), without input, output and plan. The zero value is a task before its
// first event. It is for one goroutine.
type Summary struct {
	ID, Workflow string
	Version      int
	State        TaskState
	Priority     int
	Labels       map[string]string // shared, not to be changed
	SubmittedAt  time.Time
	UpdatedAt    time.Time
	CompleteBy   time.Time // of the task; zero: none
	FailureCount int
	Seq          uint64    // of the last event that was folded
	ErrorCode    string    // of the task's error; empty: none
	TaskDue      time.Time // of the task's own timer; zero: not armed
	Ending       TaskState // as Task.Ending
	ForgetAt     time.Time // as Task.ForgetAt
	// From is the offset of its first event if another task had its id before; 0: none had. Who folds the events sets it.
	From   int64
	Parent string // the task that this task is a child of; empty: none
	Item   bool   // the task runs a step of Parent for an item of a list; see Hidden
	// Steps are the steps in the plan's order. Once the task has ended only those in error are kept, since a list shows
	// no others.
	Steps []StepSummary
	// Stopped is the seq of the first event that can't be folded; 0: none. The other fields are as of the previous
	// event.
	Stopped uint64
}

// StepSummary is a step of a Summary.
type StepSummary struct {
	ID       string
	StepKind StepKind
	Agent    string // of the last attempt; before the first attempt, the plan's agent of the operation
	State    StepState
	// Kind says what Attempt and Due belong to: Undo once an undo of the step has begun, else Do.
	Kind    Kind
	Attempt int       // the last one; 0: none yet
	Due     time.Time // of its armed timer; zero: none
	Undo    StepState // of its undo; empty: not begun
	// Before is the number of attempts of the operation, and BeforeDue its timer, if Kind is Undo. The scheduler leaves
	// that timer disarmed.
	Before    int
	BeforeDue time.Time
	// Check is the state of its check, empty: not begun; with its last attempt and its timer.
	Check        StepState
	CheckAttempt int
	CheckDue     time.Time
	// Started is when the first attempt of the run of Kind started since the submission, or since the resubmit that
	// continued it, in Unix milliseconds; 0: none has, or the run has ended.
	Started int
	// Sent is when the request of the running attempt was sent, in Unix milliseconds; 0: no request is under way.
	Sent int
}

// Evolve folds an event. An event that can't be folded stops the summary (Stopped), as it stops the task elsewhere. The
// chain (Event.Prev) isn't checked. Evolve retains only Labels and the names in the plan of the event's memory. A test
// compares it with the fold of tasks after every event of random histories. The result is what the event changed of a
// step.
func (s *Summary) Evolve(e *Event) (c StepChange) {
	if s.Stopped != 0 {
		return c
	}
	f, first := e.Fact.(*TaskReceived)
	if s.Renews(e) {
		s.Seq = 0
	}
	ok := e.Seq == s.Seq+1 && first == (s.Seq == 0)
	switch {
	case ok && first:
		ok = s.received(e, f)
	case ok:
		a := e.Fact.About()
		ok = s.apply(e, &a, &c)
	}
	if !ok {
		s.Stop(e.Seq)
		return StepChange{}
	}
	s.Seq, s.UpdatedAt = e.Seq, e.At
	if s.State.Terminal() {
		s.Steps = slices.DeleteFunc(s.Steps, func(p StepSummary) bool { return p.State != StepError })
	}
	return c
}

// Stop records that the event with this seq can't be folded.
func (s *Summary) Stop(seq uint64) {
	if s.Stopped == 0 {
		s.Stopped = seq
	}
}

func (s *Summary) received(e *Event, f *TaskReceived) bool {
	if f.Plan == nil {
		return false
	}
	*s = Summary{ID: strings.Clone(e.Task), Workflow: strings.Clone(f.Workflow), Version: f.Version, State: StatePending,
		Priority: f.Priority, Labels: f.AllLabels(), SubmittedAt: e.At, CompleteBy: f.CompleteBy, Steps: make([]StepSummary, len(f.Plan.Steps))}
	if f.Parent != nil {
		s.Parent, s.Item = strings.Clone(f.Parent.Task), f.Parent.StepAlone
	}
	for i := range s.Steps {
		p := &f.Plan.Steps[i]
		s.Steps[i] = StepSummary{ID: p.ID, StepKind: p.StepKind, Agent: p.Agent, State: StepPending, Kind: Do}
	}
	return true
}

// apply applies a fact, and describes in c what it changed of a step.
func (s *Summary) apply(e *Event, a *About, c *StepChange) (ok bool) {
	if a.OfStep() {
		return !s.State.Terminal() && s.onRun(e, a, c)
	}
	switch a.Verb {
	case VerbSignalled:
		return takesSignals(s.State, s.Ending)
	case VerbWithdrawn:
		return s.Parent != "" && s.Ending != ""
	default: // the table of tasks has the others
	}
	if f, is := e.Fact.(*TaskMigrated); is {
		return s.migrated(e, f)
	}
	to, err := a.nextTaskState(s.State, s.Ending)
	if err != nil || !s.reopen(e) {
		return false
	}
	s.State, s.TaskDue, s.ForgetAt = to, e.Due, forgetAtOf(e.Fact)
	if a.Arms == TimerTask && to == StateProcessing {
		s.CompleteBy = e.Due
	}
	if a.Ending != "" {
		s.Ending = a.Ending
	}
	if a.Error() != nil || a.Verb == VerbHeld || a.Verb == VerbResumed {
		s.ErrorCode = codeOf(a.Error())
	}
	for i := range s.Steps {
		s.Steps[i].applyTaskFact(a, to)
	}
	return true
}

// applyTaskFact applies a fact of the task to one of its steps.
func (p *StepSummary) applyTaskFact(a *About, task TaskState) {
	if a.Disarms == DisarmsWaiting {
		if at := p.states(); a.Verb != VerbResumed {
			p.setStates(at.afterEnd(a, p.StepKind))
		} else if at, ok := at.afterRevive(task); ok {
			p.setStates(at)
			p.Started = 0
		}
	}
	for _, k := range [...]Kind{Do, Undo, Check} {
		if _, due := p.run(k); a.Disarms == DisarmsAll || a.Disarms == DisarmsWaiting && !p.isRunning(k) {
			*due = time.Time{}
		}
	}
}

func (p *StepSummary) states() stepStates { return stepStates{p.State, p.Undo, p.Check} }

func (p *StepSummary) setStates(at stepStates) { p.State, p.Undo, p.Check = at.step, at.undo, at.check }

// codeOf returns a copy of an error's code; empty: there is none.
func codeOf(e *Error) string {
	if e == nil {
		return ""
	}
	return strings.Clone(e.Code)
}

// run returns pointers to the last attempt and the timer of a kind. For an undo that hasn't begun they point to scratch
// variables.
func (p *StepSummary) run(k Kind) (attempt *int, due *time.Time) {
	switch {
	case k == p.Kind:
		return &p.Attempt, &p.Due
	case k == Do:
		return &p.Before, &p.BeforeDue
	case k == Check:
		return &p.CheckAttempt, &p.CheckDue
	}
	return new(int), new(time.Time)
}

// isRunning reports whether an attempt of this kind is running.
func (p *StepSummary) isRunning(k Kind) bool {
	switch k {
	case Undo:
		return p.Undo == StepRunning
	case Check:
		return p.Check == StepRunning
	case Do:
	}
	return p.State == StepRunning
}

// hasRunning reports whether an attempt of the step is running.
func (p *StepSummary) hasRunning() bool {
	return p.isRunning(Do) || p.isRunning(Undo) || p.isRunning(Check)
}

// step finds a step by its id.
func (s *Summary) step(id string) *StepSummary {
	for i := range s.Steps {
		if s.Steps[i].ID == id {
			return &s.Steps[i]
		}
	}
	return nil
}

// onRun applies a fact of a run to the run and its step, as Task.onRun.
func (s *Summary) onRun(e *Event, a *About, c *StepChange) (ok bool) {
	p := s.step(a.Step)
	if p == nil {
		return false
	}
	if stepKindOf(p.StepKind, a.Kind) != a.StepKind && !a.AnyKind {
		return false
	}
	if attempts, _ := p.run(Do); a.Kind == Check && *attempts == 0 {
		return false
	}
	was := p.states()
	at, err := was.next(a, s.State)
	last, _ := p.run(a.Kind)
	if err != nil || a.checkAttempt(*last, p.isRunning(a.Kind)) != nil {
		return false
	}
	if a.Kind == Undo && p.Kind == Do {
		p.Kind, p.Before, p.BeforeDue, p.Attempt, p.Started = Undo, p.Attempt, p.Due, 0, 0
	}
	p.setStates(at)
	p.describe(c, a, was)
	p.clock(c, e.At)
	p.timeRequest(c, a, e.At)
	if a.Disarms == DisarmsStep {
		p.Due, p.BeforeDue, p.CheckDue = time.Time{}, time.Time{}, time.Time{}
		if a.Kind != Check {
			return true
		}
	}
	last, due := p.run(a.Kind)
	if *due = e.Due; a.Phase != PhaseNone {
		*last = a.Attempt
	}
	if a.Counts {
		s.FailureCount++
	}
	if a.Phase == PhaseStarted && a.Agent != p.Agent {
		p.Agent = strings.Clone(a.Agent)
	}
	return true
}

// InError returns the ids of the steps in error, in the plan's order.
func (s *Summary) InError() []string {
	var ids []string
	for i := range s.Steps {
		if s.Steps[i].State == StepError {
			ids = append(ids, s.Steps[i].ID)
		}
	}
	return ids
}

// KindInError says whether the error of a step that is held is that of its undo. Empty: there is no such step.
func (s *Summary) KindInError(step string) Kind {
	switch p := s.step(step); {
	case p == nil:
		return ""
	case p.Undo != "":
		return Undo
	}
	return Do
}

// WaitingFor returns the agents with a running attempt of the task, sorted, each once.
func (s *Summary) WaitingFor() []string {
	var agents []string
	for i := range s.Steps {
		if s.Open() && s.Steps[i].hasRunning() && s.Steps[i].Agent != "" {
			agents = append(agents, s.Steps[i].Agent)
		}
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

// Due returns the earliest instant at which a timer of the task or of a step is due; zero: none is armed.
func (s *Summary) Due() time.Time {
	due := s.TaskDue
	for i := range s.Steps {
		due = earlier(earlier(earlier(due, s.Steps[i].Due), s.Steps[i].BeforeDue), s.Steps[i].CheckDue)
	}
	return due
}

// earlier returns the earlier of two instants. Zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Open reports whether the task hasn't ended.
func (s *Summary) Open() bool { return !s.State.Terminal() }

// Hidden reports whether lists and counts leave the task out unless they are asked for the children of its parent. The
// tasks of items are hidden, or those of one task would hide all others, except while an operator is needed.
func (s *Summary) Hidden() bool { return s.Item && s.State != StateError }

// Encode returns the stored form. Equal summaries have equal bytes.
func (s *Summary) Encode() []byte { return encodeObject(s) }

// DecodeSummary is the inverse of Encode. The result doesn't alias data.
func DecodeSummary(data []byte) (*Summary, error) {
	s := &Summary{}
	if err := decodeObject(data, s); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Summary) fields(c *codec) {
	c.str("id", &s.ID)
	c.str("workflow", &s.Workflow)
	c.int("version", &s.Version)
	knownText(c, "state", &s.State)
	c.int("priority", &s.Priority)
	c.labels("labels", &s.Labels)
	c.time("submitted_at", &s.SubmittedAt)
	c.time("updated_at", &s.UpdatedAt)
	c.time("complete_by", &s.CompleteBy)
	c.int("failure_count", &s.FailureCount)
	c.seq("seq", &s.Seq)
	c.str("error_code", &s.ErrorCode)
	c.time("due", &s.TaskDue)
	knownText(c, "ending", &s.Ending)
	c.time("forget_at", &s.ForgetAt)
	c.int64("from", &s.From)
	c.str("parent", &s.Parent)
	c.bool("item", &s.Item)
	objects(c, "steps", &s.Steps, func(c *codec, p *StepSummary) { p.fields(c) })
	c.seq("stopped", &s.Stopped)
}

func (p *StepSummary) fields(c *codec) {
	c.str("id", &p.ID)
	knownText(c, "step_kind", &p.StepKind)
	c.str("agent", &p.Agent)
	knownText(c, "state", &p.State)
	knownText(c, "kind", &p.Kind)
	c.int("attempt", &p.Attempt)
	c.time("due", &p.Due)
	knownText(c, "undo", &p.Undo)
	c.int("before", &p.Before)
	c.time("before_due", &p.BeforeDue)
	knownText(c, "check", &p.Check)
	c.int("check_attempt", &p.CheckAttempt)
	c.time("check_due", &p.CheckDue)
	c.int("started", &p.Started)
	c.int("sent", &p.Sent)
}

// SummaryView is a task as a list shows it in JSON.
type SummaryView struct {
	ID           string            `json:"id" jsonschema:"The task's id, which its submitter chose."`
	Workflow     string            `json:"workflow" jsonschema:"The name of the workflow."`
	Version      int               `json:"version" jsonschema:"The version of the workflow."`
	State        TaskState         `json:"state" jsonschema:"The state of the task."`
	CompleteBy   *string           `json:"complete_by" format:"date-time" jsonschema:"The instant by which the task must have finished. It is null while the task is pending."`
	FailureCount int               `json:"failure_count" jsonschema:"The number of failed and expired attempts of all steps. It never falls."`
	Priority     int               `json:"priority" jsonschema:"The priority from the submission."`
	Labels       map[string]string `json:"labels" jsonschema:"The labels from the submission."`
	SubmittedAt  *string           `json:"submitted_at" format:"date-time" jsonschema:"When a scheduler accepted the task."`
	UpdatedAt    *string           `json:"updated_at" format:"date-time" jsonschema:"When the task's last event was decided."`
	Due          *string           `json:"due" format:"date-time" jsonschema:"When the earliest timer of the task and its steps is due. null: no timer is armed."`
	ErrorCode    *string           `json:"error_code" jsonschema:"The code of the task's error. null: no error."`
	StepsInError []string          `json:"steps_in_error" jsonschema:"The steps that are held, in the order of the workflow's definition."`
	WaitingFor   []string          `json:"waiting_for" jsonschema:"The agents that have a running attempt of the task."`
	StoppedSeq   uint64            `json:"stopped_seq,omitempty" jsonschema:"The seq of the first event that this build can't read. The task is shown as of the event before it. Absent: all events can be read."`
}

// View returns the summary in JSON form.
func (s *Summary) View() SummaryView {
	v := SummaryView{
		ID: s.ID, Workflow: s.Workflow, Version: s.Version, State: s.State, FailureCount: s.FailureCount, Priority: s.Priority,
		Labels: s.Labels, SubmittedAt: InstantText(s.SubmittedAt), UpdatedAt: InstantText(s.UpdatedAt), Due: InstantText(s.Due()),
		ErrorCode: text0(s.ErrorCode), StepsInError: s.InError(), WaitingFor: s.WaitingFor(), StoppedSeq: s.Stopped,
	}
	if s.State != StatePending {
		v.CompleteBy = InstantText(s.CompleteBy)
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if v.StepsInError == nil {
		v.StepsInError = []string{}
	}
	if v.WaitingFor == nil {
		v.WaitingFor = []string{}
	}
	return v
}

// Summary returns the Summary of the task, equal to the fold of its events without StepSummary.Started and Sent, which a
// task doesn't know. It is nil for a result of Finished.
func (t *Task) Summary() *Summary {
	if t == nil || t.Plan == nil {
		return nil
	}
	s := &Summary{
		ID: t.ID, Workflow: t.Workflow, Version: t.Version, State: t.State, Priority: t.Priority, Labels: t.Labels,
		SubmittedAt: t.SubmittedAt, UpdatedAt: t.UpdatedAt, CompleteBy: t.CompleteBy, FailureCount: t.FailureCount,
		Seq: t.Seq, TaskDue: t.Timer.Due, Ending: t.Ending, ForgetAt: t.ForgetAt,
	}
	if t.Parent != nil {
		s.Parent, s.Item = t.Parent.Task, t.Parent.StepAlone
	}
	if t.Error != nil {
		s.ErrorCode = t.Error.Code
	}
	for i := range t.Steps {
		if t.Open() || t.Steps[i].State == StepError {
			s.Steps = append(s.Steps, t.stepSummary(i))
		}
	}
	return s
}

func (t *Task) stepSummary(i int) StepSummary {
	r, p := t.Steps[i], &t.Plan.Steps[i]
	s := StepSummary{ID: p.ID, StepKind: p.StepKind, Agent: p.Agent, State: r.State, Kind: Do, Attempt: r.Attempt, Due: r.Timer.Due}
	if u := r.Undo; u != nil {
		s.Kind, s.Attempt, s.Due, s.Undo, s.Before, s.BeforeDue = Undo, u.Attempt, u.Timer.Due, u.State, r.Attempt, r.Timer.Due
		if u.StartedSeq > r.StartedSeq {
			s.Agent, _ = t.Plan.Agent(i, Undo)
		}
	}
	if c := r.Check; c != nil {
		s.Check, s.CheckAttempt, s.CheckDue = c.State, c.Attempt, c.Timer.Due
		if c.StartedSeq > r.StartedSeq && (r.Undo == nil || c.StartedSeq > r.Undo.StartedSeq) {
			s.Agent, _ = t.Plan.Agent(i, Check)
		}
	}
	return s
}
