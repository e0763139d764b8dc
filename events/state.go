package events

import (
	"encoding/json"
	"slices"
	"time"
)

// TaskState is the state of a task, by the name that is stored.
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

// TaskStates lists them in the order of a task's life.
var TaskStates = []TaskState{StatePending, StateProcessing, StateProcessed, StateError, StateUndoing, StateUndone, StateCancelled}

// Terminal reports whether nothing can follow the state. A hold (StateError)
// isn't terminal: it waits for an operator.
func (s TaskState) Terminal() bool {
	return s == StateProcessed || s == StateUndone || s == StateCancelled
}

// StepState is the state of a step, or of a step's undo, by its stored name.
type StepState string

// The states of a step. An undo uses running, failed, waiting, completed and
// error of them.
const (
	StepPending   StepState = "pending"
	StepRunning   StepState = "running"
	StepFailed    StepState = "failed"
	StepWaiting   StepState = "waiting"
	StepCompleted StepState = "completed"
	StepSkipped   StepState = "skipped"
	StepError     StepState = "error"
	StepUndoing   StepState = "undoing"
	StepUndone    StepState = "undone"
	StepCancelled StepState = "cancelled"
)

// StepStates lists them in the order of a step's life.
var StepStates = []StepState{StepPending, StepRunning, StepFailed, StepWaiting, StepCompleted, StepSkipped, StepError, StepUndoing, StepUndone, StepCancelled}

// Kind tells a step's operation from its undo.
type Kind string

// The two kinds of attempt, as ce_request writes them.
const (
	Do   Kind = "do"
	Undo Kind = "undo"
)

// Error says why an attempt, a step or a task failed. Code is one of a closed
// set where Waybill made it (the Code constants) and the agent's own where an
// agent did.
type Error struct {
	Code    string          `json:"code"`
	Message string          `json:"message,omitempty"`
	Step    string          `json:"step,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// The codes of errors that Waybill makes.
const (
	CodeExpired          = "expired"           // complete-by passed without a reply
	CodeTriesExhausted   = "tries_exhausted"   // the retry budget is spent
	CodeExpressionFailed = "expression_failed" // CEL failed at run time
	CodeTooLarge         = "too_large"         // a record would pass its bound
	CodeNoSuchAgent      = "no_such_agent"     // the agent has no request topic
	CodeNoSuchWorkflow   = "no_such_workflow"  // the task's definition is gone
	CodeCancelled        = "cancelled"         // an operator cancelled
	CodeUndoRequested    = "undo_requested"    // an operator asked for undo
)

// Timer is an instant at which something must happen if nothing happened
// before. It is named by the seq of the event that armed it; Seq 0: not armed.
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
	FailureCount int // failed and expired attempts since submission or the last resubmit
	CompleteBy   time.Time
	Key          string // idempotency key, the same for every attempt
	Generation   int    // of the key: renewed by a resubmit after a rejection
	Input        json.RawMessage
	TaskInput    bool // Input is the task's: it is held in memory, counted and stored once
	Error        *Error
	StartedAt    time.Time
	EndedAt      time.Time
	Timer        Timer
	StartedSeq   uint64 // of the event that started the last attempt
	TokenHash    string // of the last attempt's token; empty: it has no request
	Rejected     bool   // the last attempt was rejected: a resubmit renews the key
	CooledDown   bool   // the attempt past max_attempts has been granted
}

// Step is one step of a task, at the index that its plan gives it.
type Step struct {
	Run
	Output json.RawMessage
	// Unknown: an attempt timed out, or failed without ce_effect none, and
	// none has completed: the effect may have happened.
	Unknown bool
	// CompletedSeq is the seq of the event that completed the step; undo
	// goes in its reverse order. 0: never completed.
	CompletedSeq uint64
	// Undo is nil until an undo of the step starts.
	Undo *Run

	edition uint64 // of the task that made it: see Task.OwnStep
}

// Accepted names a control that was accepted, so that the same request again
// gets the same answer.
type Accepted struct {
	RequestID string
	Seq       uint64
}

// MaxAcceptedControls is how many accepted controls a task remembers.
const MaxAcceptedControls = 16

// Task is the order and its state, in one record: the fold of its events. It
// belongs to one goroutine; Clone before sharing. Raw JSON fields are never
// changed in place, so clones share them, and steps as well until one is changed
// (OwnStep): a task of a thousand steps is cloned for each of its replies.
type Task struct {
	ID           string
	Workflow     string
	Version      int
	State        TaskState
	CompleteBy   time.Time
	FailureCount int // the sum of its steps'; never falls
	Priority     int
	Labels       map[string]string
	ReplyTo      string
	Traceparent  string
	SubmittedAt  time.Time
	UpdatedAt    time.Time
	Digest       string // of the submission
	Input        json.RawMessage
	Output       json.RawMessage
	Error        *Error
	Plan         *Plan // nil in what Finished leaves
	Steps        []*Step
	Timer        Timer
	// Ending is what undoing ends in: undone or cancelled; empty before. A
	// hold keeps it, so that a resubmit knows where to go on.
	Ending TaskState
	// Keep: a cancel leaves what completed.
	Keep bool
	// Seq and Prev are the last event's number and hash; StatusSeq is that
	// of the event that made the present state.
	Seq       uint64
	Prev      string
	StatusSeq uint64
	Accepted  []Accepted

	edition uint64 // above that of every step which a clone may share
}

// Open reports whether anything can still happen to the task.
func (t *Task) Open() bool { return !t.State.Terminal() }

// Finished is what is kept of a task that has ended: what a decision about a later input can need.
// That is its identity, how it ended, the digest of its submission, the accepted controls, and the
// output or error that a reply_to may get again. Prev stays, since it covers every event. Steps and
// plan go: no timer is armed, and no reply is of a current attempt. The log has the whole task. An
// open task is returned unchanged, and so is a finished one.
func (t *Task) Finished() *Task {
	if t == nil || t.Open() || t.Plan == nil {
		return t
	}
	f := &Task{
		ID: t.ID, Workflow: t.Workflow, Version: t.Version, State: t.State, ReplyTo: t.ReplyTo, UpdatedAt: t.UpdatedAt,
		Digest: t.Digest, Seq: t.Seq, Prev: t.Prev, StatusSeq: t.StatusSeq, Accepted: t.Accepted,
	}
	if t.ReplyTo != "" {
		f.Output, f.Error = t.Output, t.Error
	}
	return f
}

// Clone copies the task, so that changing the copy by Evolve or OwnStep leaves the original
// unchanged, and the other way round. It writes to the original, so only the original's owner may
// clone it.
func (t *Task) Clone() *Task {
	if t == nil {
		return nil
	}
	t.edition++ // from here on every step is shared
	c := *t
	c.edition++
	c.Steps = slices.Clone(t.Steps)
	c.Accepted = slices.Clone(t.Accepted)
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
	t.Steps[i] = &own
	return &own
}

// newSteps makes the steps of a task that begins.
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
	if k == Undo {
		return t.Steps[step].Undo
	}
	return &t.Steps[step].Run
}

// Bytes is the size of the JSON from outside that the task holds.
func (t *Task) Bytes() int {
	n := len(t.Input) + len(t.Output) + t.Error.bytes()
	for k, v := range t.Labels {
		n += len(k) + len(v)
	}
	for i := range t.Steps {
		s := t.Steps[i]
		n += s.Run.bytes() + len(s.Output)
		if s.Undo != nil {
			n += s.Undo.bytes()
		}
	}
	return n
}

func (r *Run) bytes() int {
	if r.TaskInput {
		return r.Error.bytes()
	}
	return len(r.Input) + r.Error.bytes()
}

func (e *Error) bytes() int {
	if e == nil {
		return 0
	}
	return len(e.Code) + len(e.Message) + len(e.Details)
}

// PartitionState is the fold of a partition of events, besides its tasks.
type PartitionState struct {
	Epoch uint64    // of the last claim; 0: never claimed
	Owner string    // by the last claim
	At    time.Time // of the last event
	// Reflected is, for each inbox, the offset below which every record is
	// reflected: one more than the highest cause.
	Reflected [Inboxes]int64
	// TopicIDs are those of the topics that Reflected is of, by the last claim.
	TopicIDs TopicIDs
}

// ReflectedIn is Reflected of the inbox whose topic has an id. It is 0 if the offsets are of
// another topic. An unknown id matches every topic.
func (p *PartitionState) ReflectedIn(inbox Inbox, id string) int64 {
	if was := p.TopicIDs[inbox]; was != "" && id != "" && was != id {
		return 0
	}
	return p.Reflected[inbox]
}
