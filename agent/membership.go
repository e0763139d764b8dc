package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/watchdog"
)

// position identifies a record. A record that is delivered again while its request is in progress is
// recognized by it.
type position struct {
	partition int32
	offset    int64
}

// job is a request that is queued or in progress.
type job struct {
	at       position
	req      Request
	appended time.Time // by the broker, its clock
	// malformed is the reply if the value of the request can't be used; nil: the handler is called.
	malformed *Failure
}

// membership is a session in the group, and the bounded pool of workers for its requests.
type membership struct {
	*runner
	session Session
	// handling is the parent of the handlers' contexts and is done when the grace is over. sending is the
	// parent of the sends' contexts and is done right before the session is closed.
	handling context.Context
	sending  context.Context
	draining chan struct{} // closed by drain: requests that wait for their next call are abandoned

	mu          sync.Mutex
	requests    map[position]struct{} // queued or in progress
	queue       []job                 // at most Concurrency, and the records of one Poll
	slotsUsed   int                   // at most Concurrency
	idleWorkers int                   // workers that wait for a job, at most Concurrency
	parked      [waitReasons]int      // requests that wait for their next call, without a slot: see park
	// slotWaiters are requests that were parked and wait for a slot. Closing the channel gives it to them.
	slotWaiters []chan struct{}
	handoff     chan job // to an idle worker
	paused      bool
	closed      bool // no further request is started
	starved     bool // requests wait although slots are free
	workers     sync.WaitGroup
}

// unlock updates starved and unlocks m.mu. It must be used after a change of queue, slotsUsed, parked or closed.
func (m *membership) unlock() {
	free := &m.cfg.Liveness.idleSlots
	switch waits := !m.closed && len(m.queue) > 0 && m.mayStart(); {
	case waits && !m.starved:
		m.starved = true
		free.Begin()
	case !waits && m.starved:
		m.starved = false
		free.End()
	}
	m.mu.Unlock()
}

// pollLoop accepts requests until ctx is done or the session fails.
func (m *membership) pollLoop(ctx context.Context) error {
	loop := &m.cfg.Liveness.poll
	for {
		loop.Begin()
		records, err := m.session.Poll(ctx)
		for i := range records {
			m.accept(&records[i])
		}
		loop.End()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("agent: poll for requests: %w", err)
		}
	}
}

// accept starts a request, or queues it if no slot is free or too many requests are parked. It pauses the session once
// Concurrency requests are queued.
func (m *membership) accept(rec *events.Record) {
	at := position{rec.Partition, rec.Offset}
	req, err := newRequest(rec)
	var malformed *Failure
	if err != nil {
		m.cfg.Listener.Malformed(*rec, err)
		bad, is := errors.AsType[*valueError](err)
		if !is { // nobody waits for a reply, or it isn't known who does
			m.session.Done(at.partition, at.offset)
			return
		}
		malformed = bad.failure()
	}
	m.mu.Lock()
	defer m.unlock()
	if _, ok := m.requests[at]; ok {
		return // delivered again after a rebalance; the worker that has it calls Done
	}
	m.requests[at] = struct{}{}
	j := job{at, req, rec.Time, malformed}
	if m.mayStart() {
		m.startJob(j)
		return
	}
	m.queue = append(m.queue, j)
	if !m.paused && len(m.queue) >= m.cfg.Concurrency {
		m.paused = true
		m.session.Pause()
	}
}

// runWorker executes j, and then queued requests.
func (m *membership) runWorker(j job) {
	loop := m.cfg.Liveness.addWorker()
	defer m.cfg.Liveness.removeWorker(loop)
	for ok := true; ok; {
		loop.Begin()
		hasSlot := m.abandonIfLost(j) || m.execute(j, loop)
		if hasSlot {
			j, ok = m.nextJob(loop)
		} else {
			ok = false
		}
		loop.End()
	}
}

// nextJob returns the next queued request, or waits for one. Workers are reused because their stacks have
// grown. False: the worker must end, since the membership does or enough workers are idle.
func (m *membership) nextJob(loop *watchdog.Loop) (job, bool) {
	j, ok, idle := m.nextQueuedOrIdle()
	if idle {
		loop.End()
		j, ok = <-m.handoff
		loop.Begin()
	}
	return j, ok
}

// nextQueuedOrIdle returns the next queued request, which takes over the worker's slot. If none may be started, or a
// request that was parked gets the slot, the worker counts as idle.
func (m *membership) nextQueuedOrIdle() (j job, ok, idle bool) {
	m.mu.Lock()
	defer m.unlock()
	if len(m.slotWaiters) == 0 && m.hasRoom() {
		if j, ok = m.popQueue(); ok {
			return j, true, false
		}
	}
	m.releaseSlot()
	if m.slotsUsed+m.idleWorkers >= m.cfg.Concurrency {
		return j, false, false // requests that were parked have goroutines of their own
	}
	m.idleWorkers++
	return j, false, true
}

// popQueue removes the first request of the queue. It resumes the session once the queue is at most half full.
// m.mu is held.
func (m *membership) popQueue() (job, bool) {
	if m.closed || len(m.queue) == 0 {
		return job{}, false
	}
	j := m.queue[0]
	m.queue = m.queue[1:]
	if m.paused && len(m.queue) <= m.cfg.Concurrency/2 {
		m.paused = false
		m.session.Resume()
	}
	return j, true
}

// drain starts no further requests, abandons those that wait, and waits for running ones, first for the grace. Then
// it cancels the handlers' contexts and waits for returnTimeout. It returns the number of slots still used.
func (m *membership) drain(cancelHandlers context.CancelFunc) int {
	close(m.draining)
	m.mu.Lock()
	m.closed = true
	close(m.handoff) // polling is over, so accept sends no more
	waiting := m.queue
	m.queue = nil
	m.unlock()
	for _, j := range waiting {
		m.cfg.Listener.Abandoned(j.req)
	}
	idle := make(chan struct{})
	go func() {
		m.workers.Wait()
		close(idle)
	}()
	waitAtMost(idle, m.cfg.Grace)
	cancelHandlers()
	waitAtMost(idle, returnTimeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slotsUsed
}

func waitAtMost(done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// finish removes a request that needs no more work, and calls the session's Done unless sending is over.
// Both happen under the lock: a request that is delivered again, after its partition was reassigned and
// came back, finds either that Done will be called for it or that it is not in progress.
func (m *membership) finish(at position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.requests, at)
	if m.sending.Err() == nil {
		m.session.Done(at.partition, at.offset)
	}
}

// abandon removes a request that is left to another instance.
func (m *membership) abandon(j job) {
	m.mu.Lock()
	delete(m.requests, j.at)
	m.mu.Unlock()
	m.cfg.Listener.Abandoned(j.req)
}

// abandonIfLost removes a request whose partition was reassigned, and reports whether it was. Both happen under the
// lock: if the partition comes back, accept finds the request in progress only if it isn't removed.
func (m *membership) abandonIfLost(j job) bool {
	h, ok := m.session.(PartitionHolder)
	if !ok {
		return false
	}
	m.mu.Lock()
	gone := h.HeldContext(j.at.partition).Err() != nil
	if gone {
		delete(m.requests, j.at)
	}
	m.mu.Unlock()
	if gone {
		m.cfg.Listener.Abandoned(j.req)
	}
	return gone
}

// mayHaveStarted reports whether another instance may have started the request before.
func (m *membership) mayHaveStarted(at position) bool {
	h, ok := m.session.(PartitionHolder)
	return ok && h.MayHaveStarted(at.partition, at.offset)
}

// stillRunningError reports handlers that did not return; nil if there are none.
func stillRunningError(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("agent: %d handlers did not return after their context was cancelled; their requests are left to another instance", n)
}

// leave closes the session.
func (m *membership) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := m.session.Close(ctx); err != nil {
		return fmt.Errorf("agent: leave the group: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}
