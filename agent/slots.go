package agent

import "time"

// A place is the right to run one handler; a member has Concurrency of them. A request that waits, for a backoff
// or for a circuit, parks: it gives its place up and gets one again for its next call, before requests that were
// never begun. So requests of an operation that fails don't keep others from being called.

// parkedPerSlot bounds the parked requests, each of which has a goroutine, by the number of places.
const parkedPerSlot = 4

// park gives the place of a request up. False: too many have parked already, and it keeps the place.
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

// vacate passes a place on: to a parked request that wants to be called, else to the next one of the queue.
// m.mu is held.
func (m *membership) releaseSlot() {
	if len(m.slotWaiters) > 0 {
		close(m.slotWaiters[0])
		m.slotWaiters = m.slotWaiters[1:]
		return
	}
	if j, ok := m.popQueue(); ok {
		m.workers.Go(func() { m.runWorker(j) })
		return
	}
	m.slotsUsed--
}

// unpark gets a place for a parked request within d. False: there was none, or the process leaves.
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

// endParked counts a parked request out that has ended.
func (m *membership) endParked() {
	m.mu.Lock()
	m.parked--
	m.mu.Unlock()
}
