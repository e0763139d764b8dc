package instance

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-run/waybill/scheduler"
)

// flows sums up how the workers of a process use the agents.
type flows struct {
	outstanding, bound, queued, silent *prometheus.GaugeVec

	mu sync.Mutex
	of map[string][]scheduler.AgentFlow // by owner
}

// take is what a worker says of its agents.
func (f *flows) take(owner string, agents []scheduler.AgentFlow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sums := map[string]scheduler.AgentFlow{}
	silent := map[string]int{}
	for _, a := range f.of[owner] {
		sums[a.Agent] = scheduler.AgentFlow{} // its share may be all that there was
	}
	f.of[owner] = agents
	for _, worker := range f.of {
		for _, a := range worker {
			s := sums[a.Agent]
			s.Outstanding, s.Limit, s.Queued = s.Outstanding+a.Outstanding, s.Limit+a.Limit, s.Queued+a.Queued
			sums[a.Agent] = s
			if a.Silent {
				silent[a.Agent]++
			}
		}
	}
	for agent, s := range sums {
		f.outstanding.WithLabelValues(agent).Set(float64(s.Outstanding))
		f.bound.WithLabelValues(agent).Set(float64(s.Limit))
		f.queued.WithLabelValues(agent).Set(float64(s.Queued))
		f.silent.WithLabelValues(agent).Set(float64(silent[agent]))
	}
}
