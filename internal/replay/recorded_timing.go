package replay

import (
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
)

// moment is a position in time. Within one instant, moments are ordered by the log, then by rank.
type moment struct {
	at   time.Time
	seq  uint64 // of the recorded event for it
	rank rank
}

// rank orders moments with the same instant and event.
type rank int

const (
	recorded   rank = iota // the event itself
	unrecorded             // something that hadn't happened in the log before that event
)

// recordedTiming is when the timers of a recorded task fired, and when attempts that waited for their agent started.
// These delays depend on supervisors and agents, not on the definition. In a fork, the same timers and attempts have
// the recorded delays.
type recordedTiming struct {
	fold   events.Fold
	task   *events.Task // of the fold; nil: no event yet, or an event couldn't be folded
	timers events.Timers
	last   *events.Event
	began  uint64 // seq of the first event of last's decision
	fired  map[armedTimer]moment
	queued []queuedStart
	// waiting are the runs that could start an attempt and haven't.
	waiting map[events.Slot]bool
	moved   bool // an event has changed the task since the last findWaiting
}

// armedTimer identifies a timer of a task, in the recorded and in the forked course.
type armedTimer struct {
	events.Slot
	attempt int
	timer   events.TimerKind
	due     int64 // Unix ms
}

func timerName(a *events.Armed) armedTimer {
	return armedTimer{a.Slot, a.Attempt, a.Policy.Timer, a.Timer.Due.UnixMilli()}
}

// firesAt returns when an armed timer fires: when it fired in the recording, or after it was disarmed there, or else
// when it is due.
func (c *recordedTiming) firesAt(a *events.Armed) moment {
	if at, known := c.fired[timerName(a)]; known {
		return at
	}
	return moment{a.Timer.Due, math.MaxUint64, unrecorded}
}

// add records the next event.
func (c *recordedTiming) add(e *events.Event, r *events.Record) {
	begins := c.last == nil || !sameDecision(c.last, e) || c.last.Queued != e.Queued
	if begins {
		c.findWaiting()
		c.began = e.Seq
	}
	c.last, c.moved = e, c.moved || allowsStarts(e.Fact)
	if begins && e.Cause.Inbox == events.Recoveries && !e.Queued {
		c.recordFired(e)
	}
	c.recordDisarmed(e)
	c.recordStarts(e)
	if verb := e.Fact.About().Verb; verb == events.VerbHeld || verb == events.VerbUndoing {
		c.findWaiting() // steps that could have started in the same decision
		c.recordWaiting(e)
	}
	if c.task = nil; c.fold.Apply(e, r) == nil { // else earlier events can still be forked
		c.task = c.fold.Task
	}
}

// recordFired records the timer that led to an event. A check may begin when the timer of its step's operation is due.
func (c *recordedTiming) recordFired(e *events.Event) {
	about := e.Fact.About()
	slot := about.Slot() // for the task's own timer the slot is empty
	if own := (events.Slot{Step: slot.Step, Kind: events.Do}); slot.Kind == events.Check && !c.isArmed(slot) && c.isArmed(own) {
		slot = own
	}
	for i := range c.timers.Armed {
		if a := &c.timers.Armed[i]; a.Slot == slot {
			c.fired[timerName(a)] = moment{later(e.At, a.Timer.Due), e.Seq, recorded}
		}
	}
}

func (c *recordedTiming) isArmed(slot events.Slot) bool {
	return slices.ContainsFunc(c.timers.Armed, func(a events.Armed) bool { return a.Slot == slot })
}

// recordDisarmed folds an event into the timers, and records timers that were due but hadn't fired.
func (c *recordedTiming) recordDisarmed(e *events.Event) {
	var before []events.Armed
	slot, one := e.Slot()
	for i := range c.timers.Armed {
		if a := &c.timers.Armed[i]; (!one || a.Slot == slot) && !e.At.Before(a.Timer.Due) {
			before = append(before, *a)
		}
	}
	c.timers.Evolve(e)
	for i := range before {
		still := func(a events.Armed) bool { return timerName(&a) == timerName(&before[i]) }
		if !slices.ContainsFunc(c.timers.Armed, still) {
			c.recordIdle(&before[i], e)
		}
	}
}

// recordIdle records that a timer hadn't fired before an event.
func (c *recordedTiming) recordIdle(a *events.Armed, e *events.Event) {
	if _, fired := c.fired[timerName(a)]; !fired {
		c.fired[timerName(a)] = moment{e.At, e.Seq, unrecorded}
	}
}

// recordStarts records the starts of steps that waited for their agent.
func (c *recordedTiming) recordStarts(e *events.Event) {
	about := e.Fact.About()
	slot := about.Slot()
	if slot.Step == "" || c.task == nil {
		return
	}
	if f, waits := e.Fact.(*events.AttemptWaiting); waits {
		if !f.CoolDown && !e.Due.After(e.At) { // the wait was over, and no slot was free
			c.waiting[slot] = true
		}
		return
	}
	i, ok := c.task.Plan.Step(slot.Step)
	if !ok {
		return
	}
	if own := (events.Slot{Step: slot.Step, Kind: events.Do}); slot.Kind == events.Check && c.waiting[own] {
		slot = own // it is asked first what became of the attempt before
	}
	run := c.task.Run(i, slot.Kind)
	if run == nil || run.State != events.StepPending && run.State != events.StepWaiting {
		return
	}
	switch {
	case e.Queued:
		c.queue(i, slot, moment{e.At, e.Seq, recorded})
	case c.waiting[slot]: // another input of its task started it, after the agent's concurrency was no longer limited
		c.queue(i, slot, moment{e.At, c.began, unrecorded})
	}
}

func (c *recordedTiming) queue(i int, slot events.Slot, at moment) {
	agent, _ := c.task.Plan.Agent(i, slot.Kind)
	c.queued = append(c.queued, queuedStart{nextOf(c.task, i, slot.Kind), agent, at})
	delete(c.waiting, slot)
}

// recordWaiting records that waiting steps hadn't started before an event.
func (c *recordedTiming) recordWaiting(by *events.Event) {
	if c.task == nil {
		return
	}
	for i := range c.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			if slot := (events.Slot{Step: c.task.Plan.Steps[i].ID, Kind: k}); c.waiting[slot] {
				c.queue(i, slot, moment{by.At, by.Seq, unrecorded})
			}
		}
	}
}

// findWaiting finds, at the end of a decision, the steps that could have started in it.
func (c *recordedTiming) findWaiting() {
	if c.task == nil || !c.moved {
		return
	}
	c.moved = false
	for i := range c.task.Steps {
		if c.task.Steps[i].State == events.StepPending && scheduler.Ready(c.task, i, events.Do, c.last.At) {
			c.waiting[events.Slot{Step: c.task.Plan.Steps[i].ID, Kind: events.Do}] = true
		}
	}
}

// endRecording records timers and starts that were still pending at the end of the log.
func (c *recordedTiming) endRecording() {
	c.findWaiting()
	c.recordWaiting(c.last)
	for i := range c.timers.Armed {
		if a := &c.timers.Armed[i]; !c.last.At.Before(a.Timer.Due) {
			c.recordIdle(a, c.last)
		}
	}
}

// allowsStarts reports whether steps may start after an event.
func allowsStarts(f events.Fact) bool {
	switch a := f.About(); a.Verb {
	case events.VerbStarted:
		return !a.OfStep()
	case events.VerbResumed, events.VerbCompleted, events.VerbSkipped, events.VerbCaught, events.VerbReleased:
		return true
	default:
		return false
	}
}
