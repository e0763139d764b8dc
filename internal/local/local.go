package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/workflow"
)

// Options configure a System.
type Options struct {
	DataDir     string
	Listen      string // address for other clients; empty: none
	Partitions  int32  // 0: as many as the log has, or the default
	Definitions []*workflow.Definition
	Agents      map[string]agent.Handler // agents to run in the process, by name
	Concurrency int                      // of each of them
	Scheduler   instance.SchedulerOptions
	Intakes     instance.IntakeOptions
	Log         *slog.Logger
	Metrics     *instance.Metrics
	// EndProcess ends the process after a disk failed; see instance.Config. If it isn't the disk of the broker's log, the
	// broker was closed before.
	EndProcess func(error)
	// StartIndex starts the index, alone or within a console, and returns the console's URL; empty: none.
	StartIndex func(context.Context, *instance.Instance) (console string, err error)
}

// System is the whole system in one process.
type System struct {
	*instance.Instance
	Broker  *embedded.Broker
	Console string       // its URL, once the roles are started; empty: none
	Log     *slog.Logger // Options.Log, which is silent once a disk has failed
	options Options
	ended   atomic.Bool // a disk has failed
}

// noBreaker disables circuit breakers. An agent's calls don't leave the process. The demo's services fail for certain
// orders only; an open circuit would delay the others.
var noBreaker = agent.Breaker{Failures: math.MaxUint32}

// agentPartitions is the number of partitions of each request topic.
const agentPartitions = 4

// LogDir is the directory of the embedded broker's log in a data directory.
func LogDir(dataDir string) string { return filepath.Join(dataDir, "kafka") }

// OpenLog starts a broker on the log of a data directory, at a free port. endProcess is that of embedded.Options.
func OpenLog(dataDir string, endProcess func(error)) (*embedded.Broker, error) {
	broker, err := embedded.Start(embedded.Options{DataDir: LogDir(dataDir), Listen: "127.0.0.1:0", EndProcess: endProcess})
	if err != nil {
		return nil, err
	}
	broker.Open()
	return broker, nil
}

// Start starts the broker, creates the topics and applies the definitions. Other clients can't connect until
// Broker.Open.
func Start(ctx context.Context, o Options) (*System, error) {
	s := newSystem(o)
	var err error
	if s.Broker, err = embedded.Start(embedded.Options{DataDir: LogDir(o.DataDir), Listen: o.Listen, Partitions: o.Partitions,
		EndProcess: s.endNow}); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Broker.Close())
	}
	return s, nil
}

// newSystem returns a system without a broker.
func newSystem(o Options) *System {
	s := &System{options: o}
	s.Log = slog.New(endingLog{o.Log.Handler(), &s.ended})
	return s
}

func (s *System) prepare(ctx context.Context) error {
	o := &s.options
	cfg := s.Broker.Config()
	cfg.Namespace, cfg.ClientID = events.DefaultNamespace, "waybill"
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	topics := kafkaadmin.CreateTopicsOptions{Partitions: o.Partitions, Agents: map[string]int32{}}
	for _, d := range o.Definitions {
		for _, a := range d.Agents() {
			topics.Agents[a] = agentPartitions
		}
	}
	if _, err := admin.CreateTopics(ctx, topics); err != nil {
		return fmt.Errorf("create the topics: %w", err)
	}
	s.Instance, err = instance.Open(ctx, cfg, instance.Config{Name: "local", DataDir: filepath.Join(o.DataDir, "state"), Metrics: o.Metrics, Log: s.Log, OwnClock: true,
		EndProcess: s.endProcess})
	if err != nil {
		return err
	}
	for _, d := range o.Definitions {
		if _, err := registry.Apply(ctx, cfg, d); err != nil {
			s.Instance.Close()
			return err
		}
	}
	return nil
}

// StartRoles starts every role. It is called within Run.
func (s *System) StartRoles(ctx context.Context) (err error) {
	o := &s.options
	if err := s.StartScheduler(ctx, o.Scheduler); err != nil {
		return err
	}
	if err := s.StartSupervisor(ctx, 0); err != nil {
		return err
	}
	s.StartIntakes(ctx, o.Intakes)
	if s.Console, err = o.StartIndex(ctx, s.Instance); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Agents)) {
		s.StartAgent(ctx, name, o.Concurrency, noBreaker, o.Agents[name])
	}
	return nil
}

// joinTimeout bounds the time in which the roles of one process join their groups.
const joinTimeout = 30 * time.Second

// AwaitJoined returns when every role is a member of its group, so that no later rebalance delays work.
func (s *System) AwaitJoined(ctx context.Context) error {
	ns := s.Kafka.Namespace
	groups := []string{ns.SchedulerGroup(), ns.SupervisorGroup()}
	for name := range s.options.Agents {
		groups = append(groups, ns.AgentGroup(name))
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for len(groups) > 0 {
		state, err := s.Admin.DescribeGroup(ctx, groups[0])
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

// brokerCloseMax bounds the close of the broker, whose disk may have failed, too.
const brokerCloseMax = 5 * time.Second

// endProcess closes the broker before the process ends because the disk of a store failed. A broker that is killed may
// tear a transaction.
func (s *System) endProcess(err error) {
	s.ended.Store(true)
	closed := make(chan struct{})
	go func() {
		_ = s.Broker.Close() // its error is of the same disk
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(brokerCloseMax):
	}
	s.endNow(err)
}

// endNow ends the process with the broker in whatever state it is.
func (s *System) endNow(err error) {
	s.ended.Store(true)
	if s.options.EndProcess != nil {
		s.options.EndProcess(err)
	}
	panic(err)
}

// Close stops the instance and the broker.
func (s *System) Close() error {
	s.Instance.Close()
	return s.Broker.Close()
}
