package agent

import (
	"sync"
	"time"

	"github.com/waybill-run/waybill/internal/watchdog"
)

// Liveness tells whether a run's poll loop and workers move, for whoever restarts processes that don't. A worker
// is watched only while it runs code of this package: a handler, a send, a backoff and a circuit may take any time,
// and so may a broker that is unreachable. The zero value is ready for use, by one Run.
type Liveness struct {
	poll watchdog.Loop // a turn is one Poll, and what is done with its records

	mu      sync.Mutex
	workers map[*watchdog.Loop]struct{}
	free    watchdog.Loop // a turn is a time in which requests wait although places are free
}

// HungFor is how long the poll loop or a worker has stood still, or requests have waited although places are free,
// if that is too long; 0: all move.
func (l *Liveness) HungFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := max(l.poll.HungFor(), l.free.HungFor())
	for w := range l.workers {
		longest = max(longest, w.HungFor())
	}
	return longest
}

// worker is watched until done.
func (l *Liveness) worker() *watchdog.Loop {
	w := &watchdog.Loop{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == nil {
		l.workers = map[*watchdog.Loop]struct{}{}
	}
	l.workers[w] = struct{}{}
	return w
}

func (l *Liveness) done(w *watchdog.Loop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.workers, w)
}
