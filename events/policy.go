package events

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"
)

// Policy is what an event that arms a timer tells the supervisor: the rule of retries and how much
// of it is used. With it a supervisor needs no definition. The scheduler checks the recovery by the
// same rule (Next), so it decides about the budget.
type Policy struct {
	Timer        TimerKind
	FailureCount int
	Attempts     Attempts  // not for a task's timer
	OnError      string    // undo or hold
	CompleteBy   time.Time // the task's; zero while undoing
	CooledDown   bool      // the attempt past max_attempts has been granted
}

// TimerKind says what a timer waits for.
type TimerKind string

// The kinds of timer.
const (
	TimerTask    TimerKind = "task"    // the task's complete-by
	TimerAttempt TimerKind = "attempt" // a running attempt's complete-by
	TimerFailed  TimerKind = "failed"  // a failure: due at once, or when the agent asked to be called again
	TimerWaiting TimerKind = "waiting" // the end of a backoff or cool-down
)

func (p *Policy) fields(c *codec) {
	p.ruleFields(c)
	p.restFields(c)
}

// ruleFields are alike in most policies of a type of event; restFields aren't.
func (p *Policy) ruleFields(c *codec) {
	knownText(c, "timer", &p.Timer)
	c.int("failure_count", &p.FailureCount)
	if p.Timer != TimerTask {
		p.Attempts.fields(c)
	}
	c.interned("on_error", &p.OnError)
}

func (p *Policy) restFields(c *codec) {
	c.time("complete_by", &p.CompleteBy)
	c.bool("cooled_down", &p.CooledDown)
}

// Action is what a supervisor asks for.
type Action string

// The actions of a recovery.
const (
	ActionRetry Action = "retry"
	ActionWait  Action = "wait"
	ActionUndo  Action = "undo"
	ActionHold  Action = "hold"
)

// Ask is the recovery that a due timer leads to.
type Ask struct {
	Action     Action
	CompleteBy time.Time // of a retry's attempt
	Until      time.Time // of a wait
	CoolDown   bool      // the wait is the long one
}

// Next returns the recovery at now for a timer that was due at due and is still armed. step and
// attempt name the last attempt. The jitter is derived from the names, so every caller computes the
// same instant.
func (p *Policy) Next(task, step string, k Kind, attempt int, due, now time.Time) Ask {
	switch p.Timer {
	case TimerTask:
		return Ask{Action: Action(p.OnError)}
	case TimerWaiting:
		return p.retry(now)
	}
	failures := p.FailureCount
	if p.Timer == TimerAttempt {
		failures++ // the attempt that is running out
	}
	switch {
	case failures < p.Attempts.MaxAttempts:
		until := due.Add(p.Attempts.Delay(task, step, k, attempt, failures))
		if !until.After(now) {
			return p.retry(now)
		}
		return Ask{Action: ActionWait, Until: Millis(until)}
	case p.coolsDown(due):
		return Ask{Action: ActionWait, Until: Millis(due.Add(p.Attempts.CoolDown)), CoolDown: true}
	}
	return Ask{Action: Action(p.OnError)}
}

func (p *Policy) retry(now time.Time) Ask {
	by := now.Add(p.Attempts.CompleteWithin)
	if !p.CompleteBy.IsZero() && p.CompleteBy.Before(by) {
		by = p.CompleteBy
	}
	return Ask{Action: ActionRetry, CompleteBy: Millis(by)}
}

// coolsDown reports whether one attempt past the threshold is granted. It isn't if the wait would end
// after the task's complete-by.
func (p *Policy) coolsDown(due time.Time) bool {
	return p.Attempts.CoolDown > 0 && !p.CooledDown &&
		(p.CompleteBy.IsZero() || due.Add(p.Attempts.CoolDown).Before(p.CompleteBy))
}

// jitterShare is the part of a backoff that is spread, so that attempts that failed together aren't
// repeated together.
const jitterShare = 0.2

// MaxDelay bounds every backoff, also one whose rule has no max.
const MaxDelay = 365 * 24 * time.Hour

// Delay is the backoff after a number of failures: backoff times factor to the power of failures-1
// (of 0 without a failure), at most max and MaxDelay, less a jitter of up to a fifth. The jitter is
// derived from the names, never random.
func (a Attempts) Delay(task, step string, k Kind, attempt, failures int) time.Duration {
	limit := float64(MaxDelay)
	if a.Max > 0 {
		limit = min(limit, float64(a.Max))
	}
	d := 0.0
	if a.Backoff > 0 { // nothing times infinity is no number
		d = min(limit, float64(a.Backoff)*math.Pow(max(a.Factor, 1), float64(max(failures-1, 0))))
	}
	h := fnv.New64a()
	h.Write([]byte(task + "/" + step + "/" + string(k) + "/" + strconv.Itoa(attempt)))
	spread := float64(h.Sum64()>>11) / (1 << 53)
	return time.Duration(d * (1 - jitterShare*spread)).Truncate(time.Millisecond)
}
