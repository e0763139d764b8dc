package events

import (
	"slices"
	"strings"
)

// The tables below define every transition. Evolve and the scheduler read them. The diagram in
// docs/reference/states.md is generated from them, and a test walks every pair.

// Transition is one row: an event's verb, the states in which it may happen, and the next state. From "" means that the
// task or undo doesn't exist yet. If To is empty, Evolve chooses among the states in Either. During lists, for an event
// of a step, the states of its task in which it may happen. Rows of tasks and undos, and rows without an event of their
// own, have no During.
type Transition[S ~string] struct {
	Verb   Verb
	From   []S
	To     S
	Either []S
	During []TaskState
}

// The states of the task in which events of steps may happen. New work needs a task that continues. While the task is
// processing, a step is undone only if its error is caught. Results of running attempts are accepted during a hold and
// while undoing too. A release needs a hold.
var (
	whileProcessing = []TaskState{StateProcessing}
	whileUndoing    = []TaskState{StateProcessing, StateUndoing}
	whileRunning    = []TaskState{StateProcessing, StateUndoing, StateError}
	whileCatching   = []TaskState{StateProcessing, StateError}
	whileHeld       = []TaskState{StateError}
	whileChecking   = []TaskState{StateProcessing, StateUndoing}
)

// TaskTransitions is the table of tasks.
var TaskTransitions = []Transition[TaskState]{
	{Verb: "received", From: []TaskState{""}, To: StatePending},
	{Verb: "started", From: []TaskState{StatePending}, To: StateProcessing},
	{Verb: "processed", From: []TaskState{StateProcessing}, To: StateProcessed},
	{Verb: "undoing", From: []TaskState{StatePending, StateProcessing, StateError, StateProcessed}, To: StateUndoing},
	{Verb: "undone", From: []TaskState{StateUndoing}, To: StateUndone},
	{Verb: "cancelled", From: []TaskState{StateUndoing, StateError}, To: StateCancelled},
	{Verb: "held", From: []TaskState{StatePending, StateProcessing, StateUndoing}, To: StateError},
	{Verb: "resumed", From: []TaskState{StateError}, Either: []TaskState{StateProcessing, StateUndoing}},
}

// undoable are the states of a step whose undo can begin or has begun.
var undoable = []StepState{StepCompleted, StepFailed, StepCancelled, StepError, StepUndoing}

// withItems are the states of a step in which its items may end: some still run when an item has failed, or when the task
// is held or being undone.
var withItems = []StepState{StepRunning, StepPending, StepCancelled, StepError}

// checkable are the states of a step whose effect may be unknown while no attempt runs.
var checkable = []StepState{StepPending, StepFailed, StepWaiting, StepCancelled, StepError}

// StepTransitions is the table of steps, for events of the operation, of the undo ("undo.") and of the check ("check."). The
// row "ended" is for waiting steps at a decision to undo or hold, the row "interrupted" for running steps without an
// agent at work at a decision to undo. The rows "revived" are for ended steps when a resubmit continues the task. An
// event of a check doesn't change a step in error, nor any step while the task isn't processed, unless the operation
// completed.
var StepTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{StepPending, StepFailed, StepWaiting}, To: StepRunning, During: whileProcessing},
	{Verb: "skipped", From: []StepState{StepPending}, To: StepSkipped, During: whileProcessing},
	{Verb: "progressed", From: []StepState{StepRunning}, To: StepRunning, During: whileRunning},
	{Verb: "item", From: withItems, Either: withItems, During: whileRunning},
	{Verb: "completed", From: []StepState{StepRunning}, To: StepCompleted, During: whileRunning},
	{Verb: "repeated", From: []StepState{StepRunning}, Either: []StepState{StepWaiting, StepCancelled}, During: whileRunning},
	{Verb: "failed", From: []StepState{StepPending, StepWaiting, StepFailed, StepRunning}, To: StepFailed, During: whileRunning},
	{Verb: "expired", From: []StepState{StepRunning}, To: StepFailed, During: whileRunning},
	{Verb: "child_held", From: []StepState{StepRunning}, To: StepRunning, During: whileRunning},
	{Verb: "child_resumed", From: []StepState{StepRunning}, To: StepRunning, During: whileRunning},
	{Verb: "waiting", From: []StepState{StepFailed}, To: StepWaiting, During: whileProcessing},
	{Verb: "rejected", From: []StepState{StepRunning}, To: StepError, During: whileRunning},
	{Verb: "errored", From: []StepState{StepPending, StepRunning, StepFailed, StepWaiting}, To: StepError, During: whileRunning},
	{Verb: "released", From: []StepState{StepError, StepFailed, StepCancelled}, Either: []StepState{StepCompleted, StepUndone}, During: whileHeld},
	{Verb: "caught", From: []StepState{StepError, StepUndone}, To: StepCaught, During: whileCatching},
	{Verb: "ended", From: []StepState{StepPending, StepFailed, StepWaiting}, To: StepCancelled},
	{Verb: "interrupted", From: []StepState{StepRunning}, To: StepCancelled},
	{Verb: "revived", From: []StepState{StepCancelled, StepFailed, StepError}, To: StepPending},
	{Verb: "undo.started", From: undoable, To: StepUndoing, During: whileUndoing},
	{Verb: "undo.progressed", From: []StepState{StepUndoing}, To: StepUndoing, During: whileRunning},
	{Verb: "undo.item", From: []StepState{StepUndoing}, To: StepUndoing, During: whileRunning},
	{Verb: "undo.child_held", From: []StepState{StepUndoing}, To: StepUndoing, During: whileRunning},
	{Verb: "undo.child_resumed", From: []StepState{StepUndoing}, To: StepUndoing, During: whileRunning},
	{Verb: "undo.completed", From: []StepState{StepUndoing}, To: StepUndone, During: whileRunning},
	{Verb: "undo.failed", From: undoable, To: StepUndoing, During: whileRunning},
	{Verb: "undo.expired", From: []StepState{StepUndoing}, To: StepUndoing, During: whileRunning},
	{Verb: "undo.waiting", From: []StepState{StepUndoing}, To: StepUndoing, During: whileUndoing},
	{Verb: "undo.rejected", From: []StepState{StepUndoing}, To: StepError, During: whileRunning},
	{Verb: "undo.errored", From: undoable, To: StepError, During: whileRunning},
	{Verb: "check.started", From: checkable, Either: []StepState{StepFailed, StepError}, During: whileChecking},
	{Verb: "check.completed", From: checkable, Either: []StepState{StepCompleted, StepFailed, StepError}, During: whileRunning},
	{Verb: "check.failed", From: checkable, Either: []StepState{StepFailed, StepError}, During: whileRunning},
	{Verb: "check.expired", From: checkable, Either: []StepState{StepFailed, StepError}, During: whileRunning},
	{Verb: "check.waiting", From: checkable, Either: []StepState{StepFailed, StepError}, During: whileChecking},
	{Verb: "check.rejected", From: checkable, Either: []StepState{StepFailed, StepError}, During: whileRunning},
	{Verb: "check.errored", From: checkable, Either: []StepState{StepFailed, StepError}, During: whileRunning},
	{Verb: "undo.revived", From: []StepState{StepUndoing, StepError}, To: StepUndoing},
}

// undoPrefix begins the verbs of an undo in the table of steps.
const undoPrefix = "undo."

// undoneSteps and checkedSteps are the rows of the table of steps for events of undos and of checks. Their verbs have no
// prefix.
var undoneSteps, checkedSteps = rowsOf(undoPrefix), rowsOf(checkPrefix)

func rowsOf(prefix string) (rows []Transition[StepState]) {
	for _, r := range StepTransitions {
		if verb, is := strings.CutPrefix(string(r.Verb), prefix); is {
			r.Verb = Verb(verb)
			rows = append(rows, r)
		}
	}
	return rows
}

// UndoTransitions is the table of a step's undo. From "" is an undo that hasn't begun. During is in the table of steps,
// since the same event changes both states.
var UndoTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{"", StepPending, StepFailed, StepWaiting}, To: StepRunning},
	{Verb: "progressed", From: []StepState{StepRunning}, To: StepRunning},
	{Verb: "item", From: []StepState{StepRunning}, To: StepRunning},
	{Verb: "child_held", From: []StepState{StepRunning}, To: StepRunning},
	{Verb: "child_resumed", From: []StepState{StepRunning}, To: StepRunning},
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

// row finds the row of a verb. ok is false if the verb isn't allowed in the state.
func row[S ~string](table []Transition[S], verb Verb, from S) (r *Transition[S], ok bool) {
	for i := range table {
		if r = &table[i]; r.Verb == verb {
			return r, slices.Contains(r.From, from)
		}
	}
	return nil, false
}

// Command is the name of an operator's command, as in the CLI.
type Command string

// The operator's commands.
const (
	Cancel   Command = "cancel"
	Resubmit Command = "resubmit"
	UndoTask Command = "undo"
	Release  Command = "release"
	Migrate  Command = "migrate" // to another version of the workflow
)

// Commands lists the commands.
var Commands = []Command{Cancel, Resubmit, UndoTask, Release, Migrate}

// UndoHeld reports whether a task is held during its undo.
func (t *Task) UndoHeld() bool { return t.State == StateError && t.Ending != "" }

// Allowed reports whether a command is allowed in the state of a task. A task that was held while undoing may be
// resubmitted, released, or cancelled. Undo isn't allowed, since the undo has begun. A processed task may be undone only
// by a command that says so (Control.Processed).
func Allowed(c Command, t *Task) bool {
	switch c {
	case Cancel:
		return t.State == StatePending || t.State == StateProcessing || t.State == StateError
	case UndoTask:
		return t.State == StatePending || t.State == StateProcessing || t.State == StateError && !t.UndoHeld() || t.State == StateProcessed
	case Resubmit, Release:
		return t.State == StateError
	case Migrate:
		return migratable(t.State)
	}
	return false
}
