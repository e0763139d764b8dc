package events

import "encoding/json"

// About describes a fact: what happened, to what, and what that means for attempts and timers. Readers of events use it
// and need no list of the facts, so a new fact changes no reader.
type About struct {
	Verb Verb
	// Step and Kind name the run that the fact is about. An empty Kind means the task or the partition. The Kind of a
	// release is Do, even if the step's undo is in error.
	Step string
	Kind Kind
	// StepKind is the kind of the runs that the fact can be about. It is meaningless if AnyKind is true.
	StepKind StepKind
	AnyKind  bool
	// Attempt is the number of the attempt that the fact is about. It is set if and only if Phase isn't PhaseNone.
	Attempt int
	Phase   Phase
	// Counts is true if the attempt counts as a failure of its run and of its task.
	Counts bool
	// Agent is the agent that receives the request, if an attempt starts.
	Agent string
	// Instance is the instance of the agent that replied, from the reply's ce_source; empty: unknown.
	Instance string
	// Arms is the kind of timer that the fact can arm; empty: none. The timer is armed only if the event has a Due.
	Arms TimerKind
	// Disarms names the timers that the fact disarms before it arms its own.
	Disarms Disarms
	// As is the state that a release gives the step.
	As StepState
	// Ending is the state in which the undo of the task will end.
	Ending TaskState
	// Raw is the fact's own JSON value, copied verbatim. Failure is its error. By is the operator's request that led to
	// it. nil: the fact has none.
	Raw     *json.RawMessage
	Failure **Error
	By      *By
}

// Verb is what happened. It selects the row in the tables of transitions. A step's operation and its undo have the same
// verbs and differ in the Kind.
type Verb string

// The verbs of facts.
const (
	VerbClaimed   Verb = "claimed" // of a partition
	VerbForgot    Verb = "forgot"  // of a partition
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
	VerbCaught    Verb = "caught"
	VerbSignalled Verb = "signalled" // a task received a signal; its state stays as it is
	VerbRepeated  Verb = "repeated"
	VerbMigrated  Verb = "migrated" // a task goes on with another version; its state stays as it is
)

// The verbs of transitions of steps that have no fact of their own. Facts of the task cause them.
const (
	verbEnded       Verb = "ended"       // by a decision to undo or hold
	verbInterrupted Verb = "interrupted" // by a decision to undo, if no agent is at work
	verbRevived     Verb = "revived"     // by a resubmit
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
	PhaseBegan                // the step runs, and no agent was asked: its kind calls none
	PhaseFired                // such a step ended: its timer was due
	PhaseGoesOn               // the attempt goes on: its agent reported progress, or its child is held or no longer held
	PhaseTaken                // a step without an agent ended: it took a signal, or its child ended
)

// Ends reports whether an attempt in this phase has just ended.
func (p Phase) Ends() bool {
	return p == PhaseReplied || p == PhaseExpired || p == PhaseFired || p == PhaseTaken
}

// Begins reports whether an attempt in this phase has just begun.
func (p Phase) Begins() bool { return p == PhaseStarted || p == PhaseBegan }

// Disarms names the timers of its task that a fact disarms.
type Disarms uint8

// The sets of timers that a fact can disarm.
const (
	DisarmsNone    Disarms = iota
	DisarmsOwn             // the timer of its slot
	DisarmsStep            // the timers of its step, and of the step's undo and check
	DisarmsWaiting         // all timers except those of runs that go on running
	DisarmsAll
	// DisarmsReplanned disarms the timer of its slot. The others stay, with the rules of the fact's plan.
	DisarmsReplanned
)

// OfStep reports whether the fact is about a step. If not, it is about the task or the partition.
func (a *About) OfStep() bool { return a.Kind != "" }

// Slot returns the slot of the timer of the fact's run or task.
func (a *About) Slot() Slot { return Slot{Step: a.Step, Kind: a.Kind} }

// Ref returns the attempt that the fact is about.
func (a *About) Ref() RequestRef { return RequestRef{Step: a.Step, Kind: a.Kind, Attempt: a.Attempt} }

// Error returns the fact's error; nil: it has none.
func (a *About) Error() *Error {
	if a.Failure == nil {
		return nil
	}
	return *a.Failure
}
