package agent

import "time"

// A slot is the right to run one handler; a membership has Concurrency of them. A request that waits for its next call
// is parked: it releases its slot and gets one for that call, before requests that were not started yet. So neither the
// requests of a failing operation nor work that goes on elsewhere block others.
//
// Each parked request is in memory and has a goroutine. So their number is bounded, for each reason:
//
//   - waitBackoff, waitPending: at their bound, no further request is started until one of them has ended. Running
//     requests still park, so that there may be Concurrency more.
//   - waitCircuit: at its bound, further requests don't park but reply. They must not stop requests of other operations.
const (
	parkedPerSlot = 4    // for a backoff, and for a circuit
	pendingMax    = 4096 // waitPending
)

// mayStart reports whether a queued request may be started. m.mu is held.
func (m *membership) mayStart() bool {
	return m.slotsUsed < m.cfg.Concurrency && m.hasRoom()
}

// hasRoom reports whether few enough requests are parked to start another one. m.mu is held.
func (m *membership) hasRoom() bool {
	return m.parked[waitBackoff] < parkedPerSlot*m.cfg.Concurrency && m.parked[waitPending] < pendingMax
}

// park releases the slot of a request. False: too many requests wait for circuits, and it keeps the slot.
func (m *membership) park(reason waitReason) bool {
	m.mu.Lock()
	defer m.unlock()
	if reason == waitCircuit && m.parked[reason] >= parkedPerSlot*m.cfg.Concurrency {
		return false
	}
	m.parked[reason]++
	m.releaseSlot()
	return true
}

// releaseSlot gives a slot to the first of slotWaiters, otherwise to the next queued request.
// m.mu is held.
func (m *membership) releaseSlot() {
	if len(m.slotWaiters) > 0 {
		close(m.slotWaiters[0])
		m.slotWaiters = m.slotWaiters[1:]
		return
	}
	m.slotsUsed--
	m.startQueued()
}

// startQueued starts queued requests. m.mu is held.
func (m *membership) startQueued() {
	for m.mayStart() {
		j, ok := m.popQueue()
		if !ok {
			return
		}
		m.startJob(j)
	}
}

// startJob executes a job on an idle worker, or on a new one. m.mu is held.
func (m *membership) startJob(j job) {
	m.slotsUsed++
	if m.idleWorkers > 0 {
		m.idleWorkers--
		m.handoff <- j // never blocks: it has room for every worker
		return
	}
	m.startWorker(j)
}

// startWorker is separate from startJob, which runs for each request, because its closure moves j to the heap.
func (m *membership) startWorker(j job) { m.workers.Go(func() { m.runWorker(j) }) }

// unpark gets a slot for a parked request within d. The request isn't parked any more. False: no slot was free, or the
// instance leaves the group.
func (m *membership) unpark(from waitReason, d time.Duration) bool {
	m.mu.Lock()
	m.parked[from]--
	if m.slotsUsed < m.cfg.Concurrency {
		m.slotsUsed++
		m.startQueued()
		m.unlock()
		return true
	}
	mine := make(chan struct{})
	m.slotWaiters = append(m.slotWaiters, mine)
	m.mu.Unlock()
	m.waitOrLeave(d, mine)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.slotWaiters {
		if c == mine {
			m.slotWaiters = append(m.slotWaiters[:i:i], m.slotWaiters[i+1:]...)
			return false
		}
	}
	return true
}

// endParked is called when a parked request ends.
func (m *membership) endParked(from waitReason) {
	m.mu.Lock()
	defer m.unlock()
	m.parked[from]--
	m.startQueued()
}
