package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/turns"
)

// position is where a record is; work names it so that one that is delivered
// again while it is still worked on isn't begun twice.
type position struct {
	partition int32
	offset    int64
}

// job is a request that waits for its turn, or has it.
type job struct {
	at       position
	req      Request
	appended time.Time // when the broker took it
}

// member is one stay in the group: a session and the bounded pool that works on
// its requests.
type membership struct {
	*runner
	session Session
	// handling ends the handlers' contexts when the grace is over; sending ends
	// the produce calls right before the session is closed.
	handling context.Context
	sending  context.Context

	mu          sync.Mutex
	requests    map[position]struct{} // queued or running
	queue       []job                 // at most Concurrency and one poll
	slotsUsed   int                   // requests that have a place, at most Concurrency
	idleWorkers int                   // goroutines that wait for a job, at most Concurrency
	parked      int                   // requests that gave their place up: see park
	// returning are the parked requests that wait for a place, each until its channel is closed.
	slotWaiters []chan struct{}
	handoff     chan job // to one that is idle
	paused      bool
	closed      bool // nothing more is begun
	starved     bool // requests wait although places are free
	workers     sync.WaitGroup
}

// unlock releases m.mu after a change of queue, running or closed.
func (m *membership) unlock() {
	free := &m.cfg.Liveness.idleSlots
	switch waits := !m.closed && len(m.queue) > 0 && m.slotsUsed < m.cfg.Concurrency; {
	case waits && !m.starved:
		m.starved = true
		free.Begin()
	case !waits && m.starved:
		m.starved = false
		free.End()
	}
	m.mu.Unlock()
}

// poll takes requests until ctx is done or the session fails.
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

// take begins a request or queues it, and pauses the session when as many wait
// as run.
func (m *membership) accept(rec *events.Record) {
	at := position{rec.Partition, rec.Offset}
	req, err := newRequest(rec)
	if err != nil {
		m.cfg.Listener.malformed(*rec, err)
		m.session.Done(at.partition, at.offset)
		return
	}
	m.mu.Lock()
	defer m.unlock()
	if _, ok := m.requests[at]; ok {
		return // delivered again after a rebalance; whoever has it will say Done
	}
	m.requests[at] = struct{}{}
	j := job{at, req, rec.Time}
	switch {
	case m.idleWorkers > 0 && m.slotsUsed < m.cfg.Concurrency:
		m.idleWorkers--
		m.slotsUsed++
		m.handoff <- j // there is room for every goroutine
		return
	case m.slotsUsed < m.cfg.Concurrency:
		m.slotsUsed++
		first := j // so that j stays on the stack
		m.workers.Go(func() { m.runWorker(first) })
		return
	}
	m.queue = append(m.queue, j)
	if !m.paused && len(m.queue) >= m.cfg.Concurrency {
		m.paused = true
		m.session.Pause()
	}
}

// serve works on j, and then on what waits.
func (m *membership) runWorker(j job) {
	loop := m.cfg.Liveness.addWorker()
	defer m.cfg.Liveness.removeWorker(loop)
	for ok := true; ok; {
		loop.Begin()
		placed := m.abandonIfLost(j) || m.execute(j, loop)
		if placed {
			j, ok = m.nextJob(loop)
		} else {
			ok = false
		}
		loop.End()
	}
}

// following takes the next request that waits, or waits for one: a goroutine that
// has worked has the stack for it. False: nothing more is begun, or enough goroutines wait.
func (m *membership) nextJob(loop *turns.Loop) (job, bool) {
	j, ok, idle := m.takeQueuedOrIdle()
	if idle {
		loop.End()
		j, ok = <-m.handoff
		loop.Begin()
	}
	return j, ok
}

// queued takes the next request that waits, for the place of a goroutine that has ended another. If there is
// none, or a parked request gets the place, the goroutine counts as idle.
func (m *membership) takeQueuedOrIdle() (j job, ok, idle bool) {
	m.mu.Lock()
	defer m.unlock()
	if len(m.slotWaiters) == 0 {
		if j, ok = m.popQueue(); ok {
			return j, true, false
		}
	}
	m.releaseSlot()
	if m.slotsUsed+m.idleWorkers >= m.cfg.Concurrency {
		return j, false, false // those that are parked have goroutines beside these
	}
	m.idleWorkers++
	return j, false, true
}

// pop takes the first request of the queue. It resumes the session when half of the room is free again.
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

// drain begins nothing more and waits for what runs: for the grace, and then,
// with the handlers' contexts at an end, a little longer. It returns how many
// still run.
func (m *membership) drain(cancelHandlers context.CancelFunc) int {
	m.mu.Lock()
	m.closed = true
	close(m.handoff) // nothing is taken any more: the polling is over
	waiting := m.queue
	m.queue = nil
	m.unlock()
	for _, j := range waiting {
		m.cfg.Listener.abandoned(j.req)
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

// done lets go of a request that needs no more work, and says so to the session
// unless the stay is over. Both at once: a request that is delivered again, since
// its partition went and came back, must find either that it is still held and
// will be done, or that it is not.
func (m *membership) finish(at position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.requests, at)
	if m.sending.Err() == nil {
		m.session.Done(at.partition, at.offset)
	}
}

// abandon lets go of a request that is left to another instance.
func (m *membership) abandon(j job) {
	m.mu.Lock()
	delete(m.requests, j.at)
	m.mu.Unlock()
	m.cfg.Listener.abandoned(j.req)
}

// lost lets go of a request whose partition has gone to another instance.
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
		m.cfg.Listener.abandoned(j.req)
	}
	return gone
}

// inherited reports whether another instance may have begun a request before.
func (m *membership) mayHaveStarted(at position) bool {
	h, ok := m.session.(PartitionHolder)
	return ok && h.MayHaveStarted(at.partition, at.offset)
}

// errStillRunning is part of a stay's error.
func stillRunningError(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("agent: %d handlers ignore the end of their context; their requests go to another instance", n)
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
