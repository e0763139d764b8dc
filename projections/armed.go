package projections

import (
	"time"
	"unique"

	"github.com/waybill-run/waybill/events"
)

// A partition may have many armed timers, most of which are disarmed without ever
// having been looked at. So a timer in memory is short: what it has in common with
// those of other tasks, which is all that a workflow says, is there once, and
// instants are numbers (measured: a task with two timers took 1 KB as the fold has
// them, and takes a third of that).

// taskTimers are the armed timers of one task.
type taskTimers struct {
	task    string
	armed   *armedTimer // the first, in the order of the fold; nil: none
	changed bool
	stored  bool // Pebble has an entry
}

// armedTimer is one armed timer in memory. Instants are in Unix milliseconds, which
// is as exact as the log is.
type armedTimer struct {
	of           *taskTimers
	next         *armedTimer // of the same task
	rule         unique.Handle[rule]
	seq          uint64
	due          int64
	completeBy   int64
	attempt      int
	failureCount int
	asked        int32 // how often; counts the snoozes
	cooledDown   bool
	dead         bool // disarmed
}

// rule is the part of a timer that its workflow says.
type rule struct {
	slot     events.Slot
	timer    events.TimerKind
	attempts events.Attempts
	onError  string
}

func newArmedTimer(of *taskTimers, a *events.Armed) *armedTimer {
	p := &a.Policy
	return &armedTimer{
		of: of, rule: unique.Make(rule{a.Slot, p.Timer, p.Attempts, p.OnError}), seq: a.Timer.Seq, due: a.Timer.Due.UnixMilli(),
		completeBy: p.CompleteBy.UnixMilli(), attempt: a.Attempt, failureCount: p.FailureCount, cooledDown: p.CooledDown,
	}
}

// timer is the timer as the fold has it.
func (a *armedTimer) timer() events.Armed {
	r := a.rule.Value()
	return events.Armed{
		Slot: r.slot, Timer: events.Timer{Seq: a.seq, Due: instant(a.due)}, Attempt: a.attempt,
		Policy: events.Policy{Timer: r.timer, FailureCount: a.failureCount, Attempts: r.attempts, OnError: r.onError,
			CompleteBy: instant(a.completeBy), CooledDown: a.cooledDown},
	}
}

// instant is the inverse of Time.UnixMilli, of the zero Time too.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// is reports whether the fold means this timer: the event that armed it and
// the slot name it.
func (a *armedTimer) is(o events.Armed) bool {
	return a.seq == o.Timer.Seq && a.rule.Value().slot == o.Slot
}
