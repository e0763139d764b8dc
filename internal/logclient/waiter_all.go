package logclient

import (
	"context"

	"github.com/waybill-run/waybill/events"
)

// WaitAll blocks until each of many tasks has a result, as Wait returns it, and passes the results to result as they
// come. The task of a result with an error is as of the events that could be read.
//
// If ctx ends first, WaitAll passes the other tasks with the error of ctx, as of the events that were read: a task is
// zero if it has none. Then WaitAll returns that error. It takes no goroutine for each task.
func (w *Waiter) WaitAll(ctx context.Context, ids []string, result func(id string, t events.TaskView, err error)) error {
	waits := make([]batchWait, len(ids))
	ended := make(chan int, len(ids)) // never blocks who holds the lock
	if err := w.joinAll(ids, waits, ended); err != nil {
		return err
	}
	for range ids {
		select {
		case i := <-ended:
			result(ids[i], waits[i].pending.task, waits[i].pending.err)
			waits[i] = batchWait{}
		case <-ctx.Done():
			w.leaveAll(waits, ctx.Err())
			for i, b := range waits {
				if b.pending != nil {
					result(ids[i], b.task, b.err)
				}
			}
			return ctx.Err()
		}
	}
	return nil
}

// batchWait is the wait of WaitAll for one of its tasks.
type batchWait struct {
	tracked *trackedTask
	pending *pendingWait // nil: its result was passed on
	task    events.TaskView
	err     error
}

// joinAll starts the waits. Each sends its index when it has a result.
func (w *Waiter) joinAll(ids []string, waits []batchWait, ended chan<- int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, id := range ids {
		t, v, err := w.join(id)
		if err != nil { // the Waiter is closed, since before the first
			return err
		}
		waits[i] = batchWait{tracked: t, pending: v}
		select {
		case <-v.done:
			ended <- i
		default:
			v.batches = append(v.batches, func() { ended <- i })
		}
	}
	return nil
}

// leaveAll ends the waits without a result, which get an error.
func (w *Waiter) leaveAll(waits []batchWait, err error) {
	for i := range waits {
		b := &waits[i]
		if b.pending == nil {
			continue
		}
		w.mu.Lock()
		select {
		case <-b.pending.done:
			b.task, b.err = b.pending.task, b.pending.err
		default:
			b.task, b.err = w.view(b.tracked), err
		}
		w.mu.Unlock()
		w.endWait(b.tracked, b.pending)
	}
}
