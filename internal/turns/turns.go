// Package turns finds out that a role's loop hangs, as on a disk. Its client goes on heartbeating then, and
// would keep its partitions from everyone else: the process has to end, without waiting for the call.
//
//	go func() { ended <- run(&loop) }() // which calls Begin and End about each turn
//	return loop.Watch("index", ended)
package turns

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A turn that is still the same after so many looks hangs. Looks are counted, and not time: of a process
// that was stopped meanwhile none is.
const (
	look  = time.Second
	looks = 30
)

// Loop is one that goes round in turns, and waits between them. The zero value is before its first. One goroutine
// takes the turns, and another watches.
type Loop struct {
	turn  atomic.Uint64 // odd while the loop does something
	begun atomic.Int64  // when the last turn began, in nanoseconds since epoch
}

// epoch is what begun counts from: by the monotonic clock, which nobody sets.
var epoch = time.Now()

// Begin begins a turn.
func (l *Loop) Begin() {
	l.begun.Store(int64(time.Since(epoch)))
	l.turn.Add(1)
}

// End ends it.
func (l *Loop) End() { l.turn.Add(1) }

// hangsAfter is less than Watch waits, so that who asks is told first.
const hangsAfter = look * looks * 2 / 3

// Hangs is for how long the turn under way has lasted, if that is too long for a loop that moves;
// 0: it moves, or waits for its next turn. Of a process that was stopped meanwhile it may say so
// once.
func (l *Loop) Hangs() time.Duration {
	turn := l.turn.Load()
	lasted := time.Since(epoch) - time.Duration(l.begun.Load())
	if turn%2 == 0 || lasted < hangsAfter || turn != l.turn.Load() {
		return 0
	}
	return lasted
}

// StalledError ends the process.
type StalledError struct {
	Role   string
	Waited time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("%s: a turn of its loop hasn't ended for %v: its disk hangs; it ends, so that others can take its partitions", e.Role, e.Waited)
}

// Watch waits for the end of a role's loop, and returns what it ended with; but of one with a turn that lasts for half
// a minute a *StalledError.
func (l *Loop) Watch(role string, ended <-chan error) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for before, same := uint64(0), 0; ; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		turn := l.turn.Load()
		if same++; turn != before || turn%2 == 0 {
			before, same = turn, 0
		}
		if same == looks {
			return &StalledError{role, look * looks}
		}
	}
}
