// Package watchdog detects that a role's loop hangs, for example in a write to a disk. The Kafka client of such a
// process goes on heartbeating, so the group never reassigns its partitions. The process has to end, and can't wait for
// the call that hangs.
//
//	go func() { ended <- run(&loop) }() // run calls Begin and End around each iteration
//	return loop.Watch("index", ended)
package watchdog

import (
	"fmt"
	"sync/atomic"
	"time"
)

// An iteration that is still the same after checksMax checks hangs. Checks are counted rather than time: a process that
// was stopped makes no checks meanwhile.
const (
	checkEvery = time.Second
	checksMax  = 30
)

// Loop is the progress of a loop that waits between its iterations. The zero value is before the first iteration. One
// goroutine calls Begin and End; any goroutine may call HungFor and Watch.
type Loop struct {
	calls atomic.Uint64 // of Begin and End: odd during an iteration
	begun atomic.Int64  // when the last iteration began, in nanoseconds since epoch
}

// epoch is the zero of begun. It has a monotonic clock reading, so setting the clock changes nothing.
var epoch = time.Now()

// Begin begins an iteration.
func (l *Loop) Begin() {
	l.begun.Store(int64(time.Since(epoch)))
	l.calls.Add(1)
}

// End ends an iteration.
func (l *Loop) End() { l.calls.Add(1) }

// hungAfter is less than what Watch waits, so a health check fails before the process ends.
const hungAfter = checkEvery * checksMax * 2 / 3

// HungFor is how long the current iteration has lasted, if that is too long; 0: the loop makes progress, or waits
// between iterations. After a stop of the process it may be wrong once.
func (l *Loop) HungFor() time.Duration {
	calls := l.calls.Load()
	lasted := time.Since(epoch) - time.Duration(l.begun.Load())
	if calls%2 == 0 || lasted < hungAfter || calls != l.calls.Load() {
		return 0
	}
	return lasted
}

// StalledError says that a loop hangs. The process ends with it.
type StalledError struct {
	Role   string
	Waited time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("%s: one iteration of its loop has taken %v, probably because the disk hangs; the process ends so that its partitions are reassigned: check the disk of the data directory", e.Role, e.Waited)
}

// Watch waits for the end of a role's loop and returns its error. If an iteration takes checksMax checks, Watch returns
// a *StalledError without waiting for the loop.
func (l *Loop) Watch(role string, ended <-chan error) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for before, same := uint64(0), 0; ; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		calls := l.calls.Load()
		if same++; calls != before || calls%2 == 0 {
			before, same = calls, 0
		}
		if same == checksMax {
			return &StalledError{role, checkEvery * checksMax}
		}
	}
}
