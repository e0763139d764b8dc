package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// generator sends submissions. One goroutine calls send.
type generator struct {
	tally *tally
	slots chan struct{} // one entry for each task in flight; nil: unbounded
	// dueAfter is when the i-th submission of a part is to be sent, after its first one; nil: as soon as a slot is
	// free.
	dueAfter func(i int) time.Duration
	// write passes a submission to the producer, and recordWritten is called with the result. flush returns once
	// it was called for all.
	write func(ctx context.Context, n int)
	flush func(ctx context.Context) error

	acked  atomic.Int64
	failed atomic.Pointer[error]
}

// pauseMin is the shortest wait. A submission that is due sooner is sent at once, but its time counts from when it
// was due.
const pauseMin = 50 * time.Microsecond

// dueAtRate is generator.dueAfter of a load with a rate; nil without.
func (l *Load) dueAtRate() func(i int) time.Duration {
	if l.Rate == 0 {
		return nil
	}
	return func(i int) time.Duration { return time.Duration(float64(i) * float64(time.Second) / l.Rate) }
}

// send sends the tasks from..to-1. With dueAfter their instants are fixed before the first is sent.
func (g *generator) send(ctx context.Context, from, to int) error {
	began := g.tally.now()
	for n := from; n < to; n++ {
		var due int64
		if g.dueAfter != nil {
			due = began + int64(g.dueAfter(n-from))
		}
		if err := g.awaitTurn(ctx, n, due); err != nil {
			return err
		}
		g.write(ctx, n)
	}
	if err := g.flush(ctx); err != nil {
		return err
	}
	return g.failure()
}

// awaitTurn returns when task n may be sent. It records when the task was to be sent.
func (g *generator) awaitTurn(ctx context.Context, n int, due int64) error {
	if g.dueAfter != nil {
		g.tally.intended[n].Store(due)
		if wait := time.Duration(due - g.tally.now()); wait > pauseMin {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if g.dueAfter == nil {
		g.tally.intended[n].Store(g.tally.now())
	}
	return g.failure()
}

// recordWritten records the result of a submission.
func (g *generator) recordWritten(n int, err error) {
	if err != nil {
		g.failed.CompareAndSwap(nil, &err)
		return
	}
	g.tally.recordAck(n)
	g.acked.Add(1)
}

func (g *generator) failure() error {
	if err := g.failed.Load(); err != nil {
		return fmt.Errorf("submit: %w", *err)
	}
	return nil
}

// phase sends some tasks and waits until all have ended.
type phase struct {
	generator    *generator
	watch        *observer
	progress     func(what string, done, total int64)
	stallTimeout time.Duration // maximum time without progress
}

func (p *phase) run(ctx context.Context, what string, from, to int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- p.generator.send(ctx, from, to) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	moved, before := time.Now(), int64(-1)
	for sent != nil || p.watch.ended.Load() < int64(to) {
		select {
		case err := <-sent:
			if err != nil {
				return err
			}
			sent = nil
		case <-p.watch.changed:
		case <-tick.C:
			p.progress(what, p.watch.ended.Load()-int64(from), int64(to-from))
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.watch.failure(); err != nil {
			return err
		}
		if n := p.watch.events.Load() + p.generator.acked.Load(); n != before {
			moved, before = time.Now(), n
		} else if time.Since(moved) > p.stallTimeout {
			return fmt.Errorf("no progress for %s: %d tasks were acknowledged, %d of %d have ended",
				p.stallTimeout, p.generator.acked.Load(), p.watch.ended.Load()-int64(from), to-from)
		}
	}
	p.progress(what, int64(to-from), int64(to-from))
	return nil
}
