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

// A recovery without an effect is sent again after RepeatAfterMin. The pause doubles each time, up to RepeatAfterMax.
const (
	RepeatAfterMin = time.Second
	RepeatAfterMax = 30 * time.Second
)

// timerRecovery is what to do about one due timer.
type timerRecovery struct {
	due events.Due
	// recovery is nil if the policy calls for an action that no scheduler knows.
	recovery *events.Recovery
	// snooze is how long the timer then isn't due.
	snooze time.Duration
}

// decide decides which recovery to send for each due timer.
func decide(due []events.Due, now time.Time) []timerRecovery {
	recoveries := make([]timerRecovery, len(due))
	for i, d := range due {
		r, snooze := RecoveryFor(&d, now)
		recoveries[i] = timerRecovery{due: d, recovery: r, snooze: snooze}
	}
	return recoveries
}

// RecoveryFor returns the recovery that a supervisor sends for a due timer, and how long the timer then isn't due. The
// recovery is nil if the policy calls for an action that no scheduler knows. There is one even for a retry whose task has
// no time left: only the scheduler decides how a timer ends. internal/workflowtest uses it, too.
func RecoveryFor(d *events.Due, now time.Time) (*events.Recovery, time.Duration) {
	a := &d.Armed
	next := a.Policy.Next(d.Task, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now)
	if !slices.Contains(events.Actions, next.Action) { // it would become a dead letter, each time
		return nil, RepeatAfterMax
	}
	return a.Recovery(d.Task, next), repeatAfter(d.Asked)
}

// repeatAfter is the pause after a recovery that was sent asked times before.
func repeatAfter(asked int) time.Duration {
	return backoff.After(RepeatAfterMin, RepeatAfterMax, asked+1)
}
