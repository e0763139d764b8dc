package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/registry"
)

// progressInterval is the time over which the doctor measures progress. It exceeds the commit interval of every
// role (a supervisor commits every 5 s).
const progressInterval = 6 * time.Second

// recentWindow is the period for which dead letters and alerts are counted.
const recentWindow = time.Hour

type doctorOptions struct {
	connection
	output
}

func newDoctor() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check brokers, topics, workflows and consumer groups, and print how to fix faults",
		Long: `Check brokers, topics, workflows, consumer groups, agents and open transactions. Print what was found, and
how to fix what is wrong. Run it first when orders wait. It writes nothing.

Groups are checked twice, 6 s apart, to see whether they make progress. A fault means that orders wait or
could be lost: exit code 1. A note is not a fault.`,
		Example: `  waybill doctor --brokers kafka:9092`,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, &o) },
	}
	o.connection.flags(cmd)
	o.output.flags(cmd)
	return cmd
}

func runDoctor(cmd *cobra.Command, o *doctorOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	admin, err := openAdmin(cmd, &o.connection)
	if err != nil {
		return err
	}
	defer admin.Close()
	cfg, err := o.kafka("waybill")
	if err != nil {
		return err
	}
	reader, err := kafka.OpenRestorer(cfg, nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	d := doctor{admin, reader, events.Namespace(o.namespace)}
	c, err := d.examine(cmd.Context())
	if err != nil {
		return err
	}
	symptoms := diagnose(c)
	err = printList(&o.output, cmd.OutOrStdout(), "CHECK RESULT FOUND FIX", symptoms, func(s symptom) []string {
		return []string{s.Check, s.Result, s.Found, s.Fix}
	})
	if err != nil {
		return err
	}
	faults := 0
	for _, s := range symptoms {
		if s.Result == fault {
			faults++
		}
	}
	if faults > 0 {
		return fmt.Errorf("%d faults: %w", faults, errSilent)
	}
	return nil
}

// doctor examines one namespace.
type doctor struct {
	admin  *kafka.Admin
	reader *kafka.Restorer
	ns     events.Namespace
}

func (d *doctor) examine(ctx context.Context) (c *observation, err error) {
	c = &observation{namespace: string(d.ns)}
	if c.brokers, err = d.admin.Brokers(ctx); err != nil {
		return nil, err
	}
	partitions, there, err := d.admin.TopicPartitions(ctx, d.ns.Events())
	if err != nil || !there {
		return c, err
	}
	c.there = true
	if c.copies, err = d.admin.ReplicaStatus(ctx); err != nil {
		return nil, err
	}
	if c.leaderless, err = d.admin.LeaderlessPartitions(ctx); err != nil || len(c.leaderless[d.ns.Definitions()]) > 0 {
		return c, err // nothing else can be judged without definitions
	}
	format, err := d.admin.Format(ctx)
	if err != nil && !errors.Is(err, kafka.ErrNoFormat) { // a topic finding reports a missing format
		return nil, err
	}
	if c.history = format.History; c.history {
		return c, nil
	}
	agents, err := d.definitions(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.topics, err = d.admin.CheckTopics(ctx, agents...); err != nil {
		return nil, err
	}
	if c.positions, err = d.admin.InboxPositions(ctx); err != nil {
		return nil, err
	}
	if err := d.groups(ctx, c, agents, partitions); err != nil {
		return nil, err
	}
	cluster, err := d.admin.ClusterID(ctx)
	if err != nil {
		return nil, err
	}
	c.console = findConsole(ctx, defaultConsole, console.System{ClusterID: cluster, Namespace: d.ns})
	since := time.Now().Add(-recentWindow)
	err = d.readRecent(ctx, d.ns.Deadletters(), since, c.leaderless[d.ns.Deadletters()], func(*events.Record) { c.deadletters++ })
	if err != nil {
		return nil, err
	}
	return c, d.readRecent(ctx, d.ns.Alerts(), since, c.leaderless[d.ns.Alerts()], func(r *events.Record) {
		if _, err := events.DecodeAlert(r); err != nil {
			c.invalidAlerts++
		} else {
			c.alerts++
		}
	})
}

// definitions records the usable workflows, and returns the agents that they name.
func (d *doctor) definitions(ctx context.Context, c *observation) (agents []string, err error) {
	applied, err := registry.ListIfCreated(ctx, d.admin, d.ns)
	c.workflows = registry.Usable(applied)
	return registry.Agents(applied), err
}

// readRecent passes the records that were written to a topic since an instant to fn. It skips partitions
// without a leader and a missing topic. It reads the records because offsets also count transaction markers.
func (d *doctor) readRecent(ctx context.Context, topic string, since time.Time, leaderless []int32, fn func(*events.Record)) error {
	partitions, there, err := d.admin.TopicPartitions(ctx, topic)
	if err != nil || !there {
		return err
	}
	led := make([]int32, 0, partitions)
	for p := range partitions {
		if !slices.Contains(leaderless, p) {
			led = append(led, p)
		}
	}
	_, err = d.reader.ReadAll(ctx, topic, kafka.Range{Partitions: led, Since: since, ReuseBuffers: true}, func(rs []events.Record) error {
		for i := range rs {
			fn(&rs[i])
		}
		return nil
	}, nil)
	return err
}

// groups observes all groups and the ends of the log, and observes them again if there is a backlog.
func (d *doctor) groups(ctx context.Context, c *observation, agents []string, partitions int32) error {
	look := func() (*observation, error) { return d.observe(ctx, agents, partitions) }
	first, err := look()
	if err != nil {
		return err
	}
	second := first
	if first.hasBacklog() {
		select {
		case <-time.After(progressInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
		if second, err = look(); err != nil {
			return err
		}
	}
	second.compareWith(first)
	c.scheduler, c.supervisor, c.notifier = second.scheduler, second.supervisor, second.notifier
	c.agents, c.held, c.restoring = second.agents, second.held, second.restoring
	c.hanging, c.hangingUnknown, c.unstable = second.hanging, second.hangingUnknown, second.unstable
	return nil
}

// observe describes all groups and reads their committed offsets once.
func (d *doctor) observe(ctx context.Context, agents []string, partitions int32) (c *observation, err error) {
	c = &observation{namespace: string(d.ns), agents: map[string]groupObservation{}, held: map[int32]int64{}}
	for _, role := range []struct {
		into   *groupObservation
		group  string
		topics []string
	}{
		{&c.scheduler, d.ns.SchedulerGroup(), d.ns.InboxTopics()},
		{&c.supervisor, d.ns.SupervisorGroup(), []string{d.ns.Events()}},
		{&c.notifier, d.ns.NotifierGroup(), []string{d.ns.Notifications()}},
	} {
		if *role.into, err = d.group(ctx, role.group, role.topics, partitions); err != nil {
			return nil, err
		}
	}
	if c.restoring, err = d.restoring(ctx); err != nil {
		return nil, err
	}
	if c.unstable, err = d.admin.UnstablePartitions(ctx, partitions); err != nil {
		return nil, err
	}
	c.hanging, c.hangingUnknown = d.admin.Hanging(ctx)
	for _, name := range agents {
		if c.agents[name], err = d.agent(ctx, name); err != nil {
			return nil, err
		}
	}
	ends, err := d.admin.KnownEndOffsets(ctx, d.ns.Events())
	if err != nil {
		return nil, err
	}
	committed, err := d.admin.KnownCommittedEndOffsets(ctx, d.ns.Events())
	for p, end := range ends {
		if at, ok := committed[p]; ok && at < end {
			c.held[p] = at
		}
	}
	return c, err
}

// restoring returns the progress of schedulers that still restore, by partition.
func (d *doctor) restoring(ctx context.Context) (map[int32]float64, error) {
	restores, err := d.admin.RestoreProgress(ctx)
	if err != nil || len(restores) == 0 {
		return nil, err
	}
	group, err := d.admin.DescribeGroup(ctx, d.ns.SchedulerGroup())
	restoring := map[int32]float64{}
	for p, s := range schedulingOf(group.Members, restores, nil, d.ns.InboxTopics()) {
		if s.Restored < 1 {
			restoring[p] = s.Restored
		}
	}
	return restoring, err
}

func (d *doctor) agent(ctx context.Context, name string) (g groupObservation, err error) {
	if g, err = d.group(ctx, d.ns.AgentGroup(name), []string{d.ns.Requests(name)}, 0); err != nil || g.members == 0 {
		return g, err
	}
	circuits, err := agentsession.Circuits(ctx, d.admin, d.ns.AgentGroup(name), d.ns.Requests(name))
	g.circuit = worstCircuit(circuits)
	return g, err
}

// group observes a consumer group of topics with that many partitions each. A missing topic is reported by the
// topic check, not here.
func (d *doctor) group(ctx context.Context, group string, topics []string, partitions int32) (g groupObservation, err error) {
	state, err := d.admin.DescribeGroup(ctx, group)
	if err != nil {
		return g, err
	}
	g.members = len(state.Members)
	owned := map[int32]bool{}
	for _, m := range state.Members {
		for _, p := range m.Partitions[topics[0]] {
			owned[p] = true
		}
	}
	for p := range partitions {
		if !owned[p] {
			g.unowned = append(g.unowned, p)
		}
	}
	if g.commits, err = d.admin.Commits(ctx, group); err != nil {
		return g, err
	}
	lags, err := d.admin.GroupLag(ctx, group, topics...)
	if err != nil {
		return g, err
	}
	g.waits = map[string]map[int32]int64{}
	for topic, ps := range lags {
		g.waits[topic] = map[int32]int64{}
		for p, lag := range ps {
			n := d.lagRecords(ctx, topic, p, g.commits, lag)
			g.waits[topic][p] = n
			if g.lag += n; topic == d.ns.Inbox(events.Tasks) {
				g.submissions += n
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
func (d *doctor) lagRecords(ctx context.Context, topic string, p int32, commits map[string]map[int32]int64, lag int64) int64 {
	from, committed := commits[topic][p]
	if lag <= 0 || lag > lagReadMax || !committed || from < 0 {
		return lag
	}
	n, unread := int64(0), false
	incomplete := func() { unread = true }
	_, err := d.reader.ReadAll(ctx, topic, kafka.Range{Partitions: []int32{p}, From: from, ReuseBuffers: true,
		Blocked: func(int32, int64, int64) { incomplete() }, Trimmed: func(int32, int64) { incomplete() },
		Corrupt: func(*kafka.CorruptError) { incomplete() }, Unavailable: func(int32) { incomplete() }},
		func(rs []events.Record) error { n += int64(len(rs)); return nil }, nil)
	if err != nil || unread {
		return lag
	}
	return n
}
