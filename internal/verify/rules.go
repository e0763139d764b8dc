package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// factRule is what the checks expect of the events of one kind: their causes, their predecessors, the timer that
// they must arm, and what they count as. Each new kind of fact needs a rule here, and nowhere else.
type factRule struct {
	from    []events.Inbox // which may lead to it as their first event
	only    bool           // it can only be the first
	own     bool           // it can only be what an input asked for itself, not what a freed slot lets begin
	promise string         // that is broken where it comes of another input; empty: P10
	// begins: it is an attempt, or says that none can be made. wait: it is one that waits. Either ends a timer of its
	// run only if a recovery asked for that.
	begins, wait bool
	// loose: an attempt ended, and another event has to say how its run goes on, unless a timer does.
	loose bool

	// Each is asked only where it is there.
	attempted func(*eventCheck, events.Attempts) (promise, what string) // of what the plan allows its run
	course    func(*eventCheck) (promise, what string)                  // of the plan's graph, and of what was decided
	arms      func(*eventCheck) (events.TimerKind, time.Time)           // the timer that it has to arm
	count     func(*eventCheck)                                         // takes it over
	asks      func(*eventCheck) []events.Action                         // what a recovery that led to it asked for; nil: anything
	lead      func(*eventCheck, *lead, *input)                          // notes what its input has to say
}

// The first inboxes of facts.
var (
	byTasks      = []events.Inbox{events.Tasks}
	byReplies    = []events.Inbox{events.Replies}
	byRecoveries = []events.Inbox{events.Recoveries}
	byControls   = []events.Inbox{events.Controls}
)

// taskRules are those of facts of a task.
var taskRules = map[events.Verb]*factRule{
	events.VerbReceived:  {from: byTasks, only: true, lead: leadReceived},
	events.VerbStarted:   {own: true, arms: startedTimer},
	events.VerbProcessed: {course: (*eventCheck).checkProcessed},
	events.VerbUndoing: {from: []events.Inbox{events.Recoveries, events.Controls}, course: (*eventCheck).checkUndoing,
		asks: always(toUndo), lead: leadUndoing},
	events.VerbUndone:    {course: (*eventCheck).checkUndone},
	events.VerbCancelled: {from: byControls, course: (*eventCheck).checkCancelled, lead: leadCancelled},
	events.VerbHeld:      {from: byRecoveries, course: (*eventCheck).checkHold, asks: always(toHold)},
	events.VerbResumed: {from: byControls, own: true, course: (*eventCheck).checkResume, arms: resumedTimer, count: (*eventCheck).countResumed,
		lead: leadResumed},
}

// stepRules are those of facts of a step, or of its undo.
var stepRules = map[events.Verb]*factRule{
	events.VerbSkipped: {course: (*eventCheck).checkSkip, count: (*eventCheck).countSkipped},
	events.VerbReleased: {from: byControls, only: true, course: (*eventCheck).checkRelease, count: (*eventCheck).countReleased,
		lead: leadReleased},
	events.VerbStarted: {from: byRecoveries, begins: true, attempted: (*eventCheck).begun, course: (*eventCheck).checkAttempt,
		arms: attemptTimer, count: (*eventCheck).countStarted, asks: always(toGoOn)},
	events.VerbCompleted: {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countCompleted, lead: leadCompleted},
	events.VerbFailed: {from: []events.Inbox{events.Replies, events.Recoveries}, begins: true, loose: true,
		attempted: (*eventCheck).unsent, course: (*eventCheck).checkUnsent, arms: failedTimer, count: (*eventCheck).countFailed, lead: leadFailed},
	events.VerbRejected: {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countRejected, lead: leadRejected},
	events.VerbExpired:  {from: byRecoveries, only: true, promise: "P4", loose: true, count: (*eventCheck).countExpired},
	events.VerbWaiting: {from: byRecoveries, own: true, promise: "P4", wait: true, attempted: (*eventCheck).waited,
		arms: waitingTimer, count: (*eventCheck).countWait, asks: asksWait},
	events.VerbErrored: {from: byRecoveries, begins: true, attempted: (*eventCheck).gaveUp, course: (*eventCheck).checkErrored,
		count: (*eventCheck).countErrored, asks: asksErrored},
}

// noRule is of a fact of which nothing is expected.
var noRule = &factRule{}

func ruleOf(a *events.About) *factRule {
	rules := taskRules
	if a.OfStep() {
		rules = stepRules
	}
	if r := rules[a.Verb]; r != nil {
		return r
	}
	return noRule
}

func always(actions []events.Action) func(*eventCheck) []events.Action {
	return func(*eventCheck) []events.Action { return actions }
}
