package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// factRule is what the checks expect of events with one verb: their causes, their predecessors, the timer that they
// must arm, and how they are counted. A new kind of fact needs a rule here, and nowhere else.
type factRule struct {
	from    []events.Inbox // inboxes whose inputs may lead to it as their first event
	only    bool           // it can only be the first event of its cause
	follows bool           // it can't be the first event of its cause
	own     bool           // it can't be a start in a freed slot
	promise string         // the promise that is broken if it has another cause; empty: P10
	// begins is true if the event starts an attempt, or says that none can be made. wait is true if it begins a wait.
	// Such an event may end a timer of its run only if a recovery asked for it.
	begins, wait bool
	// loose is true if the event ends an attempt. Unless it arms a timer, another event must say how the run continues.
	loose bool

	// Functions that are nil aren't called.
	checkAttempts func(*eventCheck, events.Attempts) *Fault       // checks the plan's rule of attempts
	checkCourse   func(*eventCheck) *Fault                        // checks the plan's graph, and earlier decisions
	arms          func(*eventCheck) (events.TimerKind, time.Time) // returns the timer that the event must arm
	count         func(*eventCheck)                               // counts the event
	asks          func(*eventCheck) []events.Action               // returns the actions of recoveries that may lead to it; nil: any
	lead          func(*eventCheck, *lead, *input)                // sets what the input must contain
}

// The first inboxes of facts.
var (
	byTasks      = []events.Inbox{events.Tasks}
	byReplies    = []events.Inbox{events.Replies}
	byRecoveries = []events.Inbox{events.Recoveries}
	byControls   = []events.Inbox{events.Controls}
)

// taskRules are the rules of facts of a task.
var taskRules = map[events.Verb]*factRule{
	events.VerbReceived:  {from: byTasks, only: true, lead: leadReceived},
	events.VerbStarted:   {own: true, arms: startedTimer},
	events.VerbProcessed: {checkCourse: (*eventCheck).checkProcessed},
	events.VerbUndoing: {from: []events.Inbox{events.Recoveries, events.Controls}, checkCourse: (*eventCheck).checkUndoing,
		count: (*eventCheck).countInterrupted, asks: always(toUndo), lead: leadUndoing},
	events.VerbUndone:    {checkCourse: (*eventCheck).checkUndone},
	events.VerbCancelled: {from: byControls, checkCourse: (*eventCheck).checkCancelled, lead: leadCancelled},
	events.VerbHeld:      {from: byRecoveries, checkCourse: (*eventCheck).checkHold, asks: asksHeld},
	events.VerbResumed: {from: byControls, own: true, checkCourse: (*eventCheck).checkResume, arms: resumedTimer, count: (*eventCheck).countResumed,
		lead: leadResumed},
}

// stepRules are the rules of facts of a step, or of its undo.
var stepRules = map[events.Verb]*factRule{
	events.VerbSkipped: {checkCourse: (*eventCheck).checkSkip, count: (*eventCheck).countSkipped},
	events.VerbCaught:  {checkCourse: (*eventCheck).checkCaught, count: (*eventCheck).countCaught},
	events.VerbReleased: {from: byControls, only: true, checkCourse: (*eventCheck).checkRelease, count: (*eventCheck).countReleased,
		lead: leadReleased},
	events.VerbStarted: {from: byRecoveries, begins: true, checkAttempts: (*eventCheck).checkAttemptStart, checkCourse: (*eventCheck).checkStarted,
		arms: attemptTimer, count: (*eventCheck).countStarted, asks: always(toGoOn)},
	events.VerbCompleted: {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countCompleted, lead: leadCompleted},
	events.VerbFailed: {from: []events.Inbox{events.Replies, events.Recoveries}, begins: true, loose: true,
		checkAttempts: (*eventCheck).checkFailure, checkCourse: (*eventCheck).checkUnsent, arms: failedTimer, count: (*eventCheck).countFailed, lead: leadFailed},
	events.VerbRejected: {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countRejected, lead: leadRejected},
	events.VerbExpired:  {from: byRecoveries, only: true, promise: "P4", loose: true, checkAttempts: (*eventCheck).checkExpiry, count: (*eventCheck).countExpired},
	events.VerbWaiting: {from: byRecoveries, own: true, promise: "P4", wait: true, checkAttempts: (*eventCheck).checkWait,
		arms: waitingTimer, count: (*eventCheck).countWait, asks: asksWait},
	events.VerbErrored: {from: byRecoveries, begins: true, checkAttempts: (*eventCheck).checkGivenUp, checkCourse: (*eventCheck).checkErrored,
		count: (*eventCheck).countErrored, asks: asksErrored},
}

// kindRules are the rules of the facts of each kind of step. The file of a kind adds its own. Facts of any kind, such as
// a skip, are in stepRules.
var kindRules = map[events.StepKind]map[events.Verb]*factRule{events.CallStep: stepRules}

// noRule is the rule of facts without any expectation.
var noRule = &factRule{}

func ruleOf(a *events.About) *factRule {
	rules := taskRules
	switch {
	case a.Kind == events.Check:
		rules = checkRules
	case a.OfStep() && a.AnyKind:
		rules = stepRules
	case a.OfStep():
		rules = kindRules[a.StepKind]
	}
	if r := rules[a.Verb]; r != nil {
		return r
	}
	return noRule
}

func always(actions []events.Action) func(*eventCheck) []events.Action {
	return func(*eventCheck) []events.Action { return actions }
}
