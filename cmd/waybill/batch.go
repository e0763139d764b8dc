package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/text"
)

const batchHelp = `
With --filter the command is a batch over all tasks that match, oldest first. It summarizes them, asks for
confirmation (--yes replaces it), sends the command to --canary tasks, waits until they have passed, then sends it to
the others at --rate. It stops when the fault recurs: when a canary, or one of a sample of the others, is held
again. docs/reference/http-api.md lists the terms of a filter. Tasks in a state that doesn't allow the command are
left out.

A console runs the batch, and this command follows it. The batch continues if this command ends, or if the
console is killed and another one runs: see waybill batch. Without a console this command runs the batch
itself. If it ends early, the batch continues when a console starts, or when the command is repeated with the
same --batch. No task gets a second command. Exit code 4: stopped, because the fault recurred. 6: the canary took
too long. 7: a command wasn't answered. 8: some were refused.`

// batchOptions are the flags of a command to many tasks.
type batchOptions struct {
	api     apiFlags
	filter  string
	plan    batch.Plan
	id      string
	preview bool
	detach  bool
}

func (b *batchOptions) flags(cmd *cobra.Command) {
	b.api.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.filter, "filter", "", "send the command to all tasks that match these terms, such as 'workflow:order step_in_error:charge since:1h'")
	f.Float64Var(&b.plan.Rate, "rate", 50, "with --filter: maximum number of commands per second; 0: no limit")
	f.IntVar(&b.plan.Canary, "canary", 1, "with --filter: number of tasks that must pass before the command is sent to the others; 0: none")
	f.DurationVar(&b.plan.CanaryWithin, "canary-within", time.Minute, "with --filter: maximum wait for the canary")
	f.StringVar(&b.id, "batch", "", "with --filter: id of the batch; repeating it has no second effect (default: a new UUID)")
	f.BoolVar(&b.preview, "preview", false, "with --filter: only show what matches")
	f.BoolVar(&b.detach, "detach", false, "with --filter: don't follow the batch; a console runs it")
	commandLineOnly(f, "filter", "rate", "canary", "canary-within", "batch", "preview", "detach")
}

// arguments requires a task's id, or --filter.
func (b *batchOptions) arguments(cmd *cobra.Command, args []string) error {
	if b.filter != "" && len(args) > 0 {
		return usage("`%s`: give a task's id or --filter, not both", cmd.CommandPath())
	}
	if b.filter != "" {
		return nil
	}
	for _, name := range []string{"rate", "canary", "canary-within", "batch", "preview", "detach"} {
		if onCommandLine(cmd, name) {
			return usage("--%s needs --filter", name)
		}
	}
	return arguments("a task's id, or --filter")(cmd, args)
}

// newControl completes a command that is given to one task, or to those that match --filter.
func newControl(cmd *cobra.Command, build func() *events.Control) *cobra.Command {
	var o controlOptions
	var many batchOptions
	cmd.Args = many.arguments
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if many.filter != "" {
			return o.runMany(cmd, &many, build())
		}
		return o.run(cmd, args, func() (*events.Control, error) { return build(), nil })
	}
	o.flags(cmd)
	many.flags(cmd)
	return cmd
}

// runMany gives a command to the tasks that match --filter.
func (o *controlOptions) runMany(cmd *cobra.Command, b *batchOptions, x *events.Control) error {
	if err := b.checkFlags(o); err != nil {
		return err
	}
	if err := o.setIssuer(x); err != nil {
		return err
	}
	sample := *x
	sample.Task = "sample"
	if _, err := logclient.CommandRecord(events.Namespace(o.namespace), toolSource, &sample); err != nil {
		return exit(exitUsage, "%w", err)
	}
	r := &batchRun{batchOptions: b, o: o, command: x, id: b.id, note: cmd.ErrOrStderr()}
	if r.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("generate a batch id: %w", err)
		}
		r.id = id.String()
	}
	q := queryFlags{api: b.api}
	return q.query(cmd, &o.tool, r.indexed, func(c *apiClient) error {
		r.console = c
		return r.run(cmd)
	})
}

func (b *batchOptions) checkFlags(o *controlOptions) error {
	switch {
	case o.requestID != "":
		return usage("--request-id is for a single command: with --filter give --batch, from which the request ids are derived")
	case len(b.id) > events.MaxNameBytes:
		return usage("--batch: %d bytes; at most %d", len(b.id), events.MaxNameBytes)
	case b.preview && o.why == "":
		return b.checkPlan()
	}
	return cmp.Or(o.check(), b.checkPlan())
}

func (b *batchOptions) checkPlan() error {
	if err := b.plan.Check(); err != nil {
		return usage("--%v", err)
	}
	return nil
}

// batchRun is a batch from its selection to its end.
type batchRun struct {
	*batchOptions
	o       *controlOptions
	command *events.Control
	id      string
	console *apiClient
	note    io.Writer
}

// indexed says what a console in this process needs.
func (r *batchRun) indexed(partitions int32) indexOptions {
	i := indexAll(partitions)
	i.follow, i.batches = true, true
	if !r.preview && !r.detach {
		i.batch = r.id
	}
	return i
}

// order is the batch as a console gets it.
func (r *batchRun) order(preview bool) *consoleapi.BatchCommand {
	x := r.command
	return &consoleapi.BatchCommand{ID: r.id, Command: x.Command, Step: x.Step, Keep: x.Keep, Processed: x.Processed, Version: x.Version, DryRun: x.DryRun, Filter: r.filter, Reason: x.Why, By: x.Claimed,
		Rate: &r.plan.Rate, Canary: &r.plan.Canary, CanaryWithin: r.plan.CanaryWithin.String(), Preview: preview}
}

func (r *batchRun) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if r.console.local != nil {
		unread, err := r.console.findLeftOut(ctx, r.note, func(string, *events.Task) bool { return true })
		if err != nil {
			return err
		}
		r.console.local.omitted = unread
	}
	if r.batchOptions.id == "" || !r.exists(ctx) {
		if done, err := r.selectTasks(cmd); done || err != nil {
			return err
		}
	}
	a, err := r.console.OrderBatch(ctx, r.order(false))
	if err != nil {
		return err
	}
	r.console.discovered = false // no other source may begin again
	b := *a.Batch
	if r.detach {
		fmt.Fprintf(r.note, "batch %s: %s; `waybill batch get %[1]s` shows it\n", printable(b.ID), text.Count(b.Tasks, "task"))
		return nil
	}
	if b, err = r.follow(ctx, b); err != nil {
		r.printInterrupted(err)
		return orInterrupted(ctx, err)
	}
	err = r.printResults(cmd)
	if b.DryRun && b.Why == "" {
		printDryRunEnd(r.note, &b)
		return err
	}
	fmt.Fprintf(r.note, "batch %s: %s\n", printable(b.ID), countsText(&b))
	return cmp.Or(err, batchError(&b))
}

// exists reports whether the batch was ordered before.
func (r *batchRun) exists(ctx context.Context) bool {
	_, err := r.console.Batch(ctx, r.id)
	return err == nil
}

// selectTasks shows what the batch would be about, and asks for confirmation. done: nothing is to be ordered.
func (r *batchRun) selectTasks(cmd *cobra.Command) (done bool, err error) {
	a, err := r.console.OrderBatch(cmd.Context(), r.order(true))
	switch {
	case err != nil:
		return false, err
	case r.preview:
		return true, r.printPreview(cmd.OutOrStdout(), &r.o.output, &a)
	case a.Selected == 0:
		return true, exit(exitNotFound, "no matching task allows the command%s", leftText(a.Left))
	}
	if r.command.DryRun {
		return false, nil
	}
	return false, r.confirm(cmd, &a)
}

// batchPollEvery is the pause between two looks at a batch.
const batchPollEvery = 300 * time.Millisecond

// follow returns a batch as soon as it has ended. A console that doesn't answer for stallTimeout is an error.
func (r *batchRun) follow(ctx context.Context, b consoleapi.Batch) (consoleapi.Batch, error) {
	bar := newProgress(r.note, "sending commands")
	defer bar.end()
	trouble, answered := "", time.Now()
	for b.EndedAt == nil {
		if err := backoff.Sleep(ctx, batchPollEvery); err != nil {
			return b, err
		}
		next, err := r.console.Batch(ctx, r.id)
		if err != nil {
			if time.Since(answered) > stallTimeout || !consoleapi.Transient(err) || ctx.Err() != nil {
				return b, err
			}
			continue
		}
		b, answered = next, time.Now()
		if b.Trouble != "" && b.Trouble != trouble {
			fmt.Fprintf(r.note, "waybill: %s\n", printable(b.Trouble))
		}
		trouble = b.Trouble
		bar.set(int64(b.Tasks-b.Counts[batch.Waiting]), int64(b.Tasks))
	}
	return b, nil
}

// printInterrupted says what becomes of a batch that isn't followed any more.
func (r *batchRun) printInterrupted(err error) {
	id := printable(r.id)
	if r.console.local != nil {
		fmt.Fprintf(r.note, "waybill: the batch %s continues when a console runs, or when the command is repeated with --batch %[1]s; no task gets a second command\n", id)
		return
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(r.note, "waybill: the batch %s continues; `waybill batch stop %[1]s` stops it\n", id)
	}
}

func leftText(left int) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("; %s left out, in a state that doesn't allow the command", text.Count(left, "other task"))
}

// printPreview shows what a batch is about.
func (r *batchRun) printPreview(out io.Writer, o *output, a *consoleapi.BatchAnswer) error {
	err := printList(o, out, "TASKS WORKFLOW STATE STEP ERROR FOR-EXAMPLE", a.Groups, func(g batch.Group) []string {
		return []string{strconv.Itoa(g.Tasks), g.Workflow + "/" + strconv.Itoa(g.Version), stateText(g.State), dash(g.Step), dash(g.Code), idText(g.Sample)}
	})
	fmt.Fprintf(r.note, "%s %s%s\n", text.Count(a.Selected, "task"), text.Verb(a.Selected, "matches", "match"), leftText(a.Left))
	return err
}

// confirm shows the batch and asks for confirmation. Without a terminal it requires --yes.
func (r *batchRun) confirm(cmd *cobra.Command, a *consoleapi.BatchAnswer) error {
	if err := r.printPreview(r.note, &output{formatTable}, a); err != nil {
		return err
	}
	switch {
	case r.o.yes:
		return nil
	case !onTerminal(cmd.InOrStdin()):
		return usage("nothing was done: standard input isn't a terminal; confirm with --yes")
	}
	x := *r.command
	x.Task = text.Count(a.Selected, "task")
	return askConfirmation(cmd.InOrStdin(), r.note, commandText(&x))
}

func (r *batchRun) printResults(cmd *cobra.Command) error {
	results, err := r.console.BatchResults(cmd.Context(), r.id)
	if err != nil {
		return err
	}
	if r.command.DryRun {
		return printDryRun(cmd.OutOrStdout(), &r.o.output, results)
	}
	return printBatchResults(cmd.OutOrStdout(), &r.o.output, results)
}

func printBatchResults(out io.Writer, o *output, results []batch.Result) error {
	return printList(o, out, "TASK RESULT STATE WHY", results, func(t batch.Result) []string {
		return []string{idText(t.Task), string(t.Status), dash(stateText(t.State)), text.Shorten(t.Why, 160)}
	})
}

// countsText says what became of the tasks of a batch.
func countsText(b *consoleapi.Batch) string {
	var counts []string
	for _, s := range []batch.Status{batch.Passed, batch.Accepted, batch.Refused, batch.Recurred, batch.Unanswered, batch.Sent, batch.Waiting} {
		if b.Counts[s] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", b.Counts[s], s))
		}
	}
	return strings.Join(counts, ", ")
}

// batchError is the error of a batch that ended.
func batchError(b *consoleapi.Batch) error {
	switch {
	case b.TimedOut:
		return exit(exitTimeout, "the batch was stopped: %s", printable(b.Why))
	case b.Counts[batch.Unanswered] > 0:
		return exit(exitUnreachable, "the batch was stopped: %s; %s not answered; `waybill doctor` says what is wrong", printable(b.Why), text.Count(b.Counts[batch.Unanswered], "command"))
	case b.Why != "":
		return exit(exitError, "the batch was stopped: %s", printable(b.Why))
	case b.Counts[batch.Refused] > 0:
		return exit(exitRefused, "%d of %s refused", b.Counts[batch.Refused], text.Count(b.Tasks, "command"))
	}
	return nil
}
