package scheduler

import (
	"context"
	"fmt"
	"time"
)

// stalledError ends the process. Otherwise a stalled worker would keep its partitions, since its client continues to
// send heartbeats.
type stalledError struct {
	owner  string
	waited time.Duration
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("worker %s has committed no transaction for %s while records wait; its client was closed so that its partitions are reassigned", e.owner, e.waited.Round(time.Second))
}

// endOnStall closes the client of a worker that stalls.
func (c *Config) endOnStall(ctx context.Context, w *worker, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var seen watchWindow
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if d := seen.stalledFor(now, w.stalledFor(now), c.TransactionTimeout); d > stallFactor*c.TransactionTimeout {
				cancel(&stalledError{w.owner, d})
				w.client.Close()
				return
			}
		}
	}
}

// watchWindow is the time during which a worker was watched without a gap. After the process was suspended, all workers
// seem stalled, so the gap restarts the window.
type watchWindow struct{ from, last time.Time }

// stalledFor returns how long a worker has been stalled while it was watched. A gap longer than most restarts the
// window.
func (w *watchWindow) stalledFor(now time.Time, stalled, most time.Duration) time.Duration {
	if w.last.IsZero() || now.Sub(w.last) > most {
		w.from = now
	}
	w.last = now
	return min(stalled, now.Sub(w.from))
}
