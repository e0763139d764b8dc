package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/bench"
)

func newBenchOpen() *cobra.Command {
	var o benchOptions
	var levels []int
	var rounds int
	var step string
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Measure throughput and memory while many tasks are open",
		Long: `Measure throughput while many tasks are open, and the memory of an open task. The agent of the open tasks
doesn't answer. Levels run one after another on one log. Before each level, the first level is measured again
on another log, so that two adjacent runs are compared.

--rounds repeats this. Ratios to the first level and memory are medians; other figures are those of the round
with the median processor time. A level starts when its open tasks are flushed and compacted in the stores. Task
ids are not ascending. Memory is what the roles release when they end; caches, memtables and decoded tasks are
bounded, however many tasks are open.`,
		Example: `  waybill bench open --levels 0,100000 --tasks 100000 --rounds 3
  waybill bench open --step wait --levels 0,100000 --tasks 20000 --rounds 3`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(cmd)
			if err != nil {
				return err
			}
			return runBench(cmd, &o, bench.OpenOptions{Options: options, Step: bench.ParkedStep(step), Levels: levels, Rounds: rounds}, bench.RunOpen, openTable)
		},
	}
	o.flags(cmd)
	o.loadFlags(cmd, 20_000)
	cmd.Flags().StringVar(&step, "step", string(bench.ParkedCall), "step in which the open tasks are: call (of an agent that doesn't answer), wait (for a time) or signal (for a signal)")
	cmd.Flags().IntSliceVar(&levels, "levels", []int{0, 100_000, 1_000_000}, "numbers of open tasks, in ascending order")
	cmd.Flags().IntVar(&rounds, "rounds", 1, "number of measurements of each level")
	return cmd
}

func openTable(out io.Writer, r *bench.OpenResult) error {
	w := newTable(out, "")
	w.row("OPEN TASKS", "TASKS/S", "CPU A TASK, us", "TASKS/S RATIO", "CPU RATIO", "ACK P99, ms", "HOP P99, ms", "TASK P50, ms", "TASK P99, ms",
		"ROLES' MEMORY", "OF THAT BOUNDED", "PER OPEN TASK", "UNBOUNDED")
	for _, x := range r.Levels {
		t := x.Result
		w.row(fmt.Sprint(x.Open), fmt.Sprintf("%.0f", t.TasksPerSecond), fmt.Sprintf("%.0f", t.CPUPerTask), fmt.Sprintf("%.2f", x.ThroughputRatio), fmt.Sprintf("%.2f", x.CPURatio),
			millis(t.Latency.Ack.P99), millis(t.Latency.Hop.P99), millis(t.Latency.Task.P50), millis(t.Latency.Task.P99),
			bytesText(float64(x.RolesMemory)), bytesText(float64(x.Bounded)), bytesText(x.PerTask), bytesText(x.PerTaskUnbounded))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "Caches, memtables and decoded tasks are bounded to %s in total.\n", bytesText(float64(r.Levels[0].Bounds))); err != nil {
		return err
	}
	return verifiedLine(out, r.VerifySeconds)
}

func verifiedLine(out io.Writer, seconds float64) error {
	_, err := fmt.Fprintf(out, "The log keeps all guarantees (verified in %.1f s).\n", seconds)
	return err
}

func newBenchRestore() *cobra.Command {
	var o benchOptions
	var open int
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Measure how fast a scheduler restores its state",
		Long: `Fill a log, then start a scheduler on it while submissions wait: once with an empty disk, from the newest
snapshot and the events after it (or the whole log if there is no snapshot), and once with its own
store. Times count from the start of the scheduler.`,
		Example: `  waybill bench restore --tasks 100000`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(cmd)
			if err != nil {
				return err
			}
			return runBench(cmd, &o, bench.RestoreOptions{Options: options, Open: open}, bench.RunRestore, restoreTable)
		},
	}
	o.flags(cmd)
	o.loadFlags(cmd, 100_000)
	cmd.Flags().IntVar(&open, "open", 10_000, "number of open tasks in the log, in addition to finished ones")
	return cmd
}

func restoreTable(out io.Writer, r *bench.RestoreResult) error {
	fmt.Fprintf(out, "A log of %d events, with %d open tasks, on the %s broker; %d processors.\n\n", r.Events, r.Open, r.Broker, r.Machine.CPUs)
	w := newTable(out, "")
	w.row("START FROM", "EVENTS READ", "ASSIGNED, s", "FIRST DECISION, s", "RESTORED, s", "EVENTS/S", "EVENTS/S PER CORE")
	for _, x := range []struct {
		what string
		r    bench.Restored
	}{{"empty disk", r.Empty}, {"store", r.Store}} {
		w.row(x.what, fmt.Sprint(x.r.Events), seconds(x.r.AssignedSeconds), seconds(x.r.FirstSeconds), seconds(x.r.RestoredSeconds),
			fmt.Sprintf("%.0f", x.r.EventsPerSecond), fmt.Sprintf("%.0f", x.r.EventsPerCoreSec))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Per core is by the processor time of %s.\n", r.Empty.CPUOf)
	return verifiedLine(out, r.VerifySeconds)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

func newBenchTimers() *cobra.Command {
	var o benchOptions
	var t bench.TimersOptions
	var step string
	cmd := &cobra.Command{
		Use:   "timers",
		Short: "Measure the cost of timers, and how late they fire",
		Long: `Measure the cost of timers (the load with and without a supervisor), and how late timers fire while many are
armed: some one after another, and many at the same time.`,
		Example: `  waybill bench timers --armed 1000000 --burst 100000
  waybill bench timers --step wait --armed 200000 --burst 10000`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(cmd)
			if err != nil {
				return err
			}
			t.Options, t.Step = options, bench.ParkedStep(step)
			return runBench(cmd, &o, t, bench.RunTimers, timersTable)
		},
	}
	o.flags(cmd)
	o.loadFlags(cmd, 20_000)
	f := cmd.Flags()
	f.StringVar(&step, "step", string(bench.ParkedCall), "what fires: call (the deadlines of tasks and of calls), wait (the ends of waits, one in each task) or signal (no timer; a signal is sent to each task)")
	f.IntVar(&t.Armed, "armed", 1_000_000, "number of armed timers; each open task has two")
	f.IntVar(&t.Burst, "burst", 100_000, "number of timers that are due at the same time")
	f.IntVar(&t.Spread, "spread", 10_000, "number of timers that are due one after another")
	f.Float64Var(&t.Rate, "timer-rate", 1000, "timers per second of --spread")
	f.DurationVar(&t.Within, "within", 30*time.Second, "time from the submission of the first timer to when the timers fire")
	return cmd
}

func timersTable(out io.Writer, r *bench.TimersResult) error {
	w := newTable(out, "")
	w.row("Without supervisor", fmt.Sprintf("%.0f tasks/s, %.0f µs of processor time a task", r.Without.TasksPerSecond, r.Without.CPUPerTask))
	w.row("With supervisor", fmt.Sprintf("%.0f tasks/s, %.0f µs of processor time a task", r.With.TasksPerSecond, r.With.CPUPerTask))
	w.row("Cost of timers", fmt.Sprintf("%.1f %% of the processor time, %.1f %% of the throughput", 100*r.CPUShare, 100*r.RateShare))
	w.row("Timers set", fmt.Sprintf("%d timers, in %.1f s", r.Armed, r.ArmedSeconds))
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "")
	w.row("LATENESS, ms", "TIMERS", "P50", "P90", "P99", "P99.9", "MAX")
	for _, x := range []struct {
		what string
		q    bench.Quantiles
	}{{"one after the other", r.Spread}, {"at once", r.Burst}} {
		w.row(x.what, fmt.Sprint(x.q.Count), millis(x.q.P50), millis(x.q.P90), millis(x.q.P99), millis(x.q.P999), millis(x.q.Max))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return verifiedLine(out, r.VerifySeconds)
}
