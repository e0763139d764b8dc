package supervisor

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
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

// decide decides what to ask for each due timer.
func decide(due []events.Due, now time.Time) []timerAsk {
	asks := make([]timerAsk, len(due))
	for i, d := range due {
		r, snooze := Ask(&d, now)
		asks[i] = timerAsk{due: d, recovery: r, snooze: snooze}
	}
	return asks
}

// Ask returns the recovery that a supervisor sends for a due timer, and how long the timer then isn't due. The recovery
// is nil if the policy calls for an action that no scheduler knows. Ask asks even for a retry whose task has no time
// left: only the scheduler decides how a timer ends. internal/workflowtest uses it, too.
func Ask(d *events.Due, now time.Time) (*events.Recovery, time.Duration) {
	a := &d.Armed
	next := a.Policy.Next(d.Task, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now)
	if !slices.Contains(events.Actions, next.Action) { // it would become a dead letter, each time
		return nil, AskAgainMax
	}
	return a.Recovery(d.Task, next), askAgainAfter(d.Asked)
}

// askAgainAfter is the pause after asked asks before this one.
func askAgainAfter(asked int) time.Duration { return backoff.After(AskAgainMin, AskAgainMax, asked+1) }
