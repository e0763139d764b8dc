package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// roleFlags are the flags of every role's command.
type roleFlags struct {
	connection
	instance      string
	leaveOnStop   bool
	dataDir       string
	metricsListen string
	logLevel      string
	session       time.Duration
	transaction   time.Duration
	reads         bool // it only reads: it is no group member
	drains        bool // serves requests of load balancers, so it drains before it stops
}

func (r *roleFlags) flags(cmd *cobra.Command, state bool) {
	r.connection.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.instance, "instance", "", "name of this process; makes it a static group member, which keeps its partitions across a restart")
	f.StringVar(&r.metricsListen, "metrics-listen", "", "address of Prometheus metrics (/metrics) and probes (/healthz, /readyz, /startupz)")
	f.StringVar(&r.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	if !r.reads {
		f.BoolVar(&r.leaveOnStop, "leave-on-stop", true, "with --instance: leave the consumer groups on a normal stop, so that other members take over at once; false: the partitions wait for a restart, for --session-timeout at most")
		after := groupmember.DefaultSessionTimeout
		if !state {
			after = agentsession.DefaultSessionTimeout
		}
		f.DurationVar(&r.session, "session-timeout", 0, fmt.Sprintf("time after which a member that sends no heartbeat loses its partitions; brokers limit the value (default %s)", after))
	}
	if state {
		f.StringVar(&r.dataDir, "data-dir", "", "directory of the local state; without it, the state is restored from the log at each start")
	}
}

func (r *roleFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.logLevel)); err != nil {
		return nil, usage("--log-level %q: must be debug, info, warn or error", r.logLevel)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// timeoutLeast and timeoutMost bound the timeouts of roles. Each timeout also has narrower bounds of its own.
const (
	timeoutLeast = 100 * time.Millisecond // the minimum of the Kafka client
	timeoutMost  = 24 * time.Hour
)

// check checks the flags before connecting. Otherwise a role with an invalid timeout would be restarted forever.
func (r *roleFlags) check() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"session-timeout", r.session}, {"transaction-timeout", r.transaction}} {
		switch {
		case d.value < 0:
			return usage("--%s %s: must not be negative", d.flag, d.value)
		case d.value != 0 && (d.value < timeoutLeast || d.value > timeoutMost):
			return usage("--%s %s: must be %s to %s", d.flag, d.value, timeoutLeast, timeoutMost)
		}
	}
	if r.metricsListen == "" {
		return nil
	}
	return checkListen("metrics-listen", r.metricsListen)
}

// checkListen refuses an address that can't be listened on.
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

// runRole connects, starts one role, and waits until it ends.
func (r *roleFlags) runRole(cmd *cobra.Command, role string, start func(context.Context, *instance.Instance) error) error {
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
	n, err := instance.Open(ctx, cfg, instance.Config{Name: r.instance, LeaveOnStop: r.leaveOnStop, DataDir: r.dataDir, Metrics: m, Log: log, Session: r.session, Transaction: r.transaction,
		EndProcess: endProcess})
	if err != nil {
		return orInterrupted(ctx, err)
	}
	defer n.Close()
	serving, unserve := context.WithCancel(context.WithoutCancel(ctx)) // probes are answered until the role has stopped
	defer unserve()
	if r.metricsListen != "" {
		addr, err := m.Serve(serving, r.metricsListen, log)
		if err != nil {
			return err
		}
		log.Info("metrics", "listen", "http://"+addr.String()+"/metrics")
	}
	log.Info("started", "role", role, "name", n.Name, "namespace", cfg.Namespace, "partitions", n.Partitions)
	if r.drains {
		var cancel context.CancelFunc
		ctx, cancel = n.DrainContext(ctx)
		defer cancel()
	}
	err = n.Run(ctx, func(ctx context.Context) error { return start(ctx, n) })
	log.Info("stopped", "role", role)
	if _, refused := errors.AsType[*kafka.TimeoutError](err); refused {
		return exit(exitUsage, "%w", err)
	}
	return err
}

// checkTransaction checks the timeouts of a transactional role.
func (r *roleFlags) checkTransaction(role string) error {
	session, transaction := cmp.Or(r.session, groupmember.DefaultSessionTimeout), cmp.Or(r.transaction, groupmember.DefaultTransactionTimeout)
	if session >= transaction {
		return usage("--session-timeout %s must be shorter than --transaction-timeout, %s: otherwise the successor of a dead %s waits for its transaction", session, transaction, role)
	}
	return nil
}

// checkScheduler checks the flags that a worker would refuse each time it is opened.
func checkScheduler(r *roleFlags, o *instance.SchedulerOptions) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := r.checkTransaction("scheduler"); err != nil {
		return err
	}
	if o.Workers < 1 {
		return usage("--workers %d: must be 1 or more", o.Workers)
	}
	return checkMaxRunnable(o.MaxRunnable)
}

func newScheduler() *cobra.Command {
	var r roleFlags
	var o instance.SchedulerOptions
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Run a scheduler: it owns tasks and writes events",
		Long: `Run a scheduler. It consumes the inboxes, decides what happens next to each task, and writes events
and requests in Kafka transactions. It is the only writer of events. It also runs the notifier, which
writes changes of a task's state to the task's reply_to topic.

Run one or more processes: Kafka's consumer group protocol divides the partitions among them. With
--instance and --data-dir a restarted process keeps its partitions and its state.`,
		Example: `  waybill scheduler --brokers kafka:9092 --instance s1 --data-dir /var/lib/waybill/s1 --metrics-listen :9101`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkScheduler(&r, &o); err != nil {
				return err
			}
			return r.runRole(cmd, "scheduler", func(ctx context.Context, n *instance.Instance) error { return n.StartScheduler(ctx, o) })
		},
	}
	r.flags(cmd, true)
	f := cmd.Flags()
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "number of workers; each is a group member with a transactional producer. Workers beyond the number of partitions are idle")
	maxRunnableFlag(cmd, &o.MaxRunnable)
	capacityFlags(cmd, &o.AgentCapacity, &o.ObserveCapacity)
	f.StringSliceVar(&o.ReplyToPrefixes, "reply-to-prefix", nil, "accept a reply_to only if it begins with one of these prefixes")
	f.BoolVar(&o.CreateReplyTo, "create-reply-to", false, "create a reply_to topic that does not exist")
	f.DurationVar(&r.transaction, "transaction-timeout", 0, fmt.Sprintf("time after which brokers abort the open transaction of a dead scheduler; must exceed --session-timeout (default %s)", groupmember.DefaultTransactionTimeout))
	return cmd
}
