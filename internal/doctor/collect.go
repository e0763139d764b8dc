package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/intakerun"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/registry"
)

// progressInterval is the time over which progress is measured. It exceeds the commit interval of every role (a
// supervisor commits every 5 s).
const progressInterval = 6 * time.Second

// recentWindow is the period for which dead letters and alerts are counted.
const recentWindow = time.Hour

// Collector observes one namespace. It only reads.
type Collector struct {
	Admin       *kafkaadmin.Admin
	Reader      *logreader.Restorer
	Namespace   events.Namespace
	ConsoleAddr string // where a local console listens, if one runs
	// FindConsole returns the URL of this cluster's console at an address; empty: none.
	FindConsole func(ctx context.Context, addr, clusterID string) string
}

// Collect observes the namespace. It takes progressInterval if records wait. Where nothing further can be observed, it
// returns what it has.
func (c *Collector) Collect(ctx context.Context) (o *Observation, err error) {
	o = &Observation{Namespace: c.Namespace}
	if o.Brokers, err = c.Admin.Brokers(ctx); err != nil {
		return nil, err
	}
	partitions, exists, err := c.Admin.TopicPartitions(ctx, c.Namespace.Events())
	if err != nil || !exists {
		return o, err
	}
	o.Exists = true
	if o.Replicas, err = c.Admin.ReplicaStatus(ctx); err != nil {
		return nil, err
	}
	if o.Leaderless, err = c.Admin.LeaderlessPartitions(ctx); err != nil || len(o.Leaderless[c.Namespace.Definitions()]) > 0 {
		return o, err
	}
	applied, err := registry.ListIfCreated(ctx, c.Admin, c.Namespace)
	if err != nil {
		return nil, err
	}
	o.Workflows, o.Unusable = registry.Usable(applied), registry.Unusable(applied)
	agents := registry.Agents(applied)
	if o.Topics, err = c.Admin.CheckTopics(ctx, agents...); err != nil {
		return nil, err
	}
	if o.Positions, err = c.Admin.InboxPositions(ctx); err != nil {
		return nil, err
	}
	if o.Activity, err = c.activity(ctx, agents, partitions); err != nil {
		return nil, err
	}
	uses, err := registry.Uses(ctx, c.Admin, c.Namespace, nil)
	if err != nil {
		return nil, err
	}
	o.Deprecated, o.Missing = registry.Deprecated(uses, applied), registry.Missing(uses, applied)
	if o.Intakes, err = intakerun.Views(ctx, c.Admin, c.Namespace); err != nil {
		return nil, err
	}
	if err := c.readSchedules(ctx, o); err != nil {
		return nil, err
	}
	if err := c.readBatches(ctx, o); err != nil {
		return nil, err
	}
	cluster, err := c.Admin.ClusterID(ctx)
	if err != nil {
		return nil, err
	}
	o.ConsoleAddr, o.Console = c.ConsoleAddr, c.FindConsole(ctx, c.ConsoleAddr, cluster)
	return o, c.countRecent(ctx, o)
}

// countRecent counts the dead letters and alerts of recentWindow.
func (c *Collector) countRecent(ctx context.Context, o *Observation) error {
	since := time.Now().Add(-recentWindow)
	topic := c.Namespace.Deadletters()
	err := c.readRecent(ctx, topic, since, o.Leaderless[topic], func(*events.Record) { o.Deadletters++ })
	if err != nil {
		return err
	}
	topic = c.Namespace.Alerts()
	return c.readRecent(ctx, topic, since, o.Leaderless[topic], func(r *events.Record) {
		if _, err := events.DecodeAlert(r); err != nil {
			o.InvalidAlerts++
		} else {
			o.Alerts++
		}
	})
}

// readRecent passes the records that were written to a topic since an instant to fn. It skips partitions
// without a leader and a missing topic. It reads the records because offsets also count transaction markers.
func (c *Collector) readRecent(ctx context.Context, topic string, since time.Time, leaderless []int32, fn func(*events.Record)) error {
	partitions, exists, err := c.Admin.TopicPartitions(ctx, topic)
	if err != nil || !exists {
		return err
	}
	led := make([]int32, 0, partitions)
	for p := range partitions {
		if !slices.Contains(leaderless, p) {
			led = append(led, p)
		}
	}
	_, err = c.Reader.ReadAll(ctx, topic, logreader.Range{Partitions: led, Since: since, ReuseBuffers: true}, func(rs []events.Record) error {
		for i := range rs {
			fn(&rs[i])
		}
		return nil
	}, nil)
	return err
}

// activity observes all groups and the ends of the log, and observes them again if there is a backlog.
func (c *Collector) activity(ctx context.Context, agents []string, partitions int32) (Activity, error) {
	first, err := c.observe(ctx, agents, partitions)
	if err != nil {
		return first, err
	}
	second := first
	if first.hasBacklog() {
		if backoff.Sleep(ctx, progressInterval) != nil {
			return first, ctx.Err()
		}
		if second, err = c.observe(ctx, agents, partitions); err != nil {
			return second, err
		}
	}
	second.compareWith(&first, c.Namespace.Inbox(events.Tasks))
	return second, nil
}

// observe describes all groups and reads their committed offsets once.
func (c *Collector) observe(ctx context.Context, agents []string, partitions int32) (a Activity, err error) {
	a = Activity{Agents: map[string]Group{}, ReadersHeldAt: map[int32]int64{}}
	for _, role := range []struct {
		into   *Group
		group  string
		topics []string
	}{
		{&a.Scheduler, c.Namespace.SchedulerGroup(), c.Namespace.InboxTopics()},
		{&a.Supervisor, c.Namespace.SupervisorGroup(), []string{c.Namespace.Events()}},
		{&a.Notifier, c.Namespace.NotifierGroup(), []string{c.Namespace.Notifications()}},
	} {
		if *role.into, err = c.group(ctx, role.group, role.topics, partitions); err != nil {
			return a, err
		}
	}
	if a.Restoring, err = c.restoring(ctx); err != nil {
		return a, err
	}
	if a.Unstable, err = c.Admin.UnstablePartitions(ctx, partitions); err != nil {
		return a, err
	}
	a.Hanging, a.HangingUnknown = c.Admin.Hanging(ctx)
	for _, name := range agents {
		if a.Agents[name], err = c.agentGroup(ctx, name); err != nil {
			return a, err
		}
	}
	ends, err := c.Admin.KnownEndOffsets(ctx, c.Namespace.Events())
	if err != nil {
		return a, err
	}
	committed, err := c.Admin.KnownCommittedEndOffsets(ctx, c.Namespace.Events())
	for p, end := range ends {
		if at, ok := committed[p]; ok && at < end {
			a.ReadersHeldAt[p] = at
		}
	}
	return a, err
}

// restoring returns the progress of schedulers that still restore, by partition.
func (c *Collector) restoring(ctx context.Context) (map[int32]float64, error) {
	restores, err := c.Admin.RestoreProgress(ctx)
	if err != nil || len(restores) == 0 {
		return nil, err
	}
	group, err := c.Admin.DescribeGroup(ctx, c.Namespace.SchedulerGroup())
	restoring := map[int32]float64{}
	for _, m := range group.Members {
		for _, p := range m.Partitions[c.Namespace.InboxTopics()[0]] {
			if restored := restores[p].RestoredBy(m.ID); restored < 1 {
				restoring[p] = restored
			}
		}
	}
	return restoring, err
}

func (c *Collector) agentGroup(ctx context.Context, name string) (g Group, err error) {
	if g, err = c.group(ctx, c.Namespace.AgentGroup(name), []string{c.Namespace.Requests(name)}, 0); err != nil || g.Members == 0 {
		return g, err
	}
	circuits, err := agentsession.Circuits(ctx, c.Admin, c.Namespace.AgentGroup(name), c.Namespace.Requests(name))
	g.Circuit = agent.WorstCircuit(circuits)
	return g, err
}

// group observes a consumer group of topics with that many partitions each. A missing topic is reported by the
// topic check, not here.
func (c *Collector) group(ctx context.Context, group string, topics []string, partitions int32) (g Group, err error) {
	state, err := c.Admin.DescribeGroup(ctx, group)
	if err != nil {
		return g, err
	}
	g.Members = len(state.Members)
	owned := map[int32]bool{}
	for _, m := range state.Members {
		for _, p := range m.Partitions[topics[0]] {
			owned[p] = true
		}
	}
	for p := range partitions {
		if !owned[p] {
			g.Unowned = append(g.Unowned, p)
		}
	}
	if g.Commits, err = c.Admin.Commits(ctx, group); err != nil {
		return g, err
	}
	lags, err := c.Admin.GroupLag(ctx, group, topics...)
	if err != nil {
		return g, err
	}
	g.Lags = map[string]map[int32]int64{}
	for topic, ps := range lags {
		g.Lags[topic] = map[int32]int64{}
		for p, lag := range ps {
			n := c.lagRecords(ctx, topic, p, g.Commits, lag)
			g.Lags[topic][p] = n
			if g.Lag += n; topic == c.Namespace.Inbox(events.Tasks) {
				g.Submissions += n
			}
		}
	}
	return g, nil
}

// lagReadMax bounds the lag, in offsets, whose records are counted. Transactions of killed processes leave a smaller
// lag.
const lagReadMax = 2000

// lagRecords counts the records within a group's lag in a partition. Markers and aborted records also have
// offsets; after a kill they may be the whole lag. It returns lag if the records can't be read.
func (c *Collector) lagRecords(ctx context.Context, topic string, p int32, commits map[string]map[int32]int64, lag int64) int64 {
	from, committed := commits[topic][p]
	if lag <= 0 || lag > lagReadMax || !committed || from < 0 {
		return lag
	}
	n, unread := int64(0), false
	incomplete := func() { unread = true }
	_, err := c.Reader.ReadAll(ctx, topic, logreader.Range{Partitions: []int32{p}, From: from, ReuseBuffers: true,
		Blocked: func(int32, int64, int64) { incomplete() }, Trimmed: func(int32, int64) { incomplete() },
		Corrupt: func(*logreader.CorruptError) { incomplete() }, Unavailable: func(int32) { incomplete() }},
		func(rs []events.Record) error { n += int64(len(rs)); return nil }, nil)
	if err != nil || unread {
		return lag
	}
	return n
}
