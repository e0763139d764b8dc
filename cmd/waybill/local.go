package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/workflow"
)

// local is the whole system in one process, on the embedded broker. `demo` and `up` run it.
type local struct {
	*instance.Instance
	broker  *embedded.Broker
	world   *demo.World // nil: no simulated services
	console string      // its URL; empty: none
}

// localOptions configure a local system.
type localOptions struct {
	dataDir     string
	listen      string // address for other clients; empty: none
	partitions  int32  // 0: as many as the log has, or the default
	definitions []*workflow.Definition
	demo        bool
	ledger      string
	concurrency int // of each simulated agent
	scheduler   instance.SchedulerOptions
	session     time.Duration // 0: the defaults
	transaction time.Duration
	log         *slog.Logger
	metrics     *instance.Metrics
	observe     func([]events.Record) // receives the records that the index reads; may be nil
	console     *consoleFlags         // nil: none
	anyPort     bool                  // use any port if the console's is taken
}

// noBreaker disables circuit breakers. The demo's services fail for certain cards only; an open circuit would
// delay the other orders.
var noBreaker = agent.Breaker{Failures: math.MaxUint32}

// localAgentPartitions is the number of partitions of each request topic in a local system.
const localAgentPartitions = 4

// kafkaDir is the directory of the embedded broker's log within --data-dir.
func kafkaDir(dataDir string) string { return filepath.Join(dataDir, "kafka") }

// startLocal starts the broker, creates the topics and applies the definitions. Other clients can't connect
// yet.
func startLocal(ctx context.Context, o localOptions) (*local, error) {
	broker, err := embedded.Start(embedded.Options{DataDir: kafkaDir(o.dataDir), Listen: o.listen, Partitions: o.partitions,
		WriteFailed: func(err error) { o.log.Error("a write was refused", "error", err) }})
	if err != nil {
		return nil, err
	}
	l := &local{broker: broker}
	if err := l.prepare(ctx, o); err != nil {
		return nil, errors.Join(err, broker.Close())
	}
	return l, nil
}

func (l *local) prepare(ctx context.Context, o localOptions) error {
	cfg := l.broker.Config()
	cfg.Namespace, cfg.ClientID = events.DefaultNamespace, "waybill"
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	topics := kafka.CreateTopicsOptions{Partitions: o.partitions, Agents: map[string]int32{}}
	for _, d := range o.definitions {
		for _, a := range d.Agents() {
			topics.Agents[a] = localAgentPartitions
		}
	}
	if _, err := admin.CreateTopics(ctx, topics); err != nil {
		return fmt.Errorf("create the topics: %w", err)
	}
	l.Instance, err = instance.Open(ctx, cfg, instance.Config{Name: "local", DataDir: filepath.Join(o.dataDir, "state"), Metrics: o.metrics, Log: o.log,
		Session: o.session, Transaction: o.transaction, OwnClock: true})
	if err != nil {
		return err
	}
	for _, d := range o.definitions {
		if _, err := registry.Apply(ctx, l.Kafka, d); err != nil {
			return err
		}
	}
	if o.demo {
		l.world, err = demo.NewWorld(o.ledger)
	}
	return err
}

// startRoles starts every role on the node.
func (l *local) startRoles(ctx context.Context, o localOptions) error {
	if err := l.StartScheduler(ctx, o.scheduler); err != nil {
		return err
	}
	if err := l.StartSupervisor(ctx, 0); err != nil {
		return err
	}
	if err := l.startIndex(ctx, o); err != nil {
		return err
	}
	if l.world == nil {
		return nil
	}
	for _, name := range demo.Services {
		l.StartAgent(ctx, name, o.concurrency, noBreaker, l.world.Handler(name))
	}
	return nil
}

// startIndex starts the index, within a console if one is configured.
func (l *local) startIndex(ctx context.Context, o localOptions) (err error) {
	if o.console == nil {
		_, err = l.StartIndex(ctx, o.observe)
		return err
	}
	l.console, err = o.console.start(ctx, l.Instance, o.anyPort, o.observe)
	return err
}

// joinTimeout bounds the time in which the roles of one process join their groups.
const joinTimeout = 30 * time.Second

// joined returns when every role is a member of its group, so that no later rebalance delays work.
func (l *local) joined(ctx context.Context) error {
	ns := l.Kafka.Namespace
	groups := []string{ns.SchedulerGroup(), ns.SupervisorGroup()}
	if l.world != nil {
		for _, name := range demo.Services {
			groups = append(groups, ns.AgentGroup(name))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for len(groups) > 0 {
		state, err := l.Admin.DescribeGroup(ctx, groups[0])
		switch {
		case err != nil:
			return fmt.Errorf("wait for group %s: %w", groups[0], err)
		case state.State == "Stable":
			groups = groups[1:]
			continue
		}
		select { // Kafka has no notification for a stable group
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("group %s is %s after %s: %w", groups[0], state.State, joinTimeout, ctx.Err())
		}
	}
	return nil
}

func (l *local) close() error {
	var err error
	if l.world != nil {
		err = l.world.Close()
	}
	l.Instance.Close()
	return errors.Join(err, l.broker.Close())
}

// temporaryDir creates a folder that is removed when the process ends.
func temporaryDir() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "waybill-demo-"); err != nil {
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir) // best effort: the system cleans its temporary folder
	}, nil
}
