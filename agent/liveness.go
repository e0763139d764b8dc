package agent

import (
	"sync"
	"time"

	"github.com/waybill-run/waybill/internal/turns"
)

// Liveness tells whether a run's poll loop and workers move, for whoever restarts processes that don't. A worker
// is watched only while it runs code of this package: a handler, a send, a backoff and a circuit may take any time,
// and so may a broker that is unreachable. The zero value is ready for use, by one Run.
type Liveness struct {
	poll turns.Loop // a turn is one Poll, and what is done with its records

	mu        sync.Mutex
	workers   map[*turns.Loop]struct{}
	idleSlots turns.Loop // a turn is a time in which requests wait although places are free
}

// Hangs is how long the poll loop or a worker has stood still, or requests have waited although places are free,
// if that is too long; 0: all move.
func (l *Liveness) Hangs() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := max(l.poll.Hangs(), l.idleSlots.Hangs())
	for w := range l.workers {
		longest = max(longest, w.Hangs())
	}
	return longest
}

// worker is watched until done.
func (l *Liveness) addWorker() *turns.Loop {
	w := &turns.Loop{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == nil {
		l.workers = map[*turns.Loop]struct{}{}
	}
	l.workers[w] = struct{}{}
	return w
}

func (l *Liveness) removeWorker(w *turns.Loop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.workers, w)
}
