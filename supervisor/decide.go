package supervisor

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// PageSize is the most timers of one batch of recoveries. The rest waits until the batch is written; other partitions
// don't wait.
const PageSize = 500

// A recovery without an effect is asked for again after AskAgainMin. The pause doubles each time, up to AskAgainMax.
const (
	AskAgainMin = time.Second
	AskAgainMax = 30 * time.Second
)

// timerAsk is what to do about one due timer.
type timerAsk struct {
	due events.Due
	// recovery is nil if the policy calls for an action that no scheduler knows.
	recovery *events.Recovery
	// snooze is how long the timer then isn't due.
	snooze time.Duration
}

// decide decides what to ask for each due timer. It asks even for a retry whose task has no time left: only the
// scheduler decides how a timer ends.
func decide(due []events.Due, now time.Time) []timerAsk {
	asks := make([]timerAsk, len(due))
	for i, d := range due {
		a := &d.Armed
		next := a.Policy.Next(d.Task, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now)
		asks[i] = timerAsk{due: d, snooze: askAgainAfter(d.Asked)}
		if slices.Contains(events.Actions, next.Action) { // another one would become a dead letter, each time
			asks[i].recovery = a.Recovery(d.Task, next)
		} else {
			asks[i].snooze = AskAgainMax
		}
	}
	return asks
}

// askAgainAfter is the pause after asked asks before this one.
func askAgainAfter(asked int) time.Duration { return exponential(AskAgainMin, AskAgainMax, asked) }

// exponential is first, doubled times times, at most limit.
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
