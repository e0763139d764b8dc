package scheduler

import (
	"sync/atomic"
	"time"
)

// transactionSizing bounds the time that a worker decides for one transaction. An expression may take about 60 ms, and
// one poll may return hundreds of inputs. Together they could take longer than the stall timeout.
type transactionSizing struct {
	// pollMax limits the records of a poll; 0: the client's limit.
	pollMax int
	// rolledBack reports that the last transaction was rolled back for another reason than its duration.
	rolledBack bool
	// decidedAt is the time of the last decision, as the time since began; 0: none. The watchdog reads it.
	decidedAt atomic.Int64
	began     time.Time
}

// pollUnlimited is the size at which polls are no longer limited: above the client's limit.
const pollUnlimited = 1 << 10

// recordDecision records progress for the watchdog, since a worker that decides doesn't hang. After a rollback it
// records nothing: the worker may be repeating the same decisions forever.
func (p *transactionSizing) recordDecision(now time.Time) {
	if !p.rolledBack {
		p.decidedAt.Store(max(1, int64(now.Sub(p.began))))
	}
}

// decrease limits the next polls after the time for one transaction was used up. The limit is at least one record.
func (p *transactionSizing) decrease(decided, polled int) { p.pollMax = max(1, min(decided, polled/2)) }

// increase doubles the limit after a transaction used less than 1/decideShare of its time. With a smaller margin every
// other transaction would exceed its time.
func (p *transactionSizing) increase(took, bound time.Duration) {
	if p.pollMax == 0 || took > bound/decideShare {
		return
	}
	if p.pollMax *= 2; p.pollMax >= pollUnlimited {
		p.pollMax = 0
	}
}

// stalledFor returns how long records have waited without a commit or a decision.
func (w *worker) stalledFor(now time.Time) time.Duration {
	waited := w.client.Stalled(now)
	if at := w.sizing.decidedAt.Load(); at > 0 {
		waited = min(waited, now.Sub(w.sizing.began)-time.Duration(at))
	}
	return waited
}

// decideWithin returns how long a worker may decide on the inputs of one transaction.
func (c *Config) decideWithin() time.Duration { return c.TransactionTimeout / decideShare }
