package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// factRule is what the checkers expect of the events of one kind: where they may come from, what they may follow,
// which timer they have to arm, and what they count for. A new fact has its rule here, and nowhere else.
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
	attempted func(*turn, events.Attempts) (promise, what string) // of what the plan allows its run
	course    func(*turn) (promise, what string)                  // of the plan's graph, and of what was decided
	arms      func(*turn) (events.TimerKind, time.Time)           // the timer that it has to arm
	count     func(*turn)                                         // takes it over
	asks      func(*turn) []events.Action                         // what a recovery that led to it asked for; nil: anything
	lead      func(*turn, *lead, *input)                          // notes what its input has to say
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
	events.VerbStarted:   {own: true, arms: armsStarted},
	events.VerbProcessed: {course: (*turn).processed},
	events.VerbUndoing: {from: []events.Inbox{events.Recoveries, events.Controls}, course: (*turn).undoing,
		asks: always(toUndo), lead: leadUndoing},
	events.VerbUndone:    {course: (*turn).endsUndone},
	events.VerbCancelled: {from: byControls, course: (*turn).cancelled, lead: leadCancelled},
	events.VerbHeld:      {from: byRecoveries, course: (*turn).held, asks: always(toHold)},
	events.VerbResumed: {from: byControls, own: true, course: (*turn).resumes, arms: armsResumed, count: (*turn).resumed,
		lead: leadResumed},
}

// stepRules are those of facts of a step, or of its undo.
var stepRules = map[events.Verb]*factRule{
	events.VerbSkipped: {course: (*turn).skips, count: (*turn).skipped},
	events.VerbReleased: {from: byControls, only: true, course: (*turn).releases, count: (*turn).released,
		lead: leadReleased},
	events.VerbStarted: {from: byRecoveries, begins: true, attempted: (*turn).begun, course: (*turn).beginsAttempt,
		arms: armsAttempt, count: (*turn).started, asks: always(toGoOn)},
	events.VerbCompleted: {from: byReplies, only: true, promise: "P3", count: (*turn).completed, lead: leadCompleted},
	events.VerbFailed: {from: []events.Inbox{events.Replies, events.Recoveries}, begins: true, loose: true,
		attempted: (*turn).unsent, course: (*turn).beginsUnsent, arms: armsFailed, count: (*turn).failed, lead: leadFailed},
	events.VerbRejected: {from: byReplies, only: true, promise: "P3", count: (*turn).rejected, lead: leadRejected},
	events.VerbExpired:  {from: byRecoveries, only: true, promise: "P4", loose: true, count: (*turn).expired},
	events.VerbWaiting: {from: byRecoveries, own: true, promise: "P4", wait: true, attempted: (*turn).waited,
		arms: armsWaiting, count: (*turn).waits, asks: asksWait},
	events.VerbErrored: {from: byRecoveries, begins: true, attempted: (*turn).gaveUp, course: (*turn).beginsErrored,
		count: (*turn).errored, asks: asksErrored},
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

func always(actions []events.Action) func(*turn) []events.Action {
	return func(*turn) []events.Action { return actions }
}
