package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/instance"
)

// roleFlags are the flags that every role's command has.
type roleFlags struct {
	connection
	instance      string
	dataDir       string
	metricsListen string
	logLevel      string
	session       time.Duration
	transaction   time.Duration
	reads         bool // it may open an imported history
}

func (r *roleFlags) flags(cmd *cobra.Command, state bool) {
	r.connection.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.instance, "instance", "", "name of this instance: makes it a static member, so that a restart keeps its partitions")
	f.StringVar(&r.metricsListen, "metrics-listen", "", "address to serve Prometheus metrics on, at /metrics")
	f.StringVar(&r.logLevel, "log-level", "info", "debug, info, warn or error")
	f.DurationVar(&r.session, "session-timeout", 0, "after which a silent member's partitions go to others (default 6s)")
	if state {
		f.StringVar(&r.dataDir, "data-dir", "", "directory of the projections, to restart from; without one they are read from the log at each start")
	}
}

func (r *roleFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.logLevel)); err != nil {
		return nil, usage("--log-level %q: debug, info, warn or error", r.logLevel)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// check refuses what can be judged without a broker.
func (r *roleFlags) check() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"session-timeout", r.session}, {"transaction-timeout", r.transaction}} {
		if d.value < 0 {
			return usage("--%s %s: a duration has no sign", d.flag, d.value)
		}
	}
	if r.metricsListen == "" {
		return nil
	}
	return checkListen("metrics-listen", r.metricsListen)
}

// checkListen refuses what is no address to listen on.
func checkListen(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	if err != nil {
		return usage("--%s %q: give host:port (%w)", flag, addr, err)
	}
	return nil
}

// runRole connects, starts one role, and waits for its end.
func (r *roleFlags) runRole(cmd *cobra.Command, role string, start func(context.Context, *instance.Instance) error) error {
	if err := settle(cmd); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	log, err := r.logger()
	if err != nil {
		return err
	}
	cfg, err := r.kafka("waybill-" + role)
	if err != nil {
		return err
	}
	ctx, m := cmd.Context(), instance.NewMetrics()
	n, err := instance.Open(ctx, cfg, instance.Config{Name: r.instance, DataDir: r.dataDir, Metrics: m, Log: log, Session: r.session, Transaction: r.transaction, Reads: r.reads})
	if err != nil {
		return err
	}
	defer n.Close()
	if r.metricsListen != "" {
		addr, err := m.Serve(ctx, r.metricsListen)
		if err != nil {
			return err
		}
		log.Info("metrics", "listen", "http://"+addr.String()+"/metrics")
	}
	log.Info("started", "role", role, "name", n.Name, "namespace", cfg.Namespace, "partitions", n.Partitions)
	err = n.Run(ctx, func(ctx context.Context) error { return start(ctx, n) })
	log.Info("stopped", "role", role)
	return err
}

func newScheduler() *cobra.Command {
	var r roleFlags
	var o instance.SchedulerOptions
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Run a scheduler (and notifier) against a Kafka cluster",
		Long: `Run a scheduler: the role that owns tasks and is the only writer of events. Run as many as
you like: Kafka's group protocol gives each its share of the partitions.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.runRole(cmd, "scheduler", func(ctx context.Context, n *instance.Instance) error { return n.StartScheduler(ctx, o) })
		},
	}
	r.flags(cmd, true)
	f := cmd.Flags()
	f.IntVar(&o.Lanes, "lanes", runtime.NumCPU(), "transactional lanes; at most as many as partitions count")
	f.IntVar(&o.MaxRunnable, "max-runnable", 0, "tasks that a lane has agents at work on, or that wait for one that works, before it pauses new ones (default 10000)")
	capacityFlags(cmd, &o.AgentCapacity, &o.ObserveCapacity)
	f.StringSliceVar(&o.ReplyToPrefixes, "reply-to-prefix", nil, "permit reply_to only for topics with one of these prefixes")
	f.BoolVar(&o.CreateReplyTo, "create-reply-to", false, "create the topic of a reply_to if it is missing")
	f.DurationVar(&r.transaction, "transaction-timeout", 0, "after which the broker rolls back what a dead scheduler left open (default 10s)")
	return cmd
}
