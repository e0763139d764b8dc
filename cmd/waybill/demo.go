package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/workflow"
)

// The limits of a demo.
const (
	demoMaxTasks    = 5_000_000
	demoRunnable    = 500 // runnable tasks per worker: a short queue keeps waits short
	demoConcurrency = 256
	demoFaultsShown = 10
)

type demoOptions struct {
	tasks  int
	seed   uint64
	faults string
	output string
	keep   string
}

func newDemo() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything in one process: sample orders, faulty services, a summary",
		Long: `Run the whole system in one process on an embedded broker in a temporary directory. It submits orders of
the sample workflow (reserve, charge, ship) to three simulated services, and prints progress, a summary
and one timeline. Use it to see what Waybill does; nothing is installed and nothing remains.

The card of an order selects how the services fail:

  tok             works
  tok_declined    the charge is rejected: the order is undone
  tok_slow        the first charge takes effect after its deadline: it is retried under the same key
  tok_down        the charge fails several times before it works: backoff, then cool-down
  tok_stuck_undo  the charge can't be undone at first: held, then resubmitted by an operator

Exit code 0 means that every order ended as it should and that 'waybill verify' finds no fault in the log.`,
		Example: `  waybill demo
  waybill demo --tasks 5000 --seed 7 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, &o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.tasks, "tasks", 200, "number of orders")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the orders; the same seed makes the same orders")
	f.StringVar(&o.faults, "faults", "on", "on: services fail for a quarter of the orders; off: for none")
	f.StringVarP(&o.output, "output", "o", "table", "output format: table or json")
	f.StringVar(&o.keep, "data-dir", "", "directory that keeps the broker's log, the local state and the services' list of what they did (default: a temporary directory)")
	f.String("config", "", "YAML file of settings; its keys are flag names")
	return cmd
}

func (o *demoOptions) check() error {
	switch {
	case o.tasks < 1 || o.tasks > demoMaxTasks:
		return usage("--tasks %d: must be 1 to %d", o.tasks, demoMaxTasks)
	case o.faults != "on" && o.faults != "off":
		return usage("--faults %q: must be on or off", o.faults)
	case o.output != "table" && o.output != "json":
		return usage("-o %q: must be table or json", o.output)
	}
	return nil
}

func runDemo(cmd *cobra.Command, o *demoOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	d := &demoCommand{o: *o, end: endProcess, out: cmd.OutOrStdout(), note: cmd.ErrOrStderr()}
	dir := o.keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "waybill-demo-"); err != nil {
			return err
		}
		remove := func() { _ = os.RemoveAll(dir) } // best effort: the system cleans its temporary folder
		defer remove()
		d.end = func(err error) {
			remove()
			endProcess(err)
		}
	} else if _, err := os.Stat(local.LogDir(dir)); err == nil {
		return usage("--data-dir %s already holds a log; the demo needs an empty directory", dir)
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w; give a directory that can be created and written to", err)
	}
	return d.run(cmd.Context(), dir)
}

// demoCommand is one run of the command.
type demoCommand struct {
	demo.Run
	o         demoOptions
	end       func(error) // ends the process after a disk failed
	out, note io.Writer
	timeline  []events.Line // the timeline of an order
}

func (d *demoCommand) run(ctx context.Context, dir string) (err error) {
	ledger := filepath.Join(dir, "ledger.jsonl")
	if d.Services, err = demo.OpenServices(ledger); err != nil {
		return err
	}
	d.Orders, d.Observer = demo.Orders(d.o.tasks, d.o.seed, d.o.faults == "on"), demo.NewObserver()
	d.Progress, d.Resubmits = d.printProgress, func(orders int) {
		fmt.Fprintf(d.note, "%s  operator: refunds work again; resubmits %d of the held orders\n", clearLine(d.note), orders)
	}
	if err := errors.Join(d.runSystem(ctx, dir), d.Services.Close()); err != nil {
		return err
	}
	if !d.Finished() && ctx.Err() != nil {
		return ctx.Err() // interrupted: unfinished orders are no fault
	}
	entries, err := demo.ReadLedger(ledger)
	if err != nil {
		return err
	}
	return d.report(d.Faults(entries))
}

// runSystem runs the system until the orders are finished, a role fails, or it is interrupted.
func (d *demoCommand) runSystem(whole context.Context, dir string) error {
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	definition := demo.Workflow()
	sys, err := local.Start(ctx, local.Options{DataDir: dir, Partitions: events.DefaultPartitions, Definitions: []*workflow.Definition{definition},
		Agents: d.Services.Handlers(), Concurrency: demoConcurrency, Metrics: instance.NewMetrics(),
		Scheduler:  instance.SchedulerOptions{Workers: 2, MaxRunnable: demoRunnable, ObserveCapacity: true},
		EndProcess: d.end,
		Log:        slog.New(slog.NewTextHandler(d.note, &slog.HandlerOptions{Level: slog.LevelWarn})),
		StartIndex: func(ctx context.Context, n *instance.Instance) (string, error) {
			_, err := n.StartIndex(ctx, d.Observer.Observe)
			return "", err
		}})
	if err != nil {
		return orInterrupted(whole, err)
	}
	d.Namespace, d.Send = sys.Kafka.Namespace, sys.Producer.Send
	d.printStart(dir, definition)
	err = sys.Run(ctx, func(ctx context.Context) error {
		if err := sys.StartRoles(ctx); err != nil {
			return err
		}
		if err := sys.AwaitJoined(ctx); err != nil {
			return err
		}
		if err := d.Do(ctx); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if errors.Is(err, context.Canceled) {
		err = nil // finished or interrupted
	}
	if err == nil && d.Finished() && d.o.output != formatJSON {
		d.timeline, err = sys.Timeline(context.WithoutCancel(ctx), demo.MostTelling(d.Orders)) // while the broker still runs
	}
	return errors.Join(err, sys.Close())
}

func (d *demoCommand) printStart(dir string, w *workflow.Definition) {
	retry := w.Defaults.Retry
	fmt.Fprintf(d.note, "An embedded broker in %s; roles: scheduler, supervisor, index and three agents, all in this process.\n", dir)
	fmt.Fprintf(d.note, "Durations, shortened: task %s, attempt %s, %d attempts, backoff %s to %s, cool-down (a long wait before one more attempt) %s.\n",
		w.CompleteWithin, w.Defaults.CompleteWithin, retry.MaxAttempts, retry.Backoff, retry.Max, retry.CoolDown)
}

// printProgress prints the progress on a terminal, in place.
func (d *demoCommand) printProgress(p demo.Progress, last bool) {
	if !isTerminal(d.note) {
		return
	}
	fmt.Fprintf(d.note, "%s  %d of %d orders received, %d ended, %d held, %.0f/s", clearLine(d.note), p.Received, len(d.Orders), p.Ended, p.Held, d.Rate(p.Ended))
	if last {
		fmt.Fprintln(d.note)
	}
}

// report prints the summary and one timeline, and returns an error if a check failed.
func (d *demoCommand) report(faults []string) (err error) {
	res := d.Result()
	res.Verified = len(faults) == 0
	if d.o.output == formatJSON {
		err = json.NewEncoder(d.out).Encode(res)
	} else {
		err = d.printSummary(res)
	}
	if err != nil {
		return err
	}
	for i, f := range faults {
		if i == demoFaultsShown {
			fmt.Fprintf(d.note, "... and %d more\n", len(faults)-i)
			break
		}
		fmt.Fprintln(d.note, f)
	}
	if !res.Verified {
		return fmt.Errorf("%s broken", text.Count(len(faults), "guarantee"))
	}
	return nil
}

// printSummary prints the ends of the orders, by card.
func (d *demoCommand) printSummary(res demo.Result) error {
	w := newTable(d.out, "CARD ORDERS ENDED HOW")
	endings, count := demo.Endings(d.Orders)
	for _, e := range endings {
		w.row(e.Card, strconv.Itoa(count[e]), stateText(e.State), e.How())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\n%s: %d processed, %d undone, %d held for an operator. %s, %s (%s, %s), %s in %.1f s: %.0f orders/s.\n",
		text.Count(res.Tasks, "order"), res.Processed, res.Undone, res.Error, text.Count(res.Steps, "step"), text.Count(res.Retries, "retry"),
		text.Count(res.Timeouts, "time-out"), text.Count(res.CoolDowns, "cool-down"), text.Count(res.Events, "event"), res.Duration, res.TasksPerSecond)
	if res.Verified {
		fmt.Fprintln(d.out, "The log verifies: every transition once and in order, and the services' own list of what they did agrees with it.")
	}
	fmt.Fprintf(d.out, "\nThe timeline of %s:\n", demo.MostTelling(d.Orders))
	return printTimeline(d.out, d.timeline)
}
