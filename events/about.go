package events

import "encoding/json"

// About is what a fact says of itself: what happened, to what, and what that means for attempts and
// timers. Readers of events use it instead of a list of the facts. A new fact fills in an About,
// and no reader changes.
type About struct {
	Verb Verb
	// Step and Kind name the run that the fact is about. With an empty Kind it is about the task,
	// or the partition. A release is about a step, whichever of its runs is in error: its Kind is
	// Do.
	Step string
	Kind Kind
	// Attempt is the number of the attempt that the fact is about. It is set if and only if Phase
	// isn't PhaseNone.
	Attempt int
	Phase   Phase
	// Counts: the attempt counts as a failure of its run and of its task.
	Counts bool
	// Agent is the agent that is asked, if an attempt starts.
	Agent string
	// Instance is the instance of the agent that replied, from its ce_source; empty: unknown.
	Instance string
	// Arms is the kind of timer that the fact can arm; empty: none. The event arms it if it has a
	// Due.
	Arms TimerKind
	// Disarms are the timers that the fact disarms before it arms its own.
	Disarms Disarms
	// As is the state of a released step.
	As StepState
	// Ending is the state in which the undo of a task ends.
	Ending TaskState
	// Raw is the fact's own JSON value, copied verbatim. Failure is its error. By is the operator
	// who asked for it. nil: the fact has none.
	Raw     *json.RawMessage
	Failure **Error
	By      *By
}

// Verb is what happened: the row in the tables of transitions. A step's operation and its undo have
// the same verbs; the kind tells them apart.
type Verb string

// The verbs of facts.
const (
	VerbClaimed   Verb = "claimed" // of a partition
	VerbReceived  Verb = "received"
	VerbStarted   Verb = "started" // of a task, or of an attempt
	VerbProcessed Verb = "processed"
	VerbUndoing   Verb = "undoing"
	VerbUndone    Verb = "undone"
	VerbCancelled Verb = "cancelled"
	VerbHeld      Verb = "held"
	VerbResumed   Verb = "resumed"
	VerbSkipped   Verb = "skipped"
	VerbReleased  Verb = "released"
	VerbCompleted Verb = "completed"
	VerbFailed    Verb = "failed"
	VerbRejected  Verb = "rejected"
	VerbExpired   Verb = "expired"
	VerbWaiting   Verb = "waiting"
	VerbErrored   Verb = "errored"
)

// The rows for which steps have no facts: they follow from facts of the task.
const (
	verbEnded   Verb = "ended"   // by a decision to undo or hold
	verbRevived Verb = "revived" // by a resubmit
)

// Phase is what a fact means for its attempt.
type Phase uint8

// The phases of an attempt.
const (
	PhaseNone    Phase = iota // the fact is about no attempt
	PhaseStarted              // the request was sent; the attempt runs
	PhaseReplied              // the attempt ended: its agent replied, or it failed before a request was sent
	PhaseExpired              // the attempt ended: its complete-by passed
	PhaseWaiting              // the attempt ended before; the next one is due later
)

// Ends reports whether an attempt in this phase has just ended.
func (p Phase) Ends() bool { return p == PhaseReplied || p == PhaseExpired }

// Disarms names the timers of its task that a fact disarms.
type Disarms uint8

// The timers that facts end.
const (
	DisarmsNone    Disarms = iota
	DisarmsOwn             // the timer of its slot
	DisarmsStep            // the timers of its step and of the step's undo
	DisarmsWaiting         // all timers but those of running attempts
	DisarmsAll
)

// OfStep reports whether the fact is about a step, and not about the task or the partition.
func (a *About) OfStep() bool { return a.Kind != "" }

// Slot names the timer of the fact's run or task.
func (a *About) Slot() Slot { return Slot{Step: a.Step, Kind: a.Kind} }

// Ref names the attempt that the fact is about.
func (a *About) Ref() RequestRef { return RequestRef{Step: a.Step, Kind: a.Kind, Attempt: a.Attempt} }

// Error is the fact's error; nil: it has none.
func (a *About) Error() *Error {
	if a.Failure == nil {
		return nil
	}
	return *a.Failure
}

// Carried is the fact's JSON value, its own or the details of its error; nil: none.
func (a *About) Carried() *json.RawMessage {
	if a.Raw != nil {
		return a.Raw
	}
	if err := a.Error(); err != nil {
		return &err.Details
	}
	return nil
}
