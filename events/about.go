package events

import "encoding/json"

// About is what a fact says of itself: what happened, to what, and what that means to
// attempts and timers. Readers of events ask for it, so that none of them lists the facts:
// a new fact fills in an About, and all readers know it.
type About struct {
	Verb Verb
	// Step and Kind are the run that the fact is about. An empty Kind: it is about the task, or the
	// partition. A release is of a step, whichever of its runs is in error: its Kind is Do.
	Step string
	Kind Kind
	// Attempt is the number of the attempt that the fact is about. It has one if, and only if,
	// Phase isn't PhaseNone.
	Attempt int
	Phase   Phase
	// Counts: the attempt is a failure, counted by its run and its task.
	Counts bool
	// Agent is who is asked, of an attempt that starts.
	Agent string
	// Instance is that of the agent that replied, as its ce_source has it; empty: it isn't said.
	Instance string
	// Arms is the kind of timer that the fact arms; empty: none ever. Whether an event does, its Due says.
	Arms TimerKind
	// Disarms are the timers that the fact ends, before it arms its own.
	Disarms Disarms
	// As is the state of a released step.
	As StepState
	// Ending is what a task that is being undone ends in.
	Ending TaskState
	// Raw is the fact's own JSON value, which is carried as it stands. Failure is where its error
	// is. By is the operator that asked for it. nil: the fact has none.
	Raw     *json.RawMessage
	Failure **Error
	By      *By
}

// Verb is what happened: the row of the tables of transitions that a fact takes. That of an undo is
// the same as of a step's own operation; the kind tells them apart.
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

// The rows of the tables that no fact of a step announces: what facts of the task do to its steps.
const (
	verbEnded   Verb = "ended"   // by a decision to undo or hold
	verbRevived Verb = "revived" // by a resubmit
)

// Phase is what a fact means to the attempt that it is about.
type Phase uint8

// The phases of an attempt.
const (
	PhaseNone    Phase = iota // the fact is about no attempt
	PhaseStarted              // it was asked for, and runs
	PhaseReplied              // its agent replied, which ended it; or it failed before anybody was asked
	PhaseExpired              // its time was over, which ended it
	PhaseWaiting              // it has ended, and the next one is due later
)

// Ends reports whether an attempt in this phase has just ended.
func (p Phase) Ends() bool { return p == PhaseReplied || p == PhaseExpired }

// Disarms says which timers of its task a fact ends.
type Disarms uint8

// The timers that facts end.
const (
	DisarmsNone    Disarms = iota
	DisarmsOwn             // that of its slot
	DisarmsStep            // those of its step and of the step's undo
	DisarmsWaiting         // all but those of running attempts
	DisarmsAll
)

// OfStep reports whether the fact is about a step: else about the task, or the partition.
func (a *About) OfStep() bool { return a.Kind != "" }

// Slot names the timer of what the fact is about.
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

// Carried is the JSON value that the fact carries as it stands, its own or the details of its error; nil: none.
func (a *About) Carried() *json.RawMessage {
	if a.Raw != nil {
		return a.Raw
	}
	if err := a.Error(); err != nil {
		return &err.Details
	}
	return nil
}
