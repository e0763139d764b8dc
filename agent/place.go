package agent

import "time"

// A place is the right to run one handler; a member has Concurrency of them. A request that waits, for a backoff
// or for a circuit, parks: it gives its place up and gets one again for its next call, before requests that were
// never begun. So requests of an operation that fails don't keep others from being called.

// parkedPerPlace bounds the parked requests, each of which has a goroutine, by the number of places.
const parkedPerPlace = 4

// park gives the place of a request up. False: too many have parked already, and it keeps the place.
func (m *member) park() bool {
	m.mu.Lock()
	defer m.unlock()
	if m.parked >= parkedPerPlace*m.cfg.Concurrency {
		return false
	}
	m.parked++
	m.vacate()
	return true
}

// vacate passes a place on: to a parked request that wants to be called, else to the next one of the queue.
// m.mu is held.
func (m *member) vacate() {
	if len(m.returning) > 0 {
		close(m.returning[0])
		m.returning = m.returning[1:]
		return
	}
	if j, ok := m.pop(); ok {
		m.serveBeside(j)
		return
	}
	m.running--
}

// serveBeside is apart from vacate, which is called for each request: what a goroutine is given is on the heap.
func (m *member) serveBeside(j job) { m.workers.Go(func() { m.serve(j) }) }

// unpark gets a place for a parked request within d. False: there was none, or the process leaves.
func (m *member) unpark(d time.Duration) bool {
	m.mu.Lock()
	if m.running < m.cfg.Concurrency {
		m.running++
		m.parked--
		m.unlock()
		return true
	}
	mine := make(chan struct{})
	m.returning = append(m.returning, mine)
	m.mu.Unlock()
	m.wait(d, mine)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.returning {
		if c == mine {
			m.returning = append(m.returning[:i:i], m.returning[i+1:]...)
			return false
		}
	}
	m.parked--
	return true
}

// endParked counts a parked request out that has ended.
func (m *member) endParked() {
	m.mu.Lock()
	m.parked--
	m.mu.Unlock()
}
