package brokerclock

import (
	"sync"
	"time"
)

const (
	windowLength = time.Minute
	bucketCount  = 12
	bucketLength = windowLength / bucketCount
)

// Clock estimates broker time: the process's clock, corrected by the smallest difference to LogAppendTime that it
// observed in the last minute. A record is read after it was appended, so each observed difference is the true
// difference plus a delay, and the smallest has the least delay. The error is at most the fastest delivery of the
// minute. It is safe for concurrent use.
//
// Now doesn't go back by less than a second. When the correction grows because the fastest delivery is more than a
// minute old, Now stands still until broker time has caught up. If the clock is found to be further ahead, it was wrong
// and is set back. Setting the process's wall clock has no effect: only its first reading is of the wall clock, and
// after that the monotonic clock counts. The monotonic clock may leave out time in which the machine slept; the first
// record afterwards corrects that.
type Clock struct {
	processNow func() time.Time

	mu     sync.Mutex
	window offsetWindow
	last   time.Time
}

// NewClock returns a clock that is the process's own until it observes a record.
func NewClock() *Clock { return NewClockWith(time.Now) }

// NewClockWith returns a Clock that is based on process instead of time.Now, for tests.
func NewClockWith(process func() time.Time) *Clock {
	return &Clock{processNow: process, window: offsetWindow{start: process()}}
}

// Observe records when the broker appended a record and the process's clock when it was read. Callers must pass only
// records at the log's tail, and only of topics with LogAppendTime. A record that waited to be read would set the clock
// back by its waiting time, unless another was observed within the minute.
func (c *Clock) Observe(appendTime, local time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.observe(appendTime, local)
}

// observeInterval observes a record that was appended between two instants of the process's clock. If the present
// correction is possible, it is kept: for a slow answer it is the better estimate.
func (c *Clock) observeInterval(appendTime, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	difference := c.window.difference(appendTime, to)
	if c.window.possible(appendTime, from, to) {
		difference = c.window.offset(to)
	}
	c.window.addSample(difference, to)
}

// correctIfImpossible is observeInterval for instants that are too far apart for an estimate. It changes only a
// correction that is impossible.
func (c *Clock) correctIfImpossible(appendTime, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.window.possible(appendTime, from, to) {
		c.window.observe(appendTime, to)
	}
}

// Now returns broker time in UTC. It is less than an earlier result only if that was wrong by more than a second.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.window.now(c.processNow()); now.After(c.last) || c.last.Sub(now) > errorMax {
		c.last = now
	}
	return c.last
}

// ProcessNow returns the process's clock, which c is based on; time.Now if c is nil.
func (c *Clock) ProcessNow() time.Time {
	if c == nil {
		return time.Now()
	}
	return c.processNow()
}

// Offset returns how far the process's clock is ahead of the broker's, including the fastest delivery; 0 before the
// first record.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.offset(c.processNow())
}

// difference returns how far the process's clock was ahead of the broker's if a record appended at appendTime was there
// at local. It is an upper bound if the record was there by local, and a lower bound if it was not there before local.
func (c *Clock) difference(appendTime, local time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.difference(appendTime, local)
}

// offsetWindow keeps the smallest differences of the last minute, one per bucket of bucketLength, so that its size
// doesn't depend on the number of records. It does no I/O.
type offsetWindow struct {
	// start is the origin of the buckets. Its monotonic reading, if it has one, makes the window independent of changes
	// of the wall clock.
	start   time.Time
	buckets [bucketCount]offsetBucket
	// current is the present correction. It is kept while the window is empty: after a quiet minute the last correction
	// is a better estimate than none.
	current   time.Duration
	hasSample bool
	// currentBucket is the number of the bucket that current was computed for.
	currentBucket int64
}

type offsetBucket struct {
	number int64 // number of the interval since start, from 1; 0: unused
	least  time.Duration
}

// elapsed returns the time from start to local, at least 0.
func (w *offsetWindow) elapsed(local time.Time) time.Duration { return max(0, local.Sub(w.start)) }

func (w *offsetWindow) difference(appendTime, local time.Time) time.Duration {
	// Round removes the monotonic reading: the broker's time has none.
	return w.start.Round(0).Add(w.elapsed(local)).Sub(appendTime)
}

// possible reports whether the present correction can be right, given that a record was appended between two instants.
func (w *offsetWindow) possible(appendTime, from, to time.Time) bool {
	known := w.offset(to)
	return known >= w.difference(appendTime, from) && known <= w.difference(appendTime, to)
}

func (w *offsetWindow) observe(appendTime, local time.Time) {
	w.addSample(w.difference(appendTime, local), local)
}

func (w *offsetWindow) addSample(difference time.Duration, local time.Time) {
	number := int64(w.elapsed(local)/bucketLength) + 1
	b := &w.buckets[number%bucketCount]
	switch {
	case b.number < number:
		*b = offsetBucket{number, difference}
	case b.number == number:
		b.least = min(b.least, difference)
	default: // a late observation by another goroutine, whose bucket was reused
	}
	w.hasSample = true
	w.current, w.currentBucket = w.least(number), number
}

// least returns the smallest difference of the window that ends with bucket number; if the window is empty, the present
// correction.
func (w *offsetWindow) least(number int64) time.Duration {
	least, found := w.current, false
	for _, b := range w.buckets {
		if b.number > 0 && b.number > number-bucketCount && (!found || b.least < least) {
			least, found = b.least, true
		}
	}
	return least
}

func (w *offsetWindow) offset(local time.Time) time.Duration {
	if !w.hasSample {
		return 0
	}
	if number := int64(w.elapsed(local)/bucketLength) + 1; number != w.currentBucket {
		w.current, w.currentBucket = w.least(number), number
	}
	return w.current
}

func (w *offsetWindow) now(local time.Time) time.Time {
	return w.start.Round(0).Add(w.elapsed(local)).Add(-w.offset(local)).UTC()
}
