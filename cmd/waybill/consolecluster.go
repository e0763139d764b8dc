package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
)

// consoleCluster is what Kafka knows, as a console asks for it.
type consoleCluster struct {
	n           *instance.Instance
	definitions *scheduler.CompiledDefinitions
}

func (c *consoleCluster) Agents(ctx context.Context) ([]console.AgentView, error) {
	topics, _, err := c.n.Admin.RequestTopics(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]console.AgentView, 0, len(topics))
	for name, partitions := range topics {
		state, err := c.Agent(ctx, name)
		if err != nil {
			return nil, err
		}
		circuit := circuitUnknown
		if state.Members > 0 { // what others left behind says nothing of now
			circuits, err := c.n.Admin.Circuits(ctx, c.n.Kafka.Namespace.AgentGroup(name), c.n.Kafka.Namespace.Requests(name))
			if err != nil {
				return nil, err
			}
			circuit = worstCircuit(circuits)
		}
		list = append(list, console.AgentView{Agent: name, Partitions: partitions, Members: state.Members, Lag: state.Lag, Circuit: circuit})
	}
	slices.SortFunc(list, func(a, b console.AgentView) int { return cmp.Compare(a.Agent, b.Agent) })
	return list, nil
}

// circuitUnknown is the circuit of an agent whose members say nothing of it.
const circuitUnknown = "unknown"

// worstCircuit is the worst of those that members have shown, by partition.
func worstCircuit(shown map[int32]string) string {
	worst := circuitUnknown
	for _, state := range []string{agent.CircuitClosed, agent.CircuitHalfOpen, agent.CircuitOpen} {
		for _, s := range shown {
			if s == state {
				worst = state
			}
		}
	}
	return worst
}

func (c *consoleCluster) Agent(ctx context.Context, name string) (replay.AgentState, error) {
	return agentState(ctx, c.n.Admin, c.n.Kafka.Namespace, name)
}

func (c *consoleCluster) Scheduling(ctx context.Context) (map[int32]console.Scheduling, error) {
	ns := c.n.Kafka.Namespace
	group, err := c.n.Admin.DescribeGroup(ctx, ns.SchedulerGroup())
	if err != nil {
		return nil, err
	}
	lags, err := c.n.Admin.GroupLag(ctx, ns.SchedulerGroup())
	if err != nil {
		return nil, err
	}
	restores, err := c.n.Admin.RestoreProgress(ctx)
	if err != nil {
		return nil, err
	}
	return schedulingOf(group.Members, restores, lags, ns.InboxTopics()), nil
}

// schedulingOf says of each partition who has it, how far that one is, and what waits in the
// inboxes.
func schedulingOf(members []kafka.Member, restores map[int32]kafka.RestoreProgress, lags map[string]map[int32]int64, inboxes []string) map[int32]console.Scheduling {
	of := map[int32]console.Scheduling{}
	for _, topic := range inboxes {
		for p, lag := range lags[topic] {
			s := of[p]
			s.Lag += lag
			of[p] = s
		}
	}
	for _, m := range members {
		for _, p := range m.Partitions[inboxes[0]] {
			s := of[p]
			s.Scheduler, s.Restored = cmp.Or(m.Owner, m.ID), restoredBy(m.ID, restores[p])
			of[p] = s
		}
	}
	return of
}

// restoredBy is how much of its restore a member of the scheduler group has done, as far as it
// has said anything of one.
func restoredBy(member string, r kafka.RestoreProgress) float64 {
	if r.Member != member || r.Next >= r.End {
		return 1
	}
	return float64(r.Next) / float64(r.End)
}

func (c *consoleCluster) ReadWorkflows(ctx context.Context) error {
	_, err := c.n.Catalog(ctx)
	return err
}

func (c *consoleCluster) Workflows() []console.Workflow {
	var list []console.Workflow
	for _, d := range c.definitions.All() {
		w := console.Workflow{Name: d.Name, Version: d.Version, Agents: d.Agents(), Steps: make([]string, len(d.Steps)), Body: d.JSON()}
		for i := range d.Steps {
			w.Steps[i] = d.Steps[i].ID
		}
		list = append(list, w)
	}
	return list
}
