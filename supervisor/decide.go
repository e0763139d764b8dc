package supervisor

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// PageSize is the most timers that one batch of recoveries answers. What is
// due beyond it waits for the batch to be written; other partitions don't.
const PageSize = 500

// A recovery that nothing followed is asked for again after AskAgainMin, then
// after twice as long each time, at most AskAgainMax.
const (
	AskAgainMin = time.Second
	AskAgainMax = 30 * time.Second
)

// ask is what to do about one due timer.
type timerAsk struct {
	due events.Due
	// recovery is nil if the policy calls for nothing that a scheduler knows.
	recovery *events.Recovery
	// pause is how long the timer then stays out of what is due.
	snooze time.Duration
}

// decide says what to ask for each of the timers, which are due at now. It asks
// even for what looks beside the point, such as a retry whose task has no time
// left: how a timer ends is written by the scheduler, or not at all.
func decide(due []events.Due, now time.Time) []timerAsk {
	asks := make([]timerAsk, len(due))
	for i, d := range due {
		a := &d.Armed
		next := a.Policy.Next(d.Task, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now)
		asks[i] = timerAsk{due: d, snooze: askAgainAfter(d.Asked)}
		if canBeAsked(next.Action) {
			asks[i].recovery = a.Recovery(d.Task, next)
		} else {
			asks[i].snooze = AskAgainMax
		}
	}
	return asks
}

// known reports whether a scheduler can do it. Anything else would be
// dead-lettered each time that it is asked for.
func canBeAsked(a events.Action) bool {
	switch a {
	case events.ActionRetry, events.ActionWait, events.ActionUndo, events.ActionHold:
		return true
	}
	return false
}

// pause is how long to wait for an event after asking for the asked+1st time.
func askAgainAfter(asked int) time.Duration { return exponential(AskAgainMin, AskAgainMax, asked) }

// exponential is first, exponential times times, at most limit.
func exponential(first, limit time.Duration, times int) time.Duration {
	d := first
	for range times {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}
