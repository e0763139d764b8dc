package instance

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-run/waybill/scheduler"
)

// agentGauges sums up, over the workers of a process, how they use each agent.
type agentGauges struct {
	outstanding, limit, queued, silent *prometheus.GaugeVec

	mu      sync.Mutex
	byOwner map[string][]scheduler.AgentFlow // workers by owner
}

// update records a worker's view of its agents and updates the gauges.
func (f *agentGauges) update(owner string, agents []scheduler.AgentFlow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sums := map[string]scheduler.AgentFlow{}
	silent := map[string]int{}
	for _, a := range f.byOwner[owner] {
		sums[a.Agent] = scheduler.AgentFlow{} // drops to zero if no worker has this agent any more
	}
	f.byOwner[owner] = agents
	for _, worker := range f.byOwner {
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
		f.limit.WithLabelValues(agent).Set(float64(s.Limit))
		f.queued.WithLabelValues(agent).Set(float64(s.Queued))
		f.silent.WithLabelValues(agent).Set(float64(silent[agent]))
	}
}
