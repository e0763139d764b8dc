package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

// reachWithin is how long a command waits for the first answer of a broker.
const reachWithin = 5 * time.Second

// node is what the roles of one process share: the connection, the clock, the
// definitions, the stores. Roles are started on it; it ends when one of them
// can't go on, or with its context.
type node struct {
	cfg        kafka.Config
	partitions int32
	clusterID  string
	instance   string // --instance; empty: dynamic members
	name       string // of this process, in owners and ce_source
	dataDir    string
	temporary  bool // dataDir goes with the process
	clock      *kafka.Clock
	admin      *kafka.Admin
	producer   *kafka.Producer
	catalog    *catalog
	metrics    *metrics
	log        *slog.Logger
	timing     timing
	roles      *errgroup.Group
}

// timing is what the demo shortens.
type timing struct {
	session, transaction time.Duration // 0: the defaults
}

// catalog is the compiled definitions and the watch that feeds them.
type catalog struct {
	*scheduler.Compiled
	watch *kafka.Definitions
}

func (c *catalog) ReadToEndNow(ctx context.Context) error { return c.watch.ReadToEndNow(ctx) }

// nodeConfig is what openNode needs besides the connection.
type nodeConfig struct {
	instance string
	dataDir  string
	metrics  *metrics
	log      *slog.Logger
	timing   timing
	// embedded: the broker is in this process, so its clock is ours. It keeps
	// the timestamps of those who write, whose clocks are nobody's.
	embedded bool
}

// openNode connects, and refuses to start where the topics aren't what their
// format record says.
func openNode(ctx context.Context, cfg kafka.Config, nc nodeConfig) (*node, error) {
	n := &node{cfg: cfg, instance: nc.instance, dataDir: nc.dataDir, metrics: nc.metrics, log: nc.log, timing: nc.timing, clock: kafka.NewClock()}
	if !nc.embedded {
		n.cfg.Clock = n.clock
	}
	n.cfg.Hooks = append(n.cfg.Hooks, nc.metrics.hooks()...)
	n.name = nodeName(nc.instance)
	var err error
	if n.admin, err = kafka.OpenAdmin(n.cfg); err != nil {
		return nil, err
	}
	if err := reach(ctx, n.admin); err != nil {
		n.admin.Close()
		return nil, err
	}
	if err := n.learn(ctx); err != nil {
		n.admin.Close()
		return nil, err
	}
	if n.producer, err = kafka.OpenProducer(n.cfg); err != nil {
		n.admin.Close()
		return nil, err
	}
	return n, nil
}

func (n *node) learn(ctx context.Context) error {
	format, err := n.admin.CheckFormat(ctx)
	if err != nil {
		return err
	}
	n.partitions = format.Partitions
	if n.clusterID, err = n.admin.ClusterID(ctx); err != nil {
		return err
	}
	if n.dataDir == "" {
		n.temporary = true
		n.dataDir, err = os.MkdirTemp("", "waybill-")
	}
	return err
}

// nodeName names the process: the instance if it has a name, else something
// that no other process has.
func nodeName(instance string) string {
	if instance != "" {
		return instance
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
}

// run starts roles and waits for their end.
func (n *node) run(ctx context.Context, start func(ctx context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	n.roles = g
	g.Go(func() error { return start(ctx) })
	err := g.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	return err
}

func (n *node) close() {
	if n.catalog != nil {
		n.catalog.watch.Close()
	}
	n.producer.Close()
	n.admin.Close()
	if n.temporary {
		// A temporary folder that can't be removed is the system's to sweep.
		_ = os.RemoveAll(n.dataDir)
	}
}

// follow starts to follow the definitions, and returns when they are read.
func (n *node) follow(ctx context.Context) error {
	c := &scheduler.Compiled{Rejected: func(key string, err error) { n.rejectedDefinition(ctx, key, err) }}
	watch, err := kafka.WatchDefinitions(ctx, n.cfg, func(r events.Record) { c.Apply(&r) })
	if err != nil {
		return err
	}
	n.catalog = &catalog{c, watch}
	return watch.ReadToEndNow(ctx)
}

// rejectedDefinition: what doesn't compile is ignored, with an alert.
func (n *node) rejectedDefinition(ctx context.Context, key string, err error) {
	n.log.Warn("definition ignored", "key", key, "error", err)
	a := &events.Alert{Code: "bad_definition", Message: fmt.Sprintf("definition %s is ignored: %v", key, err), At: events.Millis(n.clock.Now())}
	n.producer.SendAsync(ctx, a.Record(n.cfg.Namespace, n.source("scheduler"), "definition/"+key+"/"+n.name), func(_ events.Record, err error) {
		if err != nil {
			n.log.Error("alert not written", "error", err)
		}
	})
}

func (n *node) source(role string) string {
	return string(n.cfg.Namespace) + role + "/" + n.name
}

// member is a group instance id, if this process is to be a static member.
func (n *node) member(role string) string {
	if n.instance == "" {
		return ""
	}
	return string(n.cfg.Namespace) + role + "." + n.instance
}

// store opens the projection store of a role; it is flushed and closed when
// the roles end.
func (n *node) store(ctx context.Context, view string) (*projections.Store, error) {
	id := projections.Identity{ClusterID: n.clusterID, Namespace: n.cfg.Namespace, Partitions: n.partitions, View: view}
	s, err := projections.Open(filepath.Join(n.dataDir, view), id, projections.Options{Listener: &projections.Listener{
		Fatal:      func(err error) { n.log.Error("store stopped", "view", view, "error", err) },
		Background: func(err error) { n.log.Warn("store", "view", view, "error", err) },
	}})
	if err != nil {
		return nil, err
	}
	n.roles.Go(func() error {
		if err := s.Run(ctx); !errors.Is(err, projections.ErrClosed) {
			return err
		}
		return nil // by its role, which ends and says why
	})
	return s, nil
}
