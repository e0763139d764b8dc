package supervisor

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// How the loop spaces its work.
const (
	// DefaultSweepInterval is the longest that the loop sleeps: a corrected
	// clock can make a timer due that wasn't when it went to sleep.
	DefaultSweepInterval = time.Second
	// MinSleep keeps the loop from spinning on an instant that has passed.
	MinSleep = time.Millisecond

	// SaveInterval and SaveRecords are how far a partition's stored state may
	// be behind: what a restart reads again.
	SaveInterval = time.Second
	SaveRecords  = 10_000

	// CommitEvery is how old the group's offsets may be. They only show lag.
	CommitEvery = 5 * time.Second

	// After a failed send a partition pauses for SendPauseMin, then for
	// twice as long each time, at most SendPauseMax.
	SendPauseMin = 100 * time.Millisecond
	SendPauseMax = 5 * time.Second

	// WarnSkew is the correction of the clock beyond which Listener.Skew is
	// told, at most once in WarnEvery.
	WarnSkew  = 2 * time.Second
	WarnEvery = time.Minute
)

// partition is what the loop keeps of one partition of events.
type partition struct {
	id         int32
	deadlines  Deadlines
	generation uint64    // of the assignment that the loop knows; 0: none yet
	since      time.Time // local, of the assignment

	// restored: everything below the high watermark seen at assignment has
	// been applied.
	restored bool
	// behind: records are there that were not applied yet. One of them may
	// disarm a timer that looks due.
	behind bool

	unsaved int       // records applied since the last save
	savedAt time.Time // local

	// sending: a batch is on its way. failures counts the batches that failed
	// one after another; nothing is sent before resumeAt (local).
	sending  bool
	failures int
	resumeAt time.Time
}

// reassigned begins a new assignment. What was applied stays: it is the log's.
// But others may have written since, so the partition is to be read to the end
// again before anything is asked.
func (p *partition) beginAssignment(generation uint64, local time.Time) {
	p.generation, p.since, p.restored = generation, local, false
}

// asOf is the instant up to which the partition is known: now at the log's tail,
// else that of the last event applied. Without it, a supervisor that falls
// behind asks about every attempt that has long been answered, and the answers
// to that put it further behind.
func (p *partition) knownUntil(now time.Time) time.Time {
	if at := p.deadlines.At(); p.behind && at.Before(now) {
		return at
	}
	return now
}

// due is the page of timers to ask about; none while the partition may not ask.
func (p *partition) due(now, local time.Time) []events.Due {
	if !p.restored || p.sending || local.Before(p.resumeAt) {
		return nil
	}
	known := p.knownUntil(now)
	if at, ok := p.deadlines.Earliest(); !ok || at.After(known) {
		return nil
	}
	return p.deadlines.Due(known, PageSize)
}

// failed makes the partition pause after a batch that wasn't written.
func (p *partition) pauseAfterFailure(local time.Time) {
	p.resumeAt = local.Add(exponential(SendPauseMin, SendPauseMax, p.failures))
	p.failures++
}

// saveDue reports whether the stored state is too far behind.
func (p *partition) saveDue(local time.Time) bool {
	return p.unsaved > 0 && (p.unsaved >= SaveRecords || local.Sub(p.savedAt) >= SaveInterval)
}

// sleep is how long nothing is to be done for the partition unless a record
// comes or a send ends, at most limit.
func (p *partition) sleepAtMost(now, local time.Time, limit time.Duration) time.Duration {
	d := limit
	if p.unsaved > 0 {
		d = min(d, p.savedAt.Add(SaveInterval).Sub(local))
	}
	if !p.restored || p.sending || p.behind {
		return d // a record, or the end of the send, is what comes next
	}
	if at, ok := p.deadlines.Earliest(); ok {
		d = min(d, max(at.Sub(now), p.resumeAt.Sub(local)))
	}
	return d
}

// sleep is how long the loop may wait for records.
func sleepAtMost(ps []*partition, now, local time.Time, limit time.Duration) time.Duration {
	d := limit
	for _, p := range ps {
		d = p.sleepAtMost(now, local, d)
	}
	return max(d, MinSleep)
}
