package projections

import (
	"time"
	"unique"

	"github.com/waybill-run/waybill/events"
)

// A partition may have many armed timers, and most are disarmed before they are due. So a timer is small in memory:
// timers share the part that comes from the workflow, and instants are numbers. That takes about a third of the memory
// of the fold's form (1 KB for a task with two timers).

// taskTimers are the armed timers of one task, in the order of the fold.
type taskTimers struct {
	task        string
	first, last *armedTimer // nil: none
	// bySlot is an index, for more than linearSearchMax timers; nil: none.
	bySlot  map[events.Slot]*armedTimer
	changed bool
	stored  bool // Pebble has an entry
}

// linearSearchMax is the number of timers up to which one is found by a linear search. A task of a
// thousand parallel steps has a thousand timers.
const linearSearchMax = 16

// armedTimer is one armed timer in memory. Instants are in Unix milliseconds, the precision of the log.
type armedTimer struct {
	owner        *taskTimers
	prev, next   *armedTimer // of the same task
	rule         unique.Handle[timerRule]
	seq          uint64
	due          int64
	completeBy   int64
	attempt      int
	failureCount int
	asked        int32 // number of recoveries asked for, which is the number of snoozes
	cooledDown   bool
	disarmed     bool
}

// find returns the timer of a slot; nil: none is armed.
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

// add appends a timer.
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

// remove removes a timer and marks it disarmed.
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

// timerRule is the part of a timer that comes from the workflow. Timers with the same rule share one copy.
type timerRule struct {
	slot     events.Slot
	timer    events.TimerKind
	attempts events.Attempts
	onError  string
	final    bool
}

// setPolicy sets what another plan or a resubmit changes of a timer that stays armed, and reports whether it changed.
func (a *armedTimer) setPolicy(fold *events.Armed) bool {
	rule, completeBy := a.rule, a.completeBy
	a.rule, a.completeBy = ruleOf(fold), fold.Policy.CompleteBy.UnixMilli()
	return a.rule != rule || a.completeBy != completeBy
}

func ruleOf(a *events.Armed) unique.Handle[timerRule] {
	p := &a.Policy
	return unique.Make(timerRule{a.Slot, p.Timer, p.Attempts, p.OnError, p.Final})
}

func newArmedTimer(of *taskTimers, a *events.Armed) *armedTimer {
	p := &a.Policy
	return &armedTimer{
		owner: of, rule: ruleOf(a), seq: a.Timer.Seq, due: a.Timer.Due.UnixMilli(),
		completeBy: p.CompleteBy.UnixMilli(), attempt: a.Attempt, failureCount: p.FailureCount, cooledDown: p.CooledDown,
	}
}

// timer returns the timer in the form of the fold.
func (a *armedTimer) timer() events.Armed {
	r := a.rule.Value()
	return events.Armed{
		Slot: r.slot, Timer: events.Timer{Seq: a.seq, Due: instant(a.due)}, Attempt: a.attempt,
		Policy: events.Policy{Timer: r.timer, FailureCount: a.failureCount, Attempts: r.attempts, OnError: r.onError, Final: r.final,
			CompleteBy: instant(a.completeBy), CooledDown: a.cooledDown},
	}
}

// instant is the inverse of Time.UnixMilli, even for the zero Time.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func (a *armedTimer) slot() events.Slot { return a.rule.Value().slot }

// matches reports whether o is this timer: the same slot, armed by the same event.
func (a *armedTimer) matches(o events.Armed) bool {
	return a.seq == o.Timer.Seq && a.slot() == o.Slot
}
