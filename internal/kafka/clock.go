package kafka

import (
	"sync"
	"time"
)

const (
	clockWindow  = time.Minute
	clockBuckets = 12
	clockBucket  = clockWindow / clockBuckets
)

// Clock is broker time as a process can tell it: its own clock, less the least
// difference to LogAppendTime that it saw in the last minute. A record is read
// after it was appended, so each difference is the true one and a delay, and
// the least has the least delay: the error is at most the fastest delivery of
// the minute. It is safe for concurrent use.
//
// Now doesn't go back by less than a second: when the correction grows, because
// the fastest delivery is a minute old, it stands still until time has caught
// up. A clock that is found to be further ahead was wrong, and is set. The
// process's clock being set does not show at all: only its first reading is of
// the wall, from there the monotonic clock counts. What that one leaves out (a
// machine's sleep) the first record afterwards corrects.
type Clock struct {
	processNow func() time.Time

	mu     sync.Mutex
	window offsetWindow
	last   time.Time
}

// NewClock is a clock that is the process's own until it observes a record.
func NewClock() *Clock { return NewClockWith(time.Now) }

// NewClockWith is a clock of a process whose own clock is another: a test's.
func NewClockWith(process func() time.Time) *Clock {
	return &Clock{processNow: process, window: offsetWindow{start: process()}}
}

// Observe takes note of a record: when the broker appended it, and the process
// clock when it was read. Only records at the log's tail tell the time: one
// that waited to be read would set the clock back by as long as it waited, if
// no other was seen for a minute. And only topics with LogAppendTime.
func (c *Clock) Observe(appendTime, local time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.observe(appendTime, local)
}

// observeInterval takes note of a record that was appended between two instants of the
// process's clock. What the clock is taken to be ahead by stays if it can be: of a slow
// answer it is the better guess.
func (c *Clock) observeInterval(appendTime, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	difference := c.window.difference(appendTime, to)
	if c.window.possible(appendTime, from, to) {
		difference = c.window.offset(to)
	}
	c.window.addSample(difference, to)
}

// correct is observeInterval for instants that are too far apart to tell the time: only a
// clock that can't be right is set.
func (c *Clock) correctIfImpossible(appendTime, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.window.possible(appendTime, from, to) {
		c.window.observe(appendTime, to)
	}
}

// Now is broker time, in UTC; less than it was before only if that was wrong by
// more than a second.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.window.now(c.processNow()); now.After(c.last) || c.last.Sub(now) > clockErrorMax {
		c.last = now
	}
	return c.last
}

// processNow is the clock of the process, by which the Clock counts.
func (c Config) processNow() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock.processNow()
}

// Offset is by how much the process clock is ahead of the broker's, the fastest
// delivery included; 0 before the first record.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.offset(c.processNow())
}

// difference is by how much the process clock was ahead of the broker's if a record
// that was appended at an instant was there at another of the process's clock: at
// most so much if it was there by then, at least if it was not there before.
func (c *Clock) difference(appendTime, local time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.difference(appendTime, local)
}

// offsetWindow is the pure part: the least differences of the last minute in
// buckets of some seconds, so that a record costs nothing to remember.
type offsetWindow struct {
	// start is what the buckets count from; its monotonic reading, if it has
	// one, makes the window blind to the wall clock being set.
	start   time.Time
	buckets [clockBuckets]offsetBucket
	// known is the offset in force while the window is empty: after a quiet
	// minute the last one is a better guess than none.
	current   time.Duration
	hasSample bool
	// currentBucket is the interval, as a bucket's number, for which known is the least.
	currentBucket int64
}

type offsetBucket struct {
	number int64 // of the interval since start, from 1; 0: unused
	least  time.Duration
}

// elapsed is local as a distance from start.
func (w *offsetWindow) elapsed(local time.Time) time.Duration { return max(0, local.Sub(w.start)) }

func (w *offsetWindow) difference(appendTime, local time.Time) time.Duration {
	// Round drops the monotonic reading: the broker's time has none.
	return w.start.Round(0).Add(w.elapsed(local)).Sub(appendTime)
}

// possible reports whether the offset in force can be right, if a record was appended
// between two instants.
func (w *offsetWindow) possible(appendTime, from, to time.Time) bool {
	known := w.offset(to)
	return known >= w.difference(appendTime, from) && known <= w.difference(appendTime, to)
}

func (w *offsetWindow) observe(appendTime, local time.Time) {
	w.addSample(w.difference(appendTime, local), local)
}

func (w *offsetWindow) addSample(difference time.Duration, local time.Time) {
	number := int64(w.elapsed(local)/clockBucket) + 1
	b := &w.buckets[number%clockBuckets]
	switch {
	case b.number < number:
		*b = offsetBucket{number, difference}
	case b.number == number:
		b.least = min(b.least, difference)
	default: // observed late, by another goroutine; its bucket has gone
	}
	w.hasSample = true
	w.current, w.currentBucket = w.least(number), number
}

// least of the window that ends with a bucket, of which the last full minute
// is part; the known one if it is empty.
func (w *offsetWindow) least(number int64) time.Duration {
	least, found := w.current, false
	for _, b := range w.buckets {
		if b.number > 0 && b.number > number-clockBuckets && (!found || b.least < least) {
			least, found = b.least, true
		}
	}
	return least
}

func (w *offsetWindow) offset(local time.Time) time.Duration {
	if !w.hasSample {
		return 0
	}
	if number := int64(w.elapsed(local)/clockBucket) + 1; number != w.currentBucket {
		w.current, w.currentBucket = w.least(number), number
	}
	return w.current
}

func (w *offsetWindow) now(local time.Time) time.Time {
	return w.start.Round(0).Add(w.elapsed(local)).Add(-w.offset(local)).UTC()
}
