package agent

import (
	"sync"
	"time"

	"github.com/waybill-run/waybill/internal/watchdog"
)

// Liveness reports whether a run's poll loop and workers make progress, so that a platform can restart a stalled
// process. A worker is watched only while it runs code of this package. Handlers, sends, backoffs, open circuits and
// unreachable brokers may take any time. The zero value is ready for use, by one Run. Safe for concurrent use.
type Liveness struct {
	poll watchdog.Loop // a turn is one Poll and the queueing of its records

	mu        sync.Mutex
	workers   map[*watchdog.Loop]struct{}
	idleSlots watchdog.Loop // a turn is a period in which requests wait although slots are free
}

// HungFor returns how long the poll loop or a worker has been stalled, or how long requests have waited although slots
// are free. It returns 0 while that is short enough.
func (l *Liveness) HungFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := max(l.poll.HungFor(), l.idleSlots.HungFor())
	for w := range l.workers {
		longest = max(longest, w.HungFor())
	}
	return longest
}

// addWorker watches a worker until removeWorker.
func (l *Liveness) addWorker() *watchdog.Loop {
	w := &watchdog.Loop{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == nil {
		l.workers = map[*watchdog.Loop]struct{}{}
	}
	l.workers[w] = struct{}{}
	return w
}

func (l *Liveness) removeWorker(w *watchdog.Loop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.workers, w)
}
