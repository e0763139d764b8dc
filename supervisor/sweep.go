package supervisor

import (
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
)

// How the loop schedules its work.
const (
	// DefaultSweepInterval is the longest sleep of the loop: a correction of the clock may make a timer due
	// meanwhile.
	DefaultSweepInterval = time.Second
	// MinSleep prevents a busy loop for an instant that has passed.
	MinSleep = time.Millisecond

	// forgetEverySweeps is how often a partition is asked to forget ids, at most, in sweep intervals: once a minute by
	// default. One request is for all ids.
	forgetEverySweeps = 60

	// SaveInterval and SaveRecords limit how far a partition's stored state may be behind. A restart reads that
	// again.
	SaveInterval = time.Second
	SaveRecords  = 10_000

	// CommitEvery is how old the group's offsets may be. They only show the lag.
	CommitEvery = 5 * time.Second

	// After a failed send a partition pauses for SendPauseMin. The pause doubles each time, up to SendPauseMax.
	SendPauseMin = 100 * time.Millisecond
	SendPauseMax = 5 * time.Second

	// WarnSkew is the skew above which Listener.Skew is called, at most once per WarnEvery.
	WarnSkew  = 2 * time.Second
	WarnEvery = time.Minute
)

// partition is the loop's state of one partition of events.
type partition struct {
	id         int32
	deadlines  Deadlines
	generation uint64    // last known assignment; 0: none yet
	since      time.Time // local time of the assignment

	// restored: all records below the high watermark at assignment are applied.
	restored bool
	// behind: there are records that aren't applied yet. One of them may disarm a timer that seems due.
	behind bool

	unsaved int       // records applied since the last save
	savedAt time.Time // local

	// sending: a batch is in flight. failures counts failed batches in a row. Nothing is sent before resumeAt
	// (local).
	sending  bool
	failures int
	resumeAt time.Time
	// forgetAskedAt is when forgetting was asked for last (local).
	forgetAskedAt time.Time
}

// beginAssignment begins a new assignment. The applied state stays, since it is the log's. Other owners may have
// written meanwhile, so the partition must be read to its end again before anything is asked.
func (p *partition) beginAssignment(generation uint64, local time.Time) {
	p.generation, p.since, p.restored = generation, local, false
}

// knownUntil is the time up to which the partition is known: now if all records are applied, else the time of the
// last event. Otherwise a supervisor that is behind would ask about attempts that were answered long ago, and the
// answers would put it further behind.
func (p *partition) knownUntil(now time.Time) time.Time {
	if at := p.deadlines.At(); p.behind && at.Before(now) {
		return at
	}
	return now
}

// due is the page of timers to ask about; empty while the partition may not ask.
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

// forgets reports whether to ask the partition to forget ids.
func (p *partition) forgets(now, local time.Time, every time.Duration) bool {
	if !p.restored || p.sending || local.Before(p.resumeAt) || local.Sub(p.forgetAskedAt) < every {
		return false
	}
	at, ok := p.deadlines.ForgetDue()
	return ok && !at.After(p.knownUntil(now))
}

// pauseAfterFailure pauses the partition after a failed batch.
func (p *partition) pauseAfterFailure(local time.Time) {
	p.failures++
	p.resumeAt = local.Add(backoff.After(SendPauseMin, SendPauseMax, p.failures))
}

// saveDue reports whether the stored state is too far behind.
func (p *partition) saveDue(local time.Time) bool {
	return p.unsaved > 0 && (p.unsaved >= SaveRecords || local.Sub(p.savedAt) >= SaveInterval)
}

// sleepAtMost is how long the partition has nothing to do unless a record comes or a send ends, at most limit.
func (p *partition) sleepAtMost(now, local time.Time, limit time.Duration) time.Duration {
	d := limit
	if p.unsaved > 0 {
		d = min(d, p.savedAt.Add(SaveInterval).Sub(local))
	}
	if !p.restored || p.sending || p.behind {
		return d // a record or the end of the send comes next
	}
	if at, ok := p.deadlines.Earliest(); ok {
		d = min(d, max(at.Sub(now), p.resumeAt.Sub(local)))
	}
	return d
}

// sleepAtMost is how long the loop may wait for records.
func sleepAtMost(ps []*partition, now, local time.Time, limit time.Duration) time.Duration {
	d := limit
	for _, p := range ps {
		d = p.sleepAtMost(now, local, d)
	}
	return max(d, MinSleep)
}
