package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/text"
)

const batchHelp = `
With --filter the command is a batch over all tasks that match, oldest first: it shows what they are, asks for
confirmation (or needs --yes), commands --canary tasks and waits until they are through, then commands the
others at --rate. It stops when the fault recurs: when a canary, or one of a sample of the others, is held
again. The terms of a filter: docs/reference/http-api.md. Tasks in a state that doesn't allow the command are
left out.

Each task's request id follows from --batch and the task. Repeated with the same --batch, a batch has no second
effect. With --results it keeps each result in a file, and repeated with the same file it goes on. Exit code
4: stopped, because it recurs. 6: the canary took too long. 7: a command wasn't answered. 8: some were refused.`

// batchOptions are the flags of a command to many tasks.
type batchOptions struct {
	api     apiFlags
	filter  string
	plan    batch.Plan
	id      string
	results string
	preview bool
}

func (b *batchOptions) flags(cmd *cobra.Command) {
	b.api.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.filter, "filter", "", "command all tasks that match these terms, such as 'workflow:order step_in_error:charge since:1h'")
	f.Float64Var(&b.plan.Rate, "rate", 50, "with --filter: maximum number of commands a second; 0: no bound")
	f.IntVar(&b.plan.Canary, "canary", 1, "with --filter: number of tasks that must be through before the others are commanded; 0: none")
	f.DurationVar(&b.plan.CanaryWithin, "canary-within", time.Minute, "with --filter: maximum wait for the canary")
	f.StringVar(&b.id, "batch", "", "with --filter: id of the batch; repeating it has no second effect (default: a new UUID)")
	f.StringVar(&b.results, "results", "", "with --filter: file that keeps the batch's tasks and results; if it exists, the batch goes on")
	f.BoolVar(&b.preview, "preview", false, "with --filter: only show what matches")
	commandLineOnly(f, "filter", "rate", "canary", "canary-within", "batch", "results", "preview")
}

// arguments requires a task's id, or --filter.
func (b *batchOptions) arguments(cmd *cobra.Command, args []string) error {
	if b.filter != "" && len(args) > 0 {
		return usage("`%s`: give a task's id or --filter, not both", cmd.CommandPath())
	}
	if b.filter != "" {
		return nil
	}
	for _, name := range []string{"rate", "canary", "canary-within", "batch", "results", "preview"} {
		if onCommandLine(cmd, name) {
			return usage("--%s goes with --filter", name)
		}
	}
	return arguments("a task's id, or --filter")(cmd, args)
}

// runOneOrMany gives a command to one task, or to those that match --filter.
func (o *controlOptions) runOneOrMany(cmd *cobra.Command, b *batchOptions, args []string, build func(*cobra.Command) (*events.Control, error)) error {
	if b.filter == "" {
		return o.run(cmd, args, build)
	}
	if err := cmp.Or(o.output.check(), b.checkFlags(o)); err != nil {
		return err
	}
	x, err := build(cmd)
	if err != nil {
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
	x.RequestID = ""
	q := queryFlags{api: b.api}
	follow := func(partitions int32) indexOptions {
		i := indexAll(partitions)
		i.follow = true
		return i
	}
	return q.query(cmd, &o.tool, follow, func(c *apiClient) error {
		r := &batchRun{batchOptions: b, o: o, command: x, console: c, note: cmd.ErrOrStderr()}
		return r.run(cmd)
	})
}

func (b *batchOptions) checkFlags(o *controlOptions) error {
	switch {
	case o.requestID != "":
		return usage("--request-id is that of one command: with --filter give --batch, from which the request ids follow")
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
	console *apiClient
	note    io.Writer
}

func (r *batchRun) run(cmd *cobra.Command) error {
	journal, err := openJournal(r.results, r.id, r.command)
	if err != nil {
		return err
	}
	defer journal.close()
	left := 0
	if journal.head.Batch == "" {
		if journal.head, left, err = r.selectTasks(cmd.Context()); err != nil {
			return err
		}
	}
	targets := journal.head.Tasks
	if r.preview {
		return r.printPreview(cmd.OutOrStdout(), &r.o.output, targets, left)
	}
	if len(targets) == 0 {
		return exit(exitNotFound, "no task matches that the command is for%s", leftText(left))
	}
	if err := r.confirm(cmd, targets, left); err != nil {
		return err
	}
	r.console.discovered = false // no other source may begin again
	if err := journal.begin(); err != nil {
		return err
	}
	b := batch.New(journal.head.Batch, *r.command, r.plan, targets, journal.results)
	err = r.send(cmd, b, journal)
	if interrupted := errors.Is(err, context.Canceled); err == nil || interrupted {
		err = cmp.Or(r.printResults(cmd.OutOrStdout(), b), err)
		r.printEnd(b, journal)
	}
	return cmp.Or(err, batchError(b))
}

// selectTasks lists the tasks that match.
func (r *batchRun) selectTasks(ctx context.Context) (head journalHead, left int, err error) {
	f := consoleapi.Filter{Text: r.filter}
	if !strings.Contains(r.filter, "state:") {
		for _, s := range events.TaskStates {
			if batch.Takes(r.command, s) {
				f.States = append(f.States, string(s))
			}
		}
	}
	var listed []batch.Target
	var missing incompletePartitions
	_, err = r.console.Tasks(ctx, &f, 0, func(page *consoleapi.TaskPage) error {
		for i := range page.Tasks {
			listed = append(listed, batch.TargetOf(&page.Tasks[i]))
		}
		if len(listed) > batch.TasksMax {
			return usage("--filter matches more than %d tasks: narrow it, by since: and until: for example", batch.TasksMax)
		}
		return missing.add(r.console, page.Incomplete)
	})
	if err := cmp.Or(err, missing.partialError()); err != nil {
		return head, 0, err
	}
	unread, err := r.console.findLeftOut(ctx, r.note, func(string, *events.Task) bool { return true })
	if err != nil {
		return head, 0, err
	}
	listed = slices.DeleteFunc(listed, func(t batch.Target) bool { return unread.Contains(t.Task) })
	slices.Reverse(listed) // the oldest first
	head = journalHead{Batch: r.id, Command: *r.command, Filter: r.filter}
	head.Tasks, left = batch.Select(r.command, listed)
	if head.Batch == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return head, left, fmt.Errorf("generate a batch id: %w", err)
		}
		head.Batch = id.String()
	}
	return head, left, nil
}

func leftText(left int) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("; %s in a state that doesn't allow it", text.Count(left, "other task"))
}

// printPreview shows what a batch is about.
func (r *batchRun) printPreview(out io.Writer, o *output, targets []batch.Target, left int) error {
	err := printList(o, out, "TASKS WORKFLOW STATE STEP ERROR FOR-EXAMPLE", batch.Preview(targets), func(g batch.Group) []string {
		return []string{strconv.Itoa(g.Tasks), g.Workflow + "/" + strconv.Itoa(g.Version), stateText(g.State), dash(g.Step), dash(g.Code), idText(g.Sample)}
	})
	fmt.Fprintf(r.note, "%s match%s\n", text.Count(len(targets), "task"), leftText(left))
	return err
}

// confirm shows the batch and asks for confirmation. Without a terminal it requires --yes.
func (r *batchRun) confirm(cmd *cobra.Command, targets []batch.Target, left int) error {
	if err := r.printPreview(r.note, &output{formatTable}, targets, left); err != nil {
		return err
	}
	switch {
	case r.o.yes:
		return nil
	case !onTerminal(cmd.InOrStdin()):
		return usage("nothing was done: standard input isn't a terminal; confirm with --yes")
	}
	x := *r.command
	x.Task = text.Count(len(targets), "task")
	return askConfirmation(cmd.InOrStdin(), r.note, commandText(&x))
}

func (r *batchRun) printResults(out io.Writer, b *batch.Batch) error {
	return printList(&r.o.output, out, "TASK RESULT STATE WHY", b.Results(), func(t batch.Result) []string {
		return []string{idText(t.Task), string(t.Status), dash(stateText(t.State)), text.Shorten(t.Why, 160)}
	})
}

// printEnd prints what became of the tasks, and how to go on.
func (r *batchRun) printEnd(b *batch.Batch, j *journal) {
	var counts []string
	n := b.Count()
	for _, s := range []batch.Status{batch.Passed, batch.Accepted, batch.Refused, batch.Recurred, batch.Unanswered, batch.Sent, batch.Waiting} {
		if n[s] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	fmt.Fprintf(r.note, "batch %s: %s\n", printable(j.head.Batch), strings.Join(counts, ", "))
	if n[batch.Waiting]+n[batch.Unanswered]+n[batch.Sent] > 0 {
		how := "--batch " + j.head.Batch
		if r.results != "" {
			how = "--results " + r.results
		}
		fmt.Fprintf(r.note, "waybill: to go on, repeat the command with %s; no task gets a second command\n", printable(how))
	}
}

// batchError is the error of a batch that ended.
func batchError(b *batch.Batch) error {
	n := b.Count()
	why, timedOut := b.Stopped()
	switch {
	case timedOut:
		return exit(exitTimeout, "the batch was stopped: %s", why)
	case n[batch.Unanswered] > 0:
		return exit(exitUnreachable, "the batch was stopped: %s; `waybill doctor` says what is wrong", why)
	case why != "":
		return exit(exitError, "the batch was stopped: %s", why)
	case n[batch.Refused] > 0:
		return exit(exitRefused, "%d of %d commands were refused", n[batch.Refused], len(b.Results()))
	}
	return nil
}
