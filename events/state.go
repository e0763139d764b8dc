package events

import (
	"encoding/json"
	"slices"
	"time"
)

// TaskState is the state of a task, by its stored name. The state "error" is called held.
type TaskState string

// The states of a task.
const (
	StatePending    TaskState = "pending"
	StateProcessing TaskState = "processing"
	StateProcessed  TaskState = "processed"
	StateError      TaskState = "error"
	StateUndoing    TaskState = "undoing"
	StateUndone     TaskState = "undone"
	StateCancelled  TaskState = "cancelled"
)

// TaskStates lists the states in the order of a task's life.
var TaskStates = []TaskState{StatePending, StateProcessing, StateProcessed, StateError, StateUndoing, StateUndone, StateCancelled}

// Terminal reports whether the task has ended. A hold (StateError) isn't terminal: it waits for an operator. Only an
// operator's undo can follow processed (TaskUndoing.Processed), and nothing the other terminal states.
func (s TaskState) Terminal() bool {
	return s == StateProcessed || s == StateUndone || s == StateCancelled
}

// StepState is the state of a step, or of a step's undo, by its stored name.
type StepState string

// The states of a step. An undo has pending, running, failed, waiting, completed or error.
const (
	StepPending   StepState = "pending"
	StepRunning   StepState = "running"
	StepFailed    StepState = "failed"
	StepWaiting   StepState = "waiting"
	StepCompleted StepState = "completed"
	StepSkipped   StepState = "skipped"
	StepCaught    StepState = "caught" // it ended in error, and the task goes on
	StepError     StepState = "error"
	StepUndoing   StepState = "undoing"
	StepUndone    StepState = "undone"
	StepCancelled StepState = "cancelled"
)

// StepStates lists the states in the order of a step's life.
var StepStates = []StepState{StepPending, StepRunning, StepFailed, StepWaiting, StepCompleted, StepSkipped, StepCaught, StepError, StepUndoing, StepUndone, StepCancelled}

// Kind says whether a run is of a step's operation or of its undo.
type Kind string

// The kinds of run, as in ce_request. Check is another one.
const (
	Do   Kind = "do"
	Undo Kind = "undo"
)

// Error says why an attempt, a step or a task failed. Code is one of the Code constants if Waybill made the error.
// Otherwise the agent chose it.
type Error struct {
	Code    string          `json:"code" jsonschema:"One of Waybill's codes, or one that the agent chose."`
	Message string          `json:"message,omitempty" jsonschema:"What went wrong, for people."`
	Step    string          `json:"step,omitempty" jsonschema:"The step that failed."`
	Details json.RawMessage `json:"details,omitempty" jsonschema:"What else the agent said: any JSON."`
}

// The codes of errors that Waybill makes.
const (
	CodeExpired          = "expired"           // complete-by passed without a reply
	CodeTriesExhausted   = "tries_exhausted"   // the retry budget is spent
	CodeExpressionFailed = "expression_failed" // CEL failed at run time
	CodeTooLarge         = "too_large"         // a record would exceed its bound
	CodeNoSuchAgent      = "no_such_agent"     // the agent has no request topic
	CodeNoSuchWorkflow   = "no_such_workflow"  // the task's definition doesn't exist
	CodeCancelled        = "cancelled"         // an operator cancelled
	CodeUndoRequested    = "undo_requested"    // an operator asked for undo
)

// Timer is an instant at which a supervisor asks for a recovery, unless an event disarms the timer before. Seq is the
// seq of the event that armed it; 0: not armed.
type Timer struct {
	Seq uint64
	Due time.Time
}

// Armed reports whether the timer is armed.
func (t Timer) Armed() bool { return t.Seq != 0 }

// Run is the run of an operation: the attempts at a step, or at its undo.
type Run struct {
	State        StepState
	Attempt      int // of the last one started; 0: none yet
	FailureCount int // failed and expired attempts since submission, the last resubmit, or the last call that completed
	CompleteBy   time.Time
	Key          string // idempotency key, the same for every attempt of a generation
	Generation   int    // of the key; a resubmit after a rejection increments it, and each call of a repeat
	Input        json.RawMessage
	Error        *Error
	StartedAt    time.Time
	EndedAt      time.Time
	Timer        Timer
	StartedSeq   uint64 // of the event that started the last attempt
	TokenHash    string // of the last attempt's token; empty: it has no request
	TaskInput    bool   // Input is the task's: it is in memory, counted and stored once
	Rejected     bool   // the last attempt was rejected: a resubmit renews the key
	CooledDown   bool   // the attempt past max_attempts has been granted

	interim *Interim // nil: the zero Interim
}

// Step is one step of a task, at the index that its plan gives it.
type Step struct {
	Run
	Output json.RawMessage // while a step is repeated, that of the last call
	// Unknown is true if the effect may have happened: an attempt timed out, or failed without ce_effect none, or a call
	// of a repeat completed, and the step hasn't completed.
	Unknown bool
	// CompletedSeq is the seq of the event that completed the step; 0: never completed. Steps are undone in its reverse
	// order.
	CompletedSeq uint64
	// Items are those of a step that runs for each item of a list; nil: it hasn't begun.
	Items *Items
	// Undo is nil until an undo of the step starts, Check until a check does.
	Undo  *Run
	Check *Run

	kindState *KindState // nil: the zero KindState
	edition   uint64     // of the task that owns it: see Task.OwnStep
}

// Accepted names an accepted control, so that a repeated request gets the same answer.
type Accepted struct {
	RequestID string
	Seq       uint64
}

// MaxAcceptedControls bounds the accepted controls that a task stores. The oldest are dropped.
const MaxAcceptedControls = 16

// Task is a task and its state: the fold of its events. It is for one goroutine; Clone it before sharing. Raw JSON
// fields are never changed in place, so clones share them. Clones share steps too, until one is changed (OwnStep),
// since a task of a thousand steps is cloned for each of its replies.
type Task struct {
	ID           string
	Workflow     string
	Version      int
	State        TaskState
	CompleteBy   time.Time
	Asked        time.Time // the complete-by in the submission; zero: none, or a resubmit has replaced it
	FailureCount int       // failures of all its runs; never decreases
	Priority     int
	Labels       map[string]string
	ReplyTo      string
	Traceparent  string
	Intake       *IntakeRef // nil: no intake made its submission; never changed
	SubmittedAt  time.Time
	UpdatedAt    time.Time
	OwnKeys      bool      // its id might be forgotten when it was received: see KeyName
	ForgetAt     time.Time // of an ended task: from when on its id may be forgotten; zero: never
	Digest       string    // of the submission
	Input        json.RawMessage
	Output       json.RawMessage
	Error        *Error
	Plan         *Plan // nil if Finished dropped it
	Steps        []*Step
	Timer        Timer
	// Parent is the step that the task is the child of; nil: none.
	Parent *Parent
	// Withdrawal is the last withdrawal by the parent; nil: none.
	Withdrawal *Withdrawing
	// Ending is the state in which the undo will end: undone or cancelled; empty: no undo has begun. A hold keeps it,
	// so that a resubmit continues the undo.
	Ending TaskState
	// Keep is true if a cancel doesn't undo completed steps.
	Keep bool
	// Seq and Prev are the last event's seq and hash. StatusSeq is the seq of the event that set State.
	Seq       uint64
	Prev      string
	StatusSeq uint64
	Accepted  []Accepted
	// Signals are the signals that no step has taken yet, in the order in which they came; at most MaxKeptSignals.
	Signals []KeptSignal

	edition uint64 // greater than that of every step that a clone may share
}

// Open reports whether the task hasn't ended.
func (t *Task) Open() bool { return !t.State.Terminal() }

// Finished returns the part of an ended task that decisions about later inputs need. That is its identity, how it
// ended, the digest of its submission, the accepted controls, and the output or error for another notification. It
// keeps Prev, since that covers every event. It drops steps and plan: no timer is armed, and no attempt is current. The
// whole task is in the log, and an undo of it is decided with that. An open task, and a result of Finished, are returned
// unchanged. So is a processed child: its parent may undo it, with as many others, and reading the log for each would
// take too long.
func (t *Task) Finished() *Task {
	if t == nil || t.Open() || t.Plan == nil || t.Parent != nil && t.State == StateProcessed {
		return t
	}
	f := &Task{
		ID: t.ID, Workflow: t.Workflow, Version: t.Version, State: t.State, ReplyTo: t.ReplyTo, UpdatedAt: t.UpdatedAt,
		ForgetAt: t.ForgetAt, Digest: t.Digest, Seq: t.Seq, Prev: t.Prev, StatusSeq: t.StatusSeq, Accepted: t.Accepted, Parent: t.Parent,
	}
	if t.ReplyTo != "" {
		f.Output, f.Error = t.Output, t.Error
	}
	return f
}

// Clone copies the task. Changing one by Evolve or OwnStep leaves the other unchanged. Clone writes to the original, so
// only the original's owner may call it.
func (t *Task) Clone() *Task {
	if t == nil {
		return nil
	}
	t.edition++ // from here on every step is shared
	c := *t
	c.edition++
	c.Steps = slices.Clone(t.Steps)
	c.Accepted = slices.Clone(t.Accepted)
	c.Signals = slices.Clone(t.Signals)
	return &c
}

// OwnStep returns a step that may be changed. If a clone may share it, it is replaced by a copy.
func (t *Task) OwnStep(i int) *Step {
	s := t.Steps[i]
	if s.edition == t.edition {
		return s
	}
	own := *s
	own.edition = t.edition
	if s.Undo != nil {
		undo := *s.Undo
		own.Undo = &undo
	}
	if s.Check != nil {
		check := *s.Check
		own.Check = &check
	}
	t.Steps[i] = &own
	return &own
}

// newSteps makes n pending steps.
func newSteps(n int) []*Step {
	steps, all := make([]*Step, n), make([]Step, n)
	for i := range steps {
		all[i].State = StepPending
		steps[i] = &all[i]
	}
	return steps
}

// Run returns the run of a step's operation or of its undo, for reading; nil: not begun.
func (t *Task) Run(step int, k Kind) *Run {
	switch k {
	case Undo:
		return t.Steps[step].Undo
	case Check:
		return t.Steps[step].Check
	case Do:
	}
	return &t.Steps[step].Run
}

// Bytes returns the size of the JSON and texts from outside in the task.
func (t *Task) Bytes() int {
	n := len(t.Input) + len(t.Output) + t.Error.bytes()
	for k, v := range t.Labels {
		n += len(k) + len(v)
	}
	for i := range t.Signals {
		n += t.Signals[i].bytes()
	}
	for i := range t.Steps {
		s := t.Steps[i]
		n += s.Run.bytes() + len(s.Output) + s.Items.bytes()
		if s.Undo != nil {
			n += s.Undo.bytes()
		}
		if s.Check != nil {
			n += s.Check.bytes()
		}
	}
	return n
}

func (r *Run) bytes() int {
	n := r.Error.bytes() + r.Interim().ChildError.bytes()
	if r.TaskInput {
		return n
	}
	return len(r.Input) + n
}

func (e *Error) bytes() int {
	if e == nil {
		return 0
	}
	return len(e.Code) + len(e.Message) + len(e.Details)
}

// PartitionState is the fold of a partition of events, without its tasks.
type PartitionState struct {
	Epoch uint64    // of the last claim; 0: never claimed
	Owner string    // by the last claim
	At    time.Time // of the last event
	// Reflected is, for each inbox, the offset below which every record is reflected: the highest offset of a cause,
	// plus one.
	Reflected [Inboxes]int64
	// TopicIDs are the ids of the topics that the offsets in Reflected belong to, from claims.
	TopicIDs TopicIDs
	// Forgot is the instant until which ids are forgotten: those of ended tasks whose ForgetAt isn't after it. ForgetDue
	// is the earliest instant at which another one may be forgotten, or earlier; zero: none may be.
	Forgot, ForgetDue time.Time
}

// ReflectedIn returns Reflected of an inbox whose topic has this id. It is 0 if the offset belongs to another topic. An
// empty id matches every topic.
func (p *PartitionState) ReflectedIn(inbox Inbox, id string) int64 {
	if was := p.TopicIDs[inbox]; was != "" && id != "" && was != id {
		return 0
	}
	return p.Reflected[inbox]
}
