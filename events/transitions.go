package events

import (
	"slices"
	"strings"
)

// The tables below define every transition. Evolve and the scheduler read them. The diagram in
// docs/reference/states.md is generated from them, and a test walks every pair.

// Transition is one row: an event's verb, the states in which it may happen, and the next state.
// From "" means that nothing exists yet. If To is empty, Evolve chooses among the states in Either.
// During lists, for an event of a step, the states of its task in which it may happen. A row
// without During has no event of its own, or one of the task.
type Transition[S ~string] struct {
	Verb   Verb
	From   []S
	To     S
	Either []S
	During []TaskState
}

// The states of the task in which events of steps may happen. New work needs a task that continues.
// Results of running attempts are accepted during a hold and while undoing too. A release needs a
// hold.
var (
	whileProcessing = []TaskState{StateProcessing}
	whileUndoing    = []TaskState{StateUndoing}
	whileUndoHeld   = []TaskState{StateUndoing, StateError}
	whileRunning    = []TaskState{StateProcessing, StateUndoing, StateError}
	whileHeld       = []TaskState{StateError}
)

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

// undoable are the states of a step whose undo can begin, or has.
var undoable = []StepState{StepCompleted, StepFailed, StepCancelled, StepError, StepUndoing}

// StepTransitions is the table of a step: of its own operation, and of what the
// events of its undo ("undo.") make of it. What a decision to undo or hold does
// to steps that wait, and a resubmit to steps that ended so, is in the rows
// "ended" and "revived".
var StepTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{StepPending, StepFailed, StepWaiting}, To: StepRunning, During: whileProcessing},
	{Verb: "skipped", From: []StepState{StepPending}, To: StepSkipped, During: whileProcessing},
	{Verb: "completed", From: []StepState{StepRunning}, To: StepCompleted, During: whileRunning},
	{Verb: "failed", From: []StepState{StepPending, StepWaiting, StepFailed, StepRunning}, To: StepFailed, During: whileRunning},
	{Verb: "expired", From: []StepState{StepRunning}, To: StepFailed, During: whileRunning},
	{Verb: "waiting", From: []StepState{StepFailed}, To: StepWaiting, During: whileProcessing},
	{Verb: "rejected", From: []StepState{StepRunning}, To: StepError, During: whileRunning},
	{Verb: "errored", From: []StepState{StepPending, StepRunning, StepFailed, StepWaiting}, To: StepError, During: whileRunning},
	{Verb: "released", From: []StepState{StepError, StepFailed, StepCancelled}, Either: []StepState{StepCompleted, StepUndone}, During: whileHeld},
	{Verb: "ended", From: []StepState{StepPending, StepFailed, StepWaiting}, To: StepCancelled},
	{Verb: "revived", From: []StepState{StepCancelled, StepFailed, StepError}, To: StepPending},
	{Verb: "undo.started", From: undoable, To: StepUndoing, During: whileUndoing},
	{Verb: "undo.completed", From: []StepState{StepUndoing}, To: StepUndone, During: whileUndoHeld},
	{Verb: "undo.failed", From: undoable, To: StepUndoing, During: whileUndoHeld},
	{Verb: "undo.expired", From: []StepState{StepUndoing}, To: StepUndoing, During: whileUndoHeld},
	{Verb: "undo.waiting", From: []StepState{StepUndoing}, To: StepUndoing, During: whileUndoing},
	{Verb: "undo.rejected", From: []StepState{StepUndoing}, To: StepError, During: whileUndoHeld},
	{Verb: "undo.errored", From: undoable, To: StepError, During: whileUndoHeld},
	{Verb: "undo.revived", From: []StepState{StepUndoing, StepError}, To: StepUndoing},
}

// undoPrefix is before the verbs of an undo in the table of steps.
const undoPrefix = "undo."

// undoneSteps are the rows of the table of steps for events of undos, without the prefix of their
// verbs.
var undoneSteps = func() (rows []Transition[StepState]) {
	for _, r := range StepTransitions {
		if verb, undo := strings.CutPrefix(string(r.Verb), undoPrefix); undo {
			r.Verb = Verb(verb)
			rows = append(rows, r)
		}
	}
	return rows
}()

// UndoTransitions is the table of a step's undo. From "" is an undo that hasn't
// begun. During is the step table's: the same event moves both.
var UndoTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{"", StepPending, StepFailed, StepWaiting}, To: StepRunning},
	{Verb: "completed", From: []StepState{StepRunning}, To: StepCompleted},
	{Verb: "failed", From: []StepState{"", StepPending, StepWaiting, StepFailed, StepRunning}, To: StepFailed},
	{Verb: "expired", From: []StepState{StepRunning}, To: StepFailed},
	{Verb: "waiting", From: []StepState{StepFailed}, To: StepWaiting},
	{Verb: "rejected", From: []StepState{StepRunning}, To: StepError},
	{Verb: "errored", From: []StepState{"", StepPending, StepRunning, StepFailed, StepWaiting}, To: StepError},
	{Verb: "released", From: []StepState{StepError}, To: StepCompleted},
	{Verb: "ended", From: []StepState{StepFailed, StepWaiting}, To: StepPending},
	{Verb: "revived", From: []StepState{StepPending, StepFailed, StepError}, To: StepPending},
}

// row finds the row of a verb. ok is false if it isn't allowed in the state.
func row[S ~string](table []Transition[S], verb Verb, from S) (r *Transition[S], ok bool) {
	for i := range table {
		if r = &table[i]; r.Verb == verb {
			return r, slices.Contains(r.From, from)
		}
	}
	return nil, false
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

// Allowed is the table of state x command. A task that is held while undoing has an undo that can't
// be done. It may be resubmitted, released, or cancelled with what is left (--keep). An undo isn't
// allowed, since it is under way.
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
