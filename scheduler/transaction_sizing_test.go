package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// slowly is a catalog with slow expressions.
type slowly struct {
	*catalog
	took time.Duration
}

func (c slowly) Program(name string, version int) (*workflow.Program, bool) {
	time.Sleep(c.took) // in the bubble's time
	return c.catalog.Program(name, version)
}

func (c slowly) Applied(name string, version int) (*workflow.Program, Absence) {
	time.Sleep(c.took)
	return c.catalog.Applied(name, version)
}

// waitingLog measures how long records have waited, as a worker's client does.
type waitingLog struct {
	*fakeLog
	since atomic.Pointer[time.Time]
}

func (l *waitingLog) Poll(ctx context.Context) ([]events.Record, error) {
	rs, err := l.fakeLog.Poll(ctx)
	if now := time.Now(); len(rs) > 0 {
		l.since.CompareAndSwap(nil, &now)
	} else {
		l.since.Store(nil)
	}
	return rs, err
}

func (l *waitingLog) Commit(ctx context.Context, out []events.Record) (bool, error) {
	committed, err := l.fakeLog.Commit(ctx, out)
	if committed {
		l.since.Store(nil)
	}
	return committed, err
}

func (l *waitingLog) Stalled(now time.Time) time.Duration {
	if since := l.since.Load(); since != nil {
		return now.Sub(*since)
	}
	return 0
}

// submitMany writes n submissions, and returns a client for them.
func (s *site) submitMany(n int) *waitingLog {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("t-", i)
	}
	s.submit("w", ids...)
	s.cfg.MaxRunnable = 2 * n
	log := &waitingLog{fakeLog: s.cluster.join(0)}
	log.max = n
	s.cfg.OpenClient = func(context.Context, string, int) (Client, error) { return log, nil }
	return log
}

// TestSlowInputsAreDecidedInParts polls more inputs than a worker can decide on within the stall timeout. It decides on
// them in parts, and the process continues.
func TestSlowInputsAreDecidedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inputs, each = 300, 60 * time.Millisecond
		s := newSite(t, 1)
		s.cfg.TransactionTimeout = time.Second
		s.cfg.Catalog = slowly{s.catalog, each}
		s.submitMany(inputs)
		ctx, cancel := context.WithCancel(t.Context())
		began, decided, longest, last := time.Now(), 0, time.Duration(0), time.Now()
		s.cfg.Listener.Committed = func(c Committed) {
			longest, last = max(longest, time.Since(last)), time.Now()
			if decided += c.Inputs; decided == inputs {
				cancel()
			}
		}
		if err := Run(ctx, s.cfg); err != nil || decided != inputs || len(s.failed) > 0 {
			t.Errorf("%d of %d inputs were decided: %v, workers that failed: %v", decided, inputs, err, s.failed)
		}
		if took := time.Since(began); took < stallFactor*s.cfg.TransactionTimeout {
			t.Errorf("all of it took %v: nothing would have stalled", took)
		}
		if longest > s.cfg.TransactionTimeout {
			t.Errorf("%v without a commit", longest)
		}
	})
}

// TestDecisionsAreProgress checks that each decision counts as progress, since one input may cause many decisions and
// take longer than the stall timeout.
func TestDecisionsAreProgress(t *testing.T) {
	s := newSite(t, 1)
	log := s.cluster.join(0)
	w := s.worker(log)
	now := time.Now()
	log.stalled = time.Minute
	if got := w.stalledFor(now); got != time.Minute {
		t.Errorf("a worker that decided nothing: stalled for %v", got)
	}
	w.sizing.recordDecision(now)
	if got := w.stalledFor(now.Add(time.Second)); got != time.Second {
		t.Errorf("a second after a decision: stalled for %v", got)
	}
}

// TestEndlessRollbacksEndRun rolls back the same decisions each time. The worker counts as stalled, like one that
// hangs.
func TestEndlessRollbacksEndRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.cfg.TransactionTimeout = time.Second
		log := s.submitMany(1)
		// This isn't in end: the watchdog closes the log meanwhile, and a commit holds its lock.
		log.beforeCommit = func() { // the latency of the broker
			select {
			case <-time.After(100 * time.Millisecond):
			case <-log.gone:
			}
		}
		log.end = func(func()) (committed, handled bool, err error) { return false, true, nil }
		var stalled *stalledError
		if err := Run(t.Context(), s.cfg); !errors.As(err, &stalled) {
			t.Errorf("%v", err)
		}
		synctest.Wait() // Run doesn't wait for a stalled worker
	})
}

// TestTransactionSizing checks that the poll limit decreases to what can be decided in time, and increases again.
func TestTransactionSizing(t *testing.T) {
	var p transactionSizing
	p.decrease(40, 500)
	if p.pollMax != 40 {
		t.Errorf("%d are polled after 40 took all the time", p.pollMax)
	}
	p.decrease(30, 40)
	if p.pollMax != 20 {
		t.Errorf("%d are polled after 30 of 40, want half of what was polled", p.pollMax)
	}
	if p.increase(time.Second, 2*time.Second); p.pollMax != 20 {
		t.Errorf("%d are polled, though 20 took half of the time", p.pollMax)
	}
	for range 3 {
		p.decrease(1, p.pollMax)
	}
	if p.pollMax != 1 {
		t.Errorf("%d are polled, want one", p.pollMax)
	}
	for _, want := range []int{2, 4, 8, 16, 32, 64, 128, 256, 512, 0, 0} {
		if p.increase(0, time.Second); p.pollMax != want {
			t.Errorf("%d are polled, want %d", p.pollMax, want)
		}
	}
}
