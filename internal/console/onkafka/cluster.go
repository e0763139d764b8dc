package onkafka

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// Groups is the part of console.Cluster that answers from Kafka's groups and topics.
type Groups struct {
	Admin     *kafkaadmin.Admin
	Namespace events.Namespace
}

// Cluster implements console.Cluster for a running instance. It also has the definitions.
type Cluster struct {
	Groups
	instance    *instance.Instance
	definitions *scheduler.CompiledDefinitions
}

// NewCluster returns the cluster of an instance.
func NewCluster(n *instance.Instance, definitions *scheduler.CompiledDefinitions) *Cluster {
	return &Cluster{Groups{n.Admin, n.Kafka.Namespace}, n, definitions}
}

func (c *Groups) Agents(ctx context.Context) ([]consoleapi.Agent, error) {
	topics, _, err := c.Admin.RequestTopics(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]consoleapi.Agent, 0, len(topics))
	for name, partitions := range topics {
		list = append(list, consoleapi.Agent{Agent: name, Partitions: partitions})
	}
	slices.SortFunc(list, func(a, b consoleapi.Agent) int { return cmp.Compare(a.Agent, b.Agent) })
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(agentsAtOnce)
	for i := range list {
		asking.Go(func() error { return c.describeAgent(ctx, &list[i]) })
	}
	return list, asking.Wait()
}

// agentsAtOnce bounds the groups of agents that are asked for in parallel.
const agentsAtOnce = 8

// describeAgent sets the members, lag and circuit of an agent.
func (c *Groups) describeAgent(ctx context.Context, a *consoleapi.Agent) error {
	state, err := c.Agent(ctx, a.Agent)
	if err != nil {
		return err
	}
	a.Members, a.Lag, a.Circuit = state.Members, state.Lag, agent.CircuitUnknown
	if state.Members == 0 {
		return nil // committed circuit states are stale
	}
	circuits, err := agentsession.Circuits(ctx, c.Admin, c.Namespace.AgentGroup(a.Agent), c.Namespace.Requests(a.Agent))
	if err == nil {
		a.Circuit = agent.WorstCircuit(circuits)
	}
	return err
}

func (c *Groups) Agent(ctx context.Context, name string) (replay.AgentState, error) {
	return AgentState(ctx, c.Admin, c.Namespace, name)
}

// AgentState returns the members and the lag of an agent's consumer group.
func AgentState(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace, name string) (a replay.AgentState, err error) {
	state, err := admin.DescribeGroup(ctx, ns.AgentGroup(name))
	if err != nil {
		return a, err
	}
	lags, err := admin.GroupLag(ctx, ns.AgentGroup(name), ns.Requests(name))
	if err != nil {
		return a, err
	}
	a.Members, a.Lags = len(state.Members), lags[ns.Requests(name)]
	for _, lag := range a.Lags {
		a.Lag += lag
	}
	return a, nil
}

func (c *Groups) Scheduling(ctx context.Context) (map[int32]console.Scheduling, error) {
	ns := c.Namespace
	var (
		group    kafkaadmin.GroupState
		lags     map[string]map[int32]int64
		restores map[int32]kafkaadmin.RestoreProgress
	)
	asking, ctx := errgroup.WithContext(ctx)
	asking.Go(func() (err error) { group, err = c.Admin.DescribeGroup(ctx, ns.SchedulerGroup()); return err })
	asking.Go(func() (err error) { lags, err = c.Admin.GroupLag(ctx, ns.SchedulerGroup()); return err })
	asking.Go(func() (err error) { restores, err = c.Admin.RestoreProgress(ctx); return err })
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	return schedulingOf(group.Members, restores, lags, ns.InboxTopics()), nil
}

// schedulingOf returns for each partition its scheduler, the progress of a restore, and the lag of the inboxes.
func schedulingOf(members []kafkaadmin.Member, restores map[int32]kafkaadmin.RestoreProgress, lags map[string]map[int32]int64, inboxes []string) map[int32]console.Scheduling {
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
			s.Scheduler, s.Restored = cmp.Or(m.Owner, m.ID), restores[p].RestoredBy(m.ID)
			of[p] = s
		}
	}
	return of
}

func (c *Cluster) ReadWorkflows(ctx context.Context) error {
	_, err := c.instance.Catalog(ctx)
	return err
}

func (c *Cluster) ApplyDefinition(ctx context.Context, d *workflow.Definition, by events.By) (existed bool, err error) {
	existed, err = registry.ApplyBy(ctx, c.instance.Kafka, d, by)
	if errors.Is(err, registry.ErrConflict) {
		err = &versionExistsError{err}
	}
	return existed, err
}

// versionExistsError is a console.ErrVersionExists with the message of the registry.
type versionExistsError struct{ error }

func (*versionExistsError) Is(target error) bool { return target == console.ErrVersionExists }

func (c *Cluster) Definition(name string, version int) (d *workflow.Definition, deleted bool) {
	return c.definitions.Definition(name, version)
}

func (c *Cluster) Workflows() []console.Workflow {
	var list []console.Workflow
	for _, d := range c.definitions.All() {
		w := console.WorkflowOf(d)
		w.Deprecated = c.definitions.Deprecation(d.Name, d.Version).View()
		list = append(list, w)
	}
	return list
}
