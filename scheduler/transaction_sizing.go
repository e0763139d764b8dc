package scheduler

import (
	"sync/atomic"
	"time"
)

// pace bounds how long a worker decides for one transaction. An expression may take
// some 60 ms, and hundreds of inputs are polled at once: together they would take
// longer than a worker may go without a commit.
type transactionSizing struct {
	// most is how many records are polled at once; 0: as many as the log gives.
	pollMax int
	// rolledBack: what was decided last has come to nothing, and not for its length.
	rolledBack bool
	// decidedAt is when a decision was made last, as the time since began; 0: none was. The watchdog reads it.
	decidedAt atomic.Int64
	began     time.Time
}

// pollUnlimited is when a poll is no longer bounded: above what a log gives at once.
const pollUnlimited = 1 << 10

// decided: a worker that decides doesn't hang. But one whose transactions are all rolled
// back does no work, though it decides the same inputs again and again.
func (p *transactionSizing) recordDecision(now time.Time) {
	if !p.rolledBack {
		p.decidedAt.Store(max(1, int64(now.Sub(p.began))))
	}
}

// fewer are polled after so many of what was polled took all the time that there is.
// That ends: one record isn't divided.
func (p *transactionSizing) decrease(decided, polled int) { p.pollMax = max(1, min(decided, polled/2)) }

// more are polled again once a transaction's inputs took a small part of that time: not as
// soon as they fit, or every other transaction would be in vain.
func (p *transactionSizing) increase(took, bound time.Duration) {
	if p.pollMax == 0 || took > bound/decideShare {
		return
	}
	if p.pollMax *= 2; p.pollMax >= pollUnlimited {
		p.pollMax = 0
	}
}

// stalled is for how long records have waited while the worker neither committed nor
// decided.
func (w *worker) stalledFor(now time.Time) time.Duration {
	waited := w.log.Stalled(now)
	if at := w.sizing.decidedAt.Load(); at > 0 {
		waited = min(waited, now.Sub(w.sizing.began)-time.Duration(at))
	}
	return waited
}

// decideWithin is for how long a worker goes on to take inputs into a transaction.
func (c *Config) decideWithin() time.Duration { return c.TransactionTimeout / decideShare }
