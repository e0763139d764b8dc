package events

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"
)

// Policy is the retry rule in an event that arms a timer, and the part of its budget that is used. With it a supervisor
// needs no definition. The scheduler checks each recovery by the same rule (Next), so the scheduler enforces the
// budget.
type Policy struct {
	Timer        TimerKind
	FailureCount int
	Attempts     Attempts  // not for a task's timer
	OnError      string    // undo or hold
	CompleteBy   time.Time // the task's; zero while undoing
	CooledDown   bool      // the attempt past max_attempts has been granted
	// Final is true for the timer of a running attempt if a time-out isn't retried (RetryCodes).
	Final bool
}

// TimerKind says what a timer waits for.
type TimerKind string

// The kinds of timer.
const (
	TimerTask    TimerKind = "task"    // the task's complete-by
	TimerAttempt TimerKind = "attempt" // a running attempt's complete-by
	TimerFailed  TimerKind = "failed"  // a failure; due immediately, or after the wait that the agent asked for
	TimerWaiting TimerKind = "waiting" // the end of a backoff or cool-down
	TimerStep    TimerKind = "step"    // the instant that a running step without an agent waits for
)

// ofRunning reports whether the run of the timer is running.
func (k TimerKind) ofRunning() bool { return k == TimerAttempt || k == TimerStep }

func (p *Policy) fields(c *codec) {
	p.ruleFields(c)
	p.restFields(c)
}

// ruleFields walks the fields that are equal in most policies of a type of event. restFields walks the others.
func (p *Policy) ruleFields(c *codec) {
	knownText(c, "timer", &p.Timer)
	c.int("failure_count", &p.FailureCount)
	if p.Timer != TimerTask {
		p.Attempts.fields(c)
	}
	c.interned("on_error", &p.OnError)
	c.bool("final", &p.Final)
}

func (p *Policy) restFields(c *codec) {
	c.time("complete_by", &p.CompleteBy)
	c.bool("cooled_down", &p.CooledDown)
}

// Action is the kind of recovery that a supervisor asks for.
type Action string

// The actions of a recovery.
const (
	ActionRetry Action = "retry"
	ActionWait  Action = "wait"
	ActionUndo  Action = "undo"
	ActionHold  Action = "hold"
	ActionFire  Action = "fire" // a timer of TimerStep: the scheduler decides by the step's kind what follows
	// ActionForget asks that ids of a partition are forgotten. Its recovery names no task and no timer.
	ActionForget Action = "forget"
)

// Actions lists the actions for a timer.
var Actions = []Action{ActionRetry, ActionWait, ActionUndo, ActionHold, ActionFire}

// NextRecovery is the recovery that a policy calls for when a timer is due.
type NextRecovery struct {
	Action     Action
	CompleteBy time.Time // of a retry's attempt
	Until      time.Time // of a wait
	CoolDown   bool      // the wait is the cool-down
}

// Next returns the recovery at now for a timer that was due at due and is still armed. step and attempt name the last
// attempt. The jitter is derived from the names, so every caller computes the same instant.
func (p *Policy) Next(task, step string, k Kind, attempt int, due, now time.Time) NextRecovery {
	switch p.Timer {
	case TimerTask:
		return NextRecovery{Action: Action(p.OnError)}
	case TimerWaiting:
		return p.retry(now)
	case TimerStep:
		return NextRecovery{Action: ActionFire}
	case TimerAttempt, TimerFailed:
	}
	if p.Final {
		return NextRecovery{Action: Action(p.OnError)}
	}
	failures := p.FailureCount
	if p.Timer == TimerAttempt {
		failures++ // the current attempt, which expires
	}
	switch {
	case failures < p.Attempts.MaxAttempts:
		until := due.Add(p.Attempts.Delay(task, step, k, attempt, failures))
		if !until.After(now) {
			return p.retry(now)
		}
		return NextRecovery{Action: ActionWait, Until: Millis(until)}
	case p.coolsDown(due):
		return NextRecovery{Action: ActionWait, Until: Millis(due.Add(p.Attempts.CoolDown)), CoolDown: true}
	}
	return NextRecovery{Action: Action(p.OnError)}
}

func (p *Policy) retry(now time.Time) NextRecovery {
	by := now.Add(p.Attempts.CompleteWithin)
	if !p.CompleteBy.IsZero() && p.CompleteBy.Before(by) {
		by = p.CompleteBy
	}
	return NextRecovery{Action: ActionRetry, CompleteBy: Millis(by)}
}

// coolsDown reports whether one attempt past the threshold is granted. It isn't if the wait would end
// after the task's complete-by.
func (p *Policy) coolsDown(due time.Time) bool {
	return p.Attempts.CoolDown > 0 && !p.CooledDown &&
		(p.CompleteBy.IsZero() || due.Add(p.Attempts.CoolDown).Before(p.CompleteBy))
}

// jitterShare is the part of a backoff that is randomized, so that attempts that failed together aren't retried
// together.
const jitterShare = 0.2

// MaxDelay bounds every backoff, even if its rule has no max.
const MaxDelay = 365 * 24 * time.Hour

// Delay returns the backoff after a number of failures: backoff times factor to the power of failures-1 (0 without a
// failure). It is at most max and MaxDelay, less a jitter of up to a fifth. The jitter is derived from the names, so it
// is deterministic.
func (a Attempts) Delay(task, step string, k Kind, attempt, failures int) time.Duration {
	limit := float64(MaxDelay)
	if a.Max > 0 {
		limit = min(limit, float64(a.Max))
	}
	d := 0.0
	if a.Backoff > 0 { // 0 times infinity is NaN
		d = min(limit, float64(a.Backoff)*math.Pow(max(a.Factor, 1), float64(max(failures-1, 0))))
	}
	h := fnv.New64a()
	h.Write([]byte(task + "/" + step + "/" + string(k) + "/" + strconv.Itoa(attempt)))
	spread := float64(h.Sum64()>>11) / (1 << 53)
	return time.Duration(d * (1 - jitterShare*spread)).Truncate(time.Millisecond)
}
