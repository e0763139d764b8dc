package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
)

// consoleCluster implements console.Cluster: it answers from Kafka's groups and topics.
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
		if state.Members > 0 { // without members, committed circuit states are stale
			circuits, err := agentsession.Circuits(ctx, c.n.Admin, c.n.Kafka.Namespace.AgentGroup(name), c.n.Kafka.Namespace.Requests(name))
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

// circuitUnknown is the circuit of an agent whose members don't report one.
const circuitUnknown = "unknown"

// worstCircuit returns the worst circuit state that members report, by partition.
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

// schedulingOf returns for each partition its scheduler, the progress of a restore, and the lag of the inboxes.
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

// restoredBy returns the fraction of a partition that a member has restored; 1 if it reports no restore.
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
