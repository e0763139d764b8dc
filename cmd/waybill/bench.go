package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/bench"
)

// benchOptions are the flags of all benchmarks.
type benchOptions struct {
	connection
	output
	load     bench.Load
	shape    string
	dataDir  string
	logLevel string
	profiles profiles
	bar      benchProgress
}

func (o *benchOptions) flags(cmd *cobra.Command) {
	o.load = bench.DefaultLoad()
	o.connection.flags(cmd)
	o.output.flags(cmd)
	f := cmd.Flags()
	_ = f.MarkHidden("namespace") // can't fail: the flag exists
	f.StringVar(&o.dataDir, "data-dir", "", "directory that keeps the embedded broker's log and the local state (default: a temporary directory)")
	f.IntVar(&o.load.Payload, "payload", o.load.Payload, "size of a task's input in bytes")
	f.IntVar(&o.load.Steps, "steps", o.load.Steps, "number of steps of a task")
	f.Int32Var(&o.load.Partitions, "partitions", o.load.Partitions, "number of partitions of the inboxes and of events")
	f.IntVar(&o.load.Workers, "workers", o.load.Workers, "number of workers of the scheduler")
	f.StringVar(&o.logLevel, "log-level", "error", "log level of the roles: debug, info, warn or error")
	o.profiles.flags(f, "the measured part")
}

func newBench() *cobra.Command {
	var o benchOptions
	var floor, noIndex bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput and latency",
		Long: `Measure how many tasks end per second, and how long each takes. The embedded broker runs in the process; with
--brokers the bench runs on your cluster, in a namespace of its own that is deleted at the end. All roles
and agents run in this process; agents reply at once.

Without --rate a new task is sent when another has ended, with --inflight open at a time. With --rate tasks are sent
at fixed times, and latency counts from those times. --inflight 1 measures a single task alone.

--floor also runs a program that only moves the same records through the same topics in transactions. The
ratio shows what Waybill costs on top of Kafka.

At the end the log is verified. If a guarantee is broken, there is no result: exit code 1.`,
		Example: `  waybill bench --tasks 60000 --inflight 2000 --floor
  waybill bench --tasks 5000 --inflight 1`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(cmd)
			if err != nil {
				return err
			}
			options.Floor, options.NoIndex = floor, noIndex
			return runBench(cmd, &o, options, bench.Run, benchTable)
		},
	}
	o.flags(cmd)
	o.loadFlags(cmd, o.load.Tasks)
	f := cmd.Flags()
	l := &o.load
	f.StringVar(&o.shape, "shape", "chain", "chain: steps one after another; fan-out: one step, then all others but one in parallel, then one")
	f.Float64Var(&l.TimeoutShare, "timeout-share", 0, "share of tasks, 0 to 1, with an attempt that times out and is retried")
	f.Float64Var(&l.UndoShare, "undo-share", 0, "share of tasks, 0 to 1, whose last step is rejected, so that they are undone")
	f.DurationVar(&l.AttemptWithin, "attempt-within", l.AttemptWithin, "complete_within of an attempt: the length of a time-out")
	f.BoolVar(&floor, "floor", false, "also run the floor, and show the ratio")
	f.BoolVar(&noIndex, "no-index", false, "run without an index")
	cmd.AddCommand(newBenchOpen(), newBenchRestore(), newBenchTimers())
	return cmd
}

// loadFlags adds the flags of the load: its size, shape and rate.
func (o *benchOptions) loadFlags(cmd *cobra.Command, tasks int) {
	f, l := cmd.Flags(), &o.load
	f.IntVar(&l.Tasks, "tasks", tasks, "number of tasks to measure")
	f.IntVar(&l.Warmup, "warmup", -1, "number of tasks to run first, without measuring them (default: a tenth)")
	hideDefault(f, "warmup")
	f.IntVar(&l.Inflight, "inflight", l.Inflight, "number of open tasks (with --rate: unlimited unless given)")
	f.Float64Var(&l.Rate, "rate", 0, "tasks per second, sent at fixed times (default: as fast as they end)")
}

// options builds the benchmark's options from the flags.
func (o *benchOptions) options(cmd *cobra.Command) (bench.Options, error) {
	if onCommandLine(cmd, "namespace") { // settings may name one for other verbs
		return bench.Options{}, usage("--namespace: a benchmark creates its own namespace, and deletes it")
	}
	if err := o.setLoadDefaults(cmd); err != nil {
		return bench.Options{}, err
	}
	log, err := (&roleFlags{logLevel: o.logLevel}).logger()
	if err != nil {
		return bench.Options{}, err
	}
	o.bar.out = cmd.ErrOrStderr()
	options := bench.Options{Load: o.load, Dir: o.dataDir, Log: log, Profile: o.profiles.start, Progress: o.bar.set}
	if len(o.brokers) > 0 || o.properties != "" {
		if o.dataDir != "" {
			return options, usage("--data-dir is for the embedded broker; it can't be combined with --brokers")
		}
		cfg, err := o.kafka("waybill-bench")
		if err != nil {
			return options, err
		}
		options.Cluster = &cfg
	}
	return options, nil
}

// setLoadDefaults sets the defaults that depend on other flags, and checks the flags.
func (o *benchOptions) setLoadDefaults(cmd *cobra.Command) error {
	l := &o.load
	if o.shape != "" && o.shape != "chain" && o.shape != "fan-out" {
		return usage("--shape %q: must be chain or fan-out", o.shape)
	}
	l.FanOut = o.shape == "fan-out"
	if l.Warmup < 0 {
		l.Warmup = l.Tasks / 10
	}
	if l.Rate > 0 && !cmd.Flags().Changed("inflight") {
		l.Inflight = 0
	}
	if err := l.Check(); err != nil {
		return usage("%w", err)
	}
	return nil
}

// runBench runs a benchmark, and prints its result if it succeeds.
func runBench[O, R any](cmd *cobra.Command, o *benchOptions, options O, run func(context.Context, O) (*R, error), table func(io.Writer, *R) error) error {
	result, err := run(cmd.Context(), options)
	o.bar.end()
	if err != nil {
		return err
	}
	return o.printObject(cmd.OutOrStdout(), result, func(out io.Writer) error { return table(out, result) })
}

// benchProgress shows a progress bar for each phase of a benchmark.
type benchProgress struct {
	out  io.Writer
	what string
	bar  *progressBar
}

func (p *benchProgress) set(what string, done, total int64) {
	if p.bar == nil || p.what != what {
		p.end()
		p.what, p.bar = what, newProgress(p.out, what)
	}
	p.bar.set(done, total)
}

func (p *benchProgress) end() {
	if p.bar != nil {
		p.bar.end()
	}
}
