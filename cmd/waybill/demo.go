package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/workflow"
)

// demoDurations replace the durations of the sample workflow.
var demoDurations = struct {
	task, attempt, backoff, max, coolDown time.Duration
	attempts                              int
}{task: 10 * time.Minute, attempt: 2 * time.Second, backoff: 50 * time.Millisecond, max: 400 * time.Millisecond, coolDown: 1500 * time.Millisecond, attempts: 5}

// The limits of a demo.
const (
	demoMaxTasks    = 5_000_000
	demoRunnable    = 500 // runnable tasks per worker: a short queue keeps waits short
	demoConcurrency = 256
	demoPatience    = 60 * time.Second // without any progress
	demoRecord      = 500              // submissions per write
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

The services fail where the card of an order asks for it:

  tok             works
  tok_declined    the charge is rejected: the order is undone
  tok_slow        the first charge takes effect after its deadline: it is retried under the same key
  tok_down        the charge fails several times before it works: backoff, then cool-down
  tok_stuck_undo  the charge can't be undone at first: held, then resubmitted by an operator

Exit code 0 means that every order ended as it should and that the log verifies.`,
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
	f.StringVar(&o.keep, "data-dir", "", "directory that keeps the broker's log, the local state and the ledger (default: a temporary directory)")
	f.String("config", "", "YAML file of settings; its keys are flag names")
	return cmd
}

func (o *demoOptions) check() error {
	switch {
	case o.tasks < 1 || o.tasks > demoMaxTasks:
		return usage("--tasks %d: 1 to %d", o.tasks, demoMaxTasks)
	case o.faults != "on" && o.faults != "off":
		return usage("--faults %q: on or off", o.faults)
	case o.output != "table" && o.output != "json":
		return usage("-o %q: table or json", o.output)
	}
	return nil
}

func runDemo(cmd *cobra.Command, o *demoOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	dir := o.keep
	var cleanup []func()
	if dir == "" {
		d, remove, err := temporaryDir()
		if err != nil {
			return err
		}
		defer remove()
		dir, cleanup = d, append(cleanup, remove)
	} else if _, err := os.Stat(kafkaDir(dir)); err == nil {
		return usage("--data-dir %s already holds a log; the demo needs an empty directory", dir)
	}
	r := &demoRun{o: *o, dir: dir, cleanup: cleanup, out: cmd.OutOrStdout(), note: cmd.ErrOrStderr(), checker: newDemoChecker(),
		orders: demo.Orders(o.tasks, o.seed, o.faults == "on")}
	return r.run(cmd.Context())
}

// demoRun is one run of the demo.
type demoRun struct {
	o         demoOptions
	dir       string
	cleanup   []func() // of dir, if the process ends because a disk failed
	out, note io.Writer
	sys       *local
	checker   *demoChecker
	orders    []demo.Order
	started   time.Time
	timeline  []events.Line // the timeline of an order
}

func (r *demoRun) run(whole context.Context) error {
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	log := quietLog(r.note)
	o := localOptions{dataDir: r.dir, cleanup: r.cleanup, partitions: events.DefaultPartitions, definitions: []*workflow.Definition{demoWorkflow()},
		demo: true, ledger: filepath.Join(r.dir, "ledger.jsonl"), concurrency: demoConcurrency,
		scheduler: instance.SchedulerOptions{Workers: 2, MaxRunnable: demoRunnable, ObserveCapacity: true}, log: log, metrics: instance.NewMetrics(), observe: r.checker.checkRecords}
	var err error
	if r.sys, err = startLocal(ctx, o); err != nil {
		return orInterrupted(whole, err)
	}
	r.printStart()
	err = r.sys.Run(ctx, func(ctx context.Context) error {
		if err := r.sys.startRoles(ctx, o); err != nil {
			return err
		}
		if err := r.runOrders(ctx); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if (err == nil || errors.Is(err, context.Canceled)) && r.finished() && r.o.output != "json" {
		r.timeline, err = r.readTimeline(context.WithoutCancel(ctx)) // while the broker still runs
	}
	if cerr := r.sys.close(); err == nil || errors.Is(err, context.Canceled) {
		if err == nil || r.finished() {
			err = cerr
		}
	}
	if err == nil && !r.finished() {
		err = whole.Err() // interrupted: unfinished orders are no fault
	}
	if err != nil {
		return err
	}
	return r.report()
}

// demoWorkflow is the sample workflow with the demo's durations.
func demoWorkflow() *workflow.Definition {
	d := workflow.Order()
	d.CompleteWithin = workflow.Duration(demoDurations.task)
	within := workflow.Duration(demoDurations.attempt)
	d.Defaults.CompleteWithin = within
	d.Defaults.Retry = &workflow.Retry{MaxAttempts: demoDurations.attempts, Backoff: workflow.Duration(demoDurations.backoff), Factor: 2,
		Max: workflow.Duration(demoDurations.max), CoolDown: workflow.Duration(demoDurations.coolDown)}
	return d
}

func (r *demoRun) printStart() {
	d := demoDurations
	fmt.Fprintf(r.note, "An embedded broker in %s; roles: scheduler, supervisor, index and three agents, all in this process.\n", r.dir)
	fmt.Fprintf(r.note, "Durations, shortened: task %s, attempt %s, %d attempts, backoff %s to %s, cool-down %s.\n", d.task, d.attempt, d.attempts, d.backoff, d.max, d.coolDown)
}

// runOrders submits the orders, acts as the operator, and waits for the end.
func (r *demoRun) runOrders(ctx context.Context) error {
	if err := r.sys.joined(ctx); err != nil {
		return err
	}
	r.started = time.Now()
	submitted := make(chan error, 1)
	go func() { submitted <- r.submit(ctx) }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	operated, moved, before := false, time.Now(), -1
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-submitted:
			if err != nil {
				return fmt.Errorf("submit: %w", err)
			}
			submitted = nil
		case <-r.checker.changed:
		case <-tick.C:
			r.progress(false)
		}
		if !operated && r.allStuckHeld() {
			operated = true
			if err := r.resubmitHeld(ctx); err != nil {
				return err
			}
		}
		if submitted == nil && operated && r.finished() {
			r.progress(true)
			return nil
		}
		if n := r.eventCount(); n != before {
			before, moved = n, time.Now()
		} else if time.Since(moved) > demoPatience {
			r.progress(true)
			return fmt.Errorf("no progress for %s; %s", demoPatience, r.unfinished())
		}
	}
}

func (r *demoRun) submit(ctx context.Context) error {
	batch := make([]events.Record, 0, demoRecord)
	for i, o := range r.orders {
		s := events.Submission{ID: o.ID, Workflow: "order", Input: o.Body}
		batch = append(batch, s.Record(r.sys.Kafka.Namespace, "waybill/demo"))
		if len(batch) == cap(batch) || i == len(r.orders)-1 {
			if err := r.sys.Producer.Send(ctx, batch...); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// allStuckHeld reports whether every order whose undo can't succeed is held.
func (r *demoRun) allStuckHeld() bool {
	for i := range r.orders {
		if r.orders[i].Card == demo.CardStuckUndo && r.checker.state(r.orders[i].ID) != events.StateError {
			return false
		}
	}
	return true
}

// resubmitHeld acts as an operator after refunds work again: it resubmits some of the held orders. The others
// stay held.
func (r *demoRun) resubmitHeld(ctx context.Context) error {
	r.sys.world.Repair()
	var batch []events.Record
	for _, o := range r.orders {
		if o.Resubmit {
			x := events.Control{Task: o.ID, Command: events.Resubmit, By: events.By{Claimed: "demo operator", Why: "refunds work again", RequestID: uuid.NewString()}}
			batch = append(batch, x.Record(r.sys.Kafka.Namespace, "waybill/demo"))
		}
	}
	if len(batch) == 0 {
		return nil
	}
	fmt.Fprintf(r.note, "%s  operator: refunds work again; resubmits %d of the held orders\n", clearLine(r.note), len(batch))
	return r.sys.Producer.Send(ctx, batch...)
}

func (r *demoRun) finished() bool {
	for i := range r.orders {
		if r.checker.state(r.orders[i].ID) != r.orders[i].WantState() {
			return false
		}
	}
	return true
}

func (r *demoRun) unfinished() string {
	n, example := 0, ""
	for i := range r.orders {
		if s := r.checker.state(r.orders[i].ID); s != r.orders[i].WantState() {
			if n++; n == 1 {
				example = fmt.Sprintf("%s (%s) is %q and must end %q", r.orders[i].ID, r.orders[i].Card, s, r.orders[i].WantState())
			}
		}
	}
	return fmt.Sprintf("%d orders did not end as expected, the first: %s", n, example)
}

func (r *demoRun) eventCount() int {
	r.checker.mu.Lock()
	defer r.checker.mu.Unlock()
	return r.checker.log.Events
}

// progress prints the progress: on a terminal in place, elsewhere once at the end.
func (r *demoRun) progress(last bool) {
	if !isTerminal(r.note) {
		return
	}
	seen, ended, held := r.checker.progress()
	fmt.Fprintf(r.note, "%s  %d of %d orders received, %d ended, %d held, %.0f/s", clearLine(r.note), seen, len(r.orders), ended, held,
		float64(ended)/time.Since(r.started).Seconds())
	if last {
		fmt.Fprintln(r.note)
	}
}

// isTerminal reports whether an output is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

func clearLine(w io.Writer) string {
	if isTerminal(w) {
		return "\r\x1b[K"
	}
	return ""
}

// demoResult is what -o json prints.
type demoResult struct {
	Tasks          int     `json:"tasks"`
	Processed      int     `json:"processed"`
	Undone         int     `json:"undone"`
	Error          int     `json:"error"`
	Cancelled      int     `json:"cancelled"`
	Steps          int     `json:"steps"`
	Events         int     `json:"events"`
	Retries        int     `json:"retries"`
	Duration       float64 `json:"duration_seconds"`
	TasksPerSecond float64 `json:"tasks_per_second"`
	Verified       bool    `json:"verified"`
}

// report prints the summary and one timeline, and returns an error if a check failed.
func (r *demoRun) report() error {
	w := r.checker
	took := w.lastEnd.Sub(r.started).Seconds()
	res := demoResult{Tasks: len(w.of), Processed: w.states[events.StateProcessed], Undone: w.states[events.StateUndone],
		Error: w.states[events.StateError], Cancelled: w.states[events.StateCancelled], Steps: w.steps, Events: w.log.Events,
		Retries: w.retries, Duration: took, TasksPerSecond: float64(len(w.of)) / took}
	faults, err := r.faults()
	if err != nil {
		return err
	}
	res.Verified = len(faults) == 0
	if r.o.output == "json" {
		err = json.NewEncoder(r.out).Encode(res)
	} else {
		err = r.summary(res)
	}
	if err != nil {
		return err
	}
	for i, f := range faults {
		if i == 10 {
			fmt.Fprintf(r.note, "... and %d more\n", len(faults)-i)
			break
		}
		fmt.Fprintln(r.note, f)
	}
	if !res.Verified {
		return fmt.Errorf("%d guarantees broken", len(faults))
	}
	return nil
}

// faults lists what is wrong in the log, in the services' ledger, and in the ends of the orders.
func (r *demoRun) faults() ([]string, error) {
	var faults []string
	for _, f := range r.checker.log.Faults {
		faults = append(faults, f.String())
	}
	ledger, err := demo.ReadLedger(filepath.Join(r.dir, "ledger.jsonl"))
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(r.orders))
	for i := range r.orders {
		ids[i] = r.orders[i].ID
	}
	faults = append(faults, demo.CheckLedger(ledger, r.checker.log.Task, ids)...)
	if !r.finished() {
		faults = append(faults, "P1: "+r.unfinished())
	}
	return faults, nil
}
