package events

import "slices"

// The tables below are the only place that says what may follow what. Evolve
// and the scheduler read them; the diagram in docs/states.md is generated from
// them; a test walks every pair.

// Transition is one row: an event's verb, the states in which it may happen,
// and the state that it makes. From "" is a task that doesn't exist yet. Where
// To is empty, Evolve decides between the states that the row's Either lists.
type Transition[S ~string] struct {
	Verb   string
	From   []S
	To     S
	Either []S
}

// TaskTransitions is the table of tasks.
var TaskTransitions = []Transition[TaskState]{
	{Verb: "received", From: []TaskState{""}, To: StatePending},
	{Verb: "started", From: []TaskState{StatePending}, To: StateProcessing},
	{Verb: "processed", From: []TaskState{StateProcessing}, To: StateProcessed},
	{Verb: "undoing", From: []TaskState{StatePending, StateProcessing, StateError}, To: StateUndoing},
	{Verb: "undone", From: []TaskState{StateUndoing}, To: StateUndone},
	{Verb: "cancelled", From: []TaskState{StateUndoing, StateError}, To: StateCancelled},
	{Verb: "held", From: []TaskState{StatePending, StateProcessing, StateUndoing}, To: StateError},
	{Verb: "resumed", From: []TaskState{StateError}, Either: []TaskState{StateProcessing, StateUndoing}},
}

// StepTransitions is the table of a step's own operation. What a decision to
// undo or hold does to steps that wait, and a resubmit to steps that ended so,
// is in the rows "ended" and "revived", which no event of their own announces.
var StepTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{StepPending, StepFailed, StepWaiting}, To: StepRunning},
	{Verb: "skipped", From: []StepState{StepPending}, To: StepSkipped},
	{Verb: "completed", From: []StepState{StepRunning}, To: StepCompleted},
	{Verb: "failed", From: []StepState{StepPending, StepWaiting, StepFailed, StepRunning}, To: StepFailed},
	{Verb: "expired", From: []StepState{StepRunning}, To: StepFailed},
	{Verb: "waiting", From: []StepState{StepFailed}, To: StepWaiting},
	{Verb: "rejected", From: []StepState{StepRunning}, To: StepError},
	{Verb: "errored", From: []StepState{StepPending, StepRunning, StepFailed, StepWaiting}, To: StepError},
	{Verb: "released", From: []StepState{StepError, StepFailed, StepCancelled, StepUndoing}, Either: []StepState{StepCompleted, StepUndone}},
	{Verb: "ended", From: []StepState{StepPending, StepFailed, StepWaiting}, To: StepCancelled},
	{Verb: "revived", From: []StepState{StepCancelled, StepFailed, StepError}, To: StepPending},
	{Verb: "undo.started", From: []StepState{StepCompleted, StepFailed, StepCancelled, StepError, StepUndoing}, To: StepUndoing},
	{Verb: "undo.completed", From: []StepState{StepUndoing}, To: StepUndone},
	{Verb: "undo.rejected", From: []StepState{StepUndoing}, To: StepError},
	{Verb: "undo.errored", From: []StepState{StepCompleted, StepFailed, StepCancelled, StepError, StepUndoing}, To: StepError},
}

// UndoTransitions is the table of a step's undo. From "" is an undo that hasn't
// begun.
var UndoTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{"", StepPending, StepFailed, StepWaiting}, To: StepRunning},
	{Verb: "completed", From: []StepState{StepRunning}, To: StepCompleted},
	{Verb: "failed", From: []StepState{"", StepPending, StepWaiting, StepFailed, StepRunning}, To: StepFailed},
	{Verb: "expired", From: []StepState{StepRunning}, To: StepFailed},
	{Verb: "waiting", From: []StepState{StepFailed}, To: StepWaiting},
	{Verb: "rejected", From: []StepState{StepRunning}, To: StepError},
	{Verb: "errored", From: []StepState{"", StepPending, StepRunning, StepFailed, StepWaiting}, To: StepError},
	{Verb: "released", From: []StepState{StepError}, To: StepCompleted},
	{Verb: "revived", From: []StepState{StepError}, To: StepPending},
}

// row finds the row of a verb, if the table lets it happen in the state.
func row[S ~string](table []Transition[S], verb string, from S) (Transition[S], bool) {
	for i := range table {
		if table[i].Verb == verb {
			return table[i], slices.Contains(table[i].From, from)
		}
	}
	return Transition[S]{}, false
}

// Command is an operator's command, by its name in the CLI.
type Command string

// The operator's commands.
const (
	Cancel   Command = "cancel"
	Resubmit Command = "resubmit"
	UndoTask Command = "undo"
	Release  Command = "release"
)

// Commands lists them.
var Commands = []Command{Cancel, Resubmit, UndoTask, Release}

// Allowed is the table of state x command. Held while undoing, a task has an
// undo that can't be done: it may be resubmitted, released, or cancelled with
// what is left (--keep), but an undo of it is already under way.
func Allowed(c Command, t *Task) bool {
	undoHeld := t.State == StateError && t.Ending != ""
	switch c {
	case Cancel:
		return t.State == StatePending || t.State == StateProcessing || t.State == StateError
	case UndoTask:
		return t.State == StatePending || t.State == StateProcessing || t.State == StateError && !undoHeld
	case Resubmit, Release:
		return t.State == StateError
	}
	return false
}
