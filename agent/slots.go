package agent

import "time"

// A slot is the right to run one handler; a membership has Concurrency of them. A request that waits for a backoff
// or for a circuit is parked: it releases its slot and gets one for its next call, before requests that were not
// started yet. So the requests of a failing operation don't block those of others.

// parkedPerSlot bounds the parked requests, per slot. Each has a goroutine.
const parkedPerSlot = 4

// park releases the slot of a request. False: too many requests are parked, and it keeps the slot.
func (m *membership) park() bool {
	m.mu.Lock()
	defer m.unlock()
	if m.parked >= parkedPerSlot*m.cfg.Concurrency {
		return false
	}
	m.parked++
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
	if j, ok := m.popQueue(); ok {
		m.startWorker(j)
		return
	}
	m.slotsUsed--
}

// startWorker is separate from releaseSlot, which runs for each request, because its closure moves j to the heap.
func (m *membership) startWorker(j job) { m.workers.Go(func() { m.runWorker(j) }) }

// unpark gets a slot for a parked request within d. False: none was free, or the instance leaves the group.
func (m *membership) unpark(d time.Duration) bool {
	m.mu.Lock()
	if m.slotsUsed < m.cfg.Concurrency {
		m.slotsUsed++
		m.parked--
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
	m.parked--
	return true
}

// endParked is called when a request ends while it is parked.
func (m *membership) endParked() {
	m.mu.Lock()
	m.parked--
	m.mu.Unlock()
}
