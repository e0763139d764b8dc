package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

const (
	// agentPartitions of each request topic, as `waybill up` creates them.
	agentPartitions = 4
	// agentConcurrency is how many handlers of an agent run at once, if none blocks.
	agentConcurrency = 256
	// joinWithin bounds the time of the roles to join their groups.
	joinWithin = 30 * time.Second
	joinPoll   = 20 * time.Millisecond
	// deleteWithin bounds the deletion of what was created on a cluster.
	deleteWithin = 30 * time.Second
)

// neverOpen keeps circuits closed: unanswered attempts are intended here.
var neverOpen = agent.Breaker{Failures: math.MaxUint32}

// environment is a broker with a namespace of its own, and a directory.
type environment struct {
	cfg    kafka.Config
	broker *embedded.Broker // nil: an external cluster
	dir    string
	meter  *meter
	log    *slog.Logger

	verified int64 // events, according to the latest verification
}

// environmentOptions configure where to measure.
type environmentOptions struct {
	dir     string        // holds the log of an embedded broker, and the projections
	cluster *kafka.Config // nil: an embedded broker
	log     *slog.Logger
	hooks   []kafka.Hook
}

// openEnvironment starts a broker, or chooses an unused namespace of the cluster.
func openEnvironment(o environmentOptions) (*environment, error) {
	s := &environment{dir: o.dir, meter: &meter{}, log: o.log}
	if s.log == nil {
		s.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.cluster != nil {
		s.cfg = *o.cluster
		s.cfg.Namespace = events.Namespace("waybill-bench-" + uuid.NewString()[:8] + ".")
	} else {
		var err error
		if s.broker, err = embedded.Start(embedded.Options{DataDir: filepath.Join(o.dir, "kafka"), EndProcess: endProcess}); err != nil {
			return nil, err
		}
		s.cfg = s.broker.Config()
		s.cfg.Namespace = events.DefaultNamespace
	}
	s.cfg.ClientID = "waybill-bench"
	s.cfg.Hooks = append([]kafka.Hook{s.meter}, o.hooks...)
	return s, nil
}

// brokerKind names the broker.
func (s *environment) brokerKind() string {
	if s.broker != nil {
		return "embedded"
	}
	return "kafka"
}

// client creates a client of the load generator.
func (s *environment) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(s.cfg.ClientOptions(), opts...)...)
}

// prepare creates the topics, and writes the definitions before any role reads them.
func (s *environment) prepare(ctx context.Context, partitions int32, definitions ...*workflow.Definition) error {
	admin, err := kafkaadmin.Open(s.cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := instance.CheckReachable(ctx, admin); err != nil {
		return err
	}
	topics := kafkaadmin.CreateTopicsOptions{Partitions: partitions, Agents: map[string]int32{}}
	for _, d := range definitions {
		for _, name := range d.Agents() {
			topics.Agents[name] = agentPartitions
		}
	}
	if _, err := admin.CreateTopics(ctx, topics); err != nil {
		return fmt.Errorf("create the topics: %w", err)
	}
	producer, err := kafka.OpenProducer(s.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, d := range definitions {
		r := events.Record{Topic: s.cfg.Namespace.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
			Headers: events.CloudHeaders(events.TypeDefinition, string(s.cfg.Namespace)+"workflow", d.Key())}
		if err := producer.Send(ctx, r); err != nil {
			return fmt.Errorf("write the definition: %w", err)
		}
	}
	return nil
}

// close stops the broker, or deletes the namespace.
func (s *environment) close() error {
	if s.broker != nil {
		return s.broker.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteWithin)
	defer cancel()
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := deleteAll(ctx, client, s.cfg.Namespace); err != nil {
		return fmt.Errorf("delete what the bench created (%s*): %w; delete it by hand", s.cfg.Namespace, err)
	}
	return nil
}

// deleteAll deletes the topics and groups of a namespace of the bench.
func deleteAll(ctx context.Context, client *kgo.Client, ns events.Namespace) error {
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list the topics: %w", err)
	}
	if names := slices.DeleteFunc(topics.Names(), func(name string) bool { return !ns.Owns(name) }); len(names) > 0 {
		answers, err := admin.DeleteTopics(ctx, names...)
		if err = errors.Join(err, answers.Error()); err != nil {
			return fmt.Errorf("delete the topics: %w", err)
		}
	}
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("list the groups: %w", err)
	}
	if names := slices.DeleteFunc(groups.Groups(), func(name string) bool { return !ns.Owns(name) }); len(names) > 0 {
		answers, err := admin.DeleteGroups(ctx, names...)
		if err = errors.Join(err, answers.Error()); err != nil {
			return fmt.Errorf("delete the groups: %w", err)
		}
	}
	return nil
}

// roles are the roles of a run.
type roles struct {
	workers     int
	parked      bool // tasks wait intentionally for an agent that doesn't answer
	supervisor  bool
	index       bool
	agents      map[string]agent.Handler
	concurrency int
	capacity    map[string]int // capacities of agents; nil: they are measured
	seams       instance.Seams
	// before, if set, is called before the first role starts.
	before func(ctx context.Context, n *instance.Instance) error
}

// runRoles runs the roles while drive runs. When it returns, they have ended.
func (s *environment) runRoles(ctx context.Context, r roles, drive func(ctx context.Context, n *instance.Instance) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.seams.Worker == nil {
		r.seams.Worker = func(client scheduler.Client) scheduler.Client { return &countedWorker{client, s.meter} }
	}
	name := "bench" // a static group member, as in `up`
	if s.broker == nil {
		name = "" // a dynamic member leaves at once, so that the groups can be deleted
	}
	n, err := instance.Open(ctx, s.cfg, instance.Config{Name: name, EndProcess: endProcess, DataDir: filepath.Join(s.dir, "state"), Metrics: instance.NewMetrics(),
		Log: s.log, OwnClock: s.broker != nil, Seams: r.seams})
	if err != nil {
		return err
	}
	defer n.Close()
	driven := context.Canceled // until drive has run
	err = n.Run(ctx, func(ctx context.Context) error {
		defer cancel()
		if err := r.start(ctx, n); err != nil {
			return err
		}
		driven = drive(ctx, n)
		return driven
	})
	if driven == nil || err == nil || errors.Is(err, context.Canceled) {
		return driven // the roles ended because drive did
	}
	return err
}

func (r *roles) start(ctx context.Context, n *instance.Instance) error {
	if r.before != nil {
		if err := r.before(ctx, n); err != nil {
			return err
		}
	}
	o := instance.SchedulerOptions{Workers: r.workers, AgentCapacity: r.capacity, ObserveCapacity: true}
	if r.parked {
		o.MaxRunnable, o.ObserveCapacity = unbounded, false
	}
	if err := n.StartScheduler(ctx, o); err != nil {
		return err
	}
	if r.supervisor {
		if err := n.StartSupervisor(ctx, 0); err != nil {
			return err
		}
	}
	if r.index {
		if _, err := n.StartIndex(ctx, nil); err != nil {
			return err
		}
	}
	for name, h := range r.agents {
		n.StartAgent(ctx, name, r.concurrency, neverOpen, h)
	}
	return nil
}

// joined returns a drive for runRoles that begins when every role has joined its group.
func (r *roles) joined(drive func(context.Context, *instance.Instance) error) func(context.Context, *instance.Instance) error {
	return func(ctx context.Context, n *instance.Instance) error {
		if err := r.awaitJoined(ctx, n); err != nil {
			return err
		}
		return drive(ctx, n)
	}
}

// awaitJoined returns when every role has joined its group, so that no rebalance follows.
func (r *roles) awaitJoined(ctx context.Context, n *instance.Instance) error {
	ns := n.Kafka.Namespace
	groups := []string{ns.SchedulerGroup()}
	if r.supervisor {
		groups = append(groups, ns.SupervisorGroup())
	}
	for name := range r.agents {
		groups = append(groups, ns.AgentGroup(name))
	}
	return awaitGroupsStable(ctx, n.Admin, groups)
}

// awaitGroupsStable returns when the groups are stable. A cluster without groups needs a moment until it has a
// coordinator.
func awaitGroupsStable(ctx context.Context, admin *kafkaadmin.Admin, groups []string) error {
	waiting, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	for len(groups) > 0 {
		state, err := admin.DescribeGroup(waiting, groups[0])
		if err == nil && state.State == "Stable" {
			groups = groups[1:]
			continue
		}
		select { // Kafka doesn't notify of a stable group
		case <-time.After(joinPoll):
		case <-waiting.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.Join(fmt.Errorf("group %s is not stable after %s: %q", groups[0], joinWithin, state.State), err)
		}
	}
	return nil
}

// endProcess ends the process because a disk failed.
func endProcess(err error) {
	fmt.Fprintln(os.Stderr, "waybill: "+err.Error())
	os.Exit(1)
}
