package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

type upOptions struct {
	roleFlags
	console     consoleFlags
	listen      string
	demo        bool
	rate        float64
	workflows   []string
	capacity    map[string]int
	maxRunnable int
	observe     bool
	partitions  int32
	registry    registryFlags
}

func newUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything in one process, with persistent data and a Kafka port",
		Long: `Run all roles in one process on an embedded broker, with data in --data-dir. It serves the web console, and
the Kafka protocol on a loopback port for any client. Use it for development and evaluation, on one
machine. In production, run the roles against your own Kafka cluster.

With --demo a sample order is submitted every two seconds. Its workflow is quick-order, which is order with short
deadlines. A quarter of the orders fail and are retried, undone or held. One in twenty names a workflow that doesn't
exist, and becomes a dead letter. So every screen of the console soon has something to show. --rate 0 submits none,
and doesn't apply quick-order.`,
		Example: `  waybill up --demo
  waybill up --demo --rate 0
  waybill up --workflow docs/examples/notice.yaml --data-dir ./waybill-data`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUp(cmd, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "waybill-data", "directory of the broker's log and the local state")
	o.console.operator = true // `waybill up` is for one user's machine
	o.console.flags(cmd)
	f.StringVar(&o.listen, "kafka-listen", embedded.DefaultListen, "loopback address for Kafka clients")
	f.BoolVar(&o.demo, "demo", false, "apply the sample workflow 'order', run its three simulated services, and submit sample orders (see --rate)")
	f.Float64Var(&o.rate, "rate", demo.TrickleRate, "with --demo: number of sample orders to submit a second; some fail; 0: none")
	f.StringArrayVar(&o.workflows, "workflow", nil, "file of a workflow definition to apply (repeatable)")
	f.Int32Var(&o.partitions, "partitions", events.DefaultPartitions, "number of partitions of the inboxes and of events in a new data directory; it can't be changed later")
	maxRunnableFlag(cmd, &o.maxRunnable)
	capacityFlags(cmd, &o.capacity, &o.observe)
	o.registry.flags(cmd)
	f.StringVar(&o.metricsListen, "metrics-listen", "", "address of Prometheus metrics (/metrics)")
	f.StringVar(&o.logLevel, "log-level", "warn", "log level: debug, info, warn or error")
	f.StringVar(&o.config, "config", "", "YAML file of settings; its keys are flag names")
	return cmd
}

func runUp(cmd *cobra.Command, o *upOptions) error {
	if !o.demo && !cmd.Flags().Changed("rate") {
		o.rate = 0
	}
	partitions, err := partitionsAsked(cmd, o.partitions)
	if err != nil {
		return err
	}
	lo, err := o.local()
	if err != nil {
		return err
	}
	lo.Partitions = partitions
	if o.demo {
		services, err := demo.OpenServices(filepath.Join(o.dataDir, "ledger.jsonl"))
		if err != nil {
			return err
		}
		lo.Agents = services.Handlers()
		return errors.Join(o.run(cmd, lo), services.Close())
	}
	return o.run(cmd, lo)
}

// run runs the system until it is interrupted or a role fails.
func (o *upOptions) run(cmd *cobra.Command, lo local.Options) error {
	ctx := cmd.Context()
	anyPort := !cmd.Flags().Changed("listen")
	lo.StartIndex = func(ctx context.Context, n *instance.Instance) (string, error) {
		return o.console.start(ctx, n, anyPort, cmd.ErrOrStderr())
	}
	trickling, stopTrickle := context.WithCancel(ctx)
	var trickle sync.WaitGroup
	serving, unserve := context.WithCancel(context.WithoutCancel(ctx)) // probes are answered until all has stopped
	defer unserve()
	defer stopTrickle()
	sys, err := local.Start(ctx, lo)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	err = sys.Run(ctx, func(ctx context.Context) error {
		if err := sys.StartRoles(ctx); err != nil {
			return err
		}
		if o.metricsListen != "" {
			addr, err := lo.Metrics.Serve(serving, o.metricsListen, sys.Log)
			if err != nil {
				return err
			}
			o.metricsListen = addr.String() // port 0 chose a free one
		}
		sys.Broker.Open()
		o.printStarted(cmd.OutOrStdout(), sys)
		if o.rate > 0 {
			t := &demo.Trickle{Namespace: sys.Kafka.Namespace, Send: sys.Producer.Send, Rate: o.rate, Begin: time.Now(), Log: sys.Log}
			trickle.Go(func() { t.Run(trickling) })
		}
		return nil
	})
	stopTrickle()
	trickle.Wait()
	if cerr := sys.Close(); err == nil {
		err = cerr
	}
	return err
}

// check checks the flags before anything is started.
func (o *upOptions) check() error {
	if err := o.roleFlags.check(); err != nil {
		return err
	}
	if _, err := o.console.check(); err != nil {
		return err
	}
	if err := checkMaxRunnable(o.maxRunnable); err != nil {
		return err
	}
	switch {
	case o.rate != 0 && !o.demo:
		return usage("--rate needs --demo")
	case !(o.rate >= 0 && o.rate <= demo.TrickleRateMax):
		return usage("--rate %v: must be 0 to %d orders a second", o.rate, demo.TrickleRateMax)
	}
	if err := checkListen("kafka-listen", o.listen); err != nil {
		return err
	}
	if !isLoopback(o.listen) {
		return usage("--kafka-listen %s is reachable from other machines, and the embedded broker has no authentication; listen on loopback (%s)", o.listen, embedded.DefaultListen)
	}
	return nil
}

// local builds the options of the local system from the flags.
func (o *upOptions) local() (local.Options, error) {
	if err := o.check(); err != nil {
		return local.Options{}, err
	}
	log, err := o.logger()
	if err != nil {
		return local.Options{}, err
	}
	schemas, err := o.registry.open()
	if err != nil {
		return local.Options{}, err
	}
	o.console.schemas = schemas
	lo := local.Options{DataDir: o.dataDir, Listen: o.listen, Concurrency: demoConcurrency, Log: log, Metrics: instance.NewMetrics(), EndProcess: endProcess,
		Scheduler: instance.SchedulerOptions{Workers: 2, MaxRunnable: o.maxRunnable, CreateReplyTo: true, AgentCapacity: o.capacity, ObserveCapacity: o.observe},
		Intakes:   instance.IntakeOptions{Workers: 1, Schemas: schemas}}
	if o.demo {
		lo.Definitions = append(lo.Definitions, workflow.Order())
	}
	if o.rate > 0 {
		lo.Definitions = append(lo.Definitions, demo.TrickleWorkflow())
	}
	for _, file := range o.workflows {
		src, err := os.ReadFile(file)
		if err != nil {
			return lo, exit(exitUsage, "--workflow: %w", err)
		}
		d, err := scheduler.ParseDefinition(file, src)
		if err != nil {
			return lo, exit(exitUsage, "%w", err)
		}
		lo.Definitions = append(lo.Definitions, d)
	}
	if err := os.MkdirAll(o.dataDir, 0o700); err != nil {
		return lo, fmt.Errorf("--data-dir: %w; give a directory that can be created and written to", err)
	}
	return lo, nil
}

func (o *upOptions) printStarted(out io.Writer, sys *local.System) {
	fmt.Fprintf(out, "Waybill is up, on an embedded broker: for development and evaluation on one machine.\n")
	fmt.Fprintf(out, "  Kafka    %s (any client; topics %s*)\n  data     %s\n", sys.Broker.Addr(), sys.Kafka.Namespace, o.dataDir)
	fmt.Fprintf(out, "  console  %s (a page for browsers; the API: /api/v1/openapi.json)\n", sys.Console)
	if sys.Console != "http://"+defaultConsole {
		fmt.Fprintf(out, "           not at the default address: tools need --api %[1]s, or WAYBILL_API=%[1]s\n", sys.Console)
	}
	if o.metricsListen != "" {
		fmt.Fprintf(out, "  metrics  http://%s/metrics\n", o.metricsListen)
	}
	flag := ""
	if sys.Broker.Addr() != defaultBroker {
		flag = " --brokers " + sys.Broker.Addr()
	}
	if !o.demo {
		fmt.Fprintf(out, "Try, in another terminal:\n  waybill workflow list%s\n  waybill topics check%s\n  waybill task list%s\n", flag, flag, flag)
		return
	}
	fmt.Fprintf(out, `Try, in another terminal:
  echo '{"id":"order-1","workflow":"order","input":{"items":[{"sku":"s1","qty":1}],"total":9.5,"card":"tok","address":"1 Harbour Road"}}' | waybill submit%s -f - --wait
  waybill timeline%s order-1
  waybill task list%s
`, flag, flag, flag)
}
