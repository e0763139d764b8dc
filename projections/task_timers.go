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

// taskTimers are the armed timers of one task, in the order of the fold.
type taskTimers struct {
	task        string
	first, last *armedTimer // nil: none
	// bySlot finds them where there are more than linearSearchMax; nil: nowhere.
	bySlot  map[events.Slot]*armedTimer
	changed bool
	stored  bool // Pebble has an entry
}

// linearSearchMax is how many timers of a task are looked through for one of
// them. A task of a thousand steps beside each other has as many.
const linearSearchMax = 16

// armedTimer is one armed timer in memory. Instants are in Unix milliseconds, which
// is as exact as the log is.
type armedTimer struct {
	owner        *taskTimers
	prev, next   *armedTimer // of the same task
	rule         unique.Handle[timerRule]
	seq          uint64
	due          int64
	completeBy   int64
	attempt      int
	failureCount int
	asked        int32 // how often; counts the snoozes
	cooledDown   bool
	disarmed     bool // disarmed
}

// at is the timer of a slot; nil: none is armed.
func (tt *taskTimers) find(slot events.Slot) *armedTimer {
	if tt.bySlot != nil {
		return tt.bySlot[slot]
	}
	for a := tt.first; a != nil; a = a.next {
		if a.slot() == slot {
			return a
		}
	}
	return nil
}

// add puts a timer behind the others.
func (tt *taskTimers) add(a *armedTimer) {
	a.prev = tt.last
	if a.prev == nil {
		tt.first = a
	} else {
		a.prev.next = a
	}
	tt.last = a
	if tt.bySlot != nil {
		tt.bySlot[a.slot()] = a
		return
	}
	n := 0
	for b := tt.first; b != nil; b = b.next {
		n++
	}
	if n <= linearSearchMax {
		return
	}
	tt.bySlot = make(map[events.Slot]*armedTimer, 2*n)
	for b := tt.first; b != nil; b = b.next {
		tt.bySlot[b.slot()] = b
	}
}

// remove takes a timer out, for good.
func (tt *taskTimers) remove(a *armedTimer) {
	if a.prev == nil {
		tt.first = a.next
	} else {
		a.prev.next = a.next
	}
	if a.next == nil {
		tt.last = a.prev
	} else {
		a.next.prev = a.prev
	}
	if tt.bySlot != nil {
		delete(tt.bySlot, a.slot())
	}
	if tt.first == nil {
		tt.bySlot = nil
	}
	a.prev, a.next, a.disarmed = nil, nil, true
}

// rule is the part of a timer that its workflow says.
type timerRule struct {
	slot     events.Slot
	timer    events.TimerKind
	attempts events.Attempts
	onError  string
}

// giveTime takes over the complete-by of its task, and reports whether it is another.
func (a *armedTimer) setCompleteBy(completeBy time.Time) bool {
	before := a.completeBy
	a.completeBy = completeBy.UnixMilli()
	return a.completeBy != before
}

func newArmedTimer(of *taskTimers, a *events.Armed) *armedTimer {
	p := &a.Policy
	return &armedTimer{
		owner: of, rule: unique.Make(timerRule{a.Slot, p.Timer, p.Attempts, p.OnError}), seq: a.Timer.Seq, due: a.Timer.Due.UnixMilli(),
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

func (a *armedTimer) slot() events.Slot { return a.rule.Value().slot }

// is reports whether the fold means this timer: the event that armed it and
// the slot name it.
func (a *armedTimer) matches(o events.Armed) bool {
	return a.seq == o.Timer.Seq && a.slot() == o.Slot
}
