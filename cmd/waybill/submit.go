package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
)

// unknownWorkflowsMax bounds the unknown workflows that are listed.
const unknownWorkflowsMax = 20

// toolSource is the ce_source of records that tools write.
const toolSource = "waybill/cli"

type submitOptions struct {
	tool
	file       string
	id         string
	workflow   string
	version    int
	input      string
	replyTo    string
	priority   int
	labels     map[string]string
	completeBy string
	wait       bool
	noCheck    bool
	timeout    time.Duration
}

func newSubmit() *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Submit tasks: one by flags, or many from a file",
		Long: `Submit tasks. Without -f the flags describe one submission. With -f each line of a file (-: standard input)
is one submission:

  {"id", "workflow", "version"?, "input"?, "reply_to"?, "priority"?, "labels"?, "complete_by"?}

All lines are checked before the first is sent. The id is the idempotency key: sending the same submission
again has no effect, and a different submission with a used id is refused.

The command prints the partition and offset of each submission as soon as all in-sync replicas have it.
With --wait it waits for the end of every task. Exit code 4: a task is held. 5: undone or cancelled.
6: --timeout passed. 8: a submission was refused.

Without --wait it first checks that the workflows exist, and submits nothing if one doesn't (exit code
8). --no-check skips that: the scheduler then makes such a submission a dead letter.`,
		Example: `  waybill submit -f orders.jsonl --wait
  waybill submit --workflow order --id order-7 --input '{"items":[],"total":9.5,"card":"tok","address":"x"}'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSubmit(cmd, &o) },
	}
	o.tool.flags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "file of JSON lines, one submission each (-: standard input)")
	f.StringVar(&o.id, "id", "", "task id (default: a new UUID)")
	f.StringVar(&o.workflow, "workflow", "", "name of the workflow")
	f.IntVar(&o.version, "version", 0, "version of the workflow (default: the newest that isn't deprecated)")
	f.StringVar(&o.input, "input", "null", "input of the task: JSON, or @FILE")
	f.StringVar(&o.replyTo, "reply-to", "", "topic to send status notifications to")
	f.IntVar(&o.priority, "priority", 0, "priority when steps wait for an agent; higher goes first")
	f.Var(labelPairs(&o.labels), "label", "label of the task, as `NAME=VALUE` (repeatable)")
	hideDefault(f, "label")
	f.StringVar(&o.completeBy, "complete-by", "", "deadline of the task, an RFC 3339 time")
	f.BoolVar(&o.wait, "wait", false, "wait until every task has ended or is held")
	f.BoolVar(&o.noCheck, "no-check", false, "don't check first that the workflows exist")
	f.DurationVar(&o.timeout, "timeout", 0, "with --wait: give up after this time (default: never)")
	return cmd
}

// submitted is a submission as it is printed.
type submitted struct {
	ID        string           `json:"id"`
	Partition int32            `json:"partition"`
	Offset    string           `json:"offset"`
	State     events.TaskState `json:"state,omitempty"`
	Refused   string           `json:"refused,omitempty"`
	Output    json.RawMessage  `json:"output,omitempty"`
	Error     *events.Error    `json:"error,omitempty"`
}

func runSubmit(cmd *cobra.Command, o *submitOptions) error {
	if o.timeout != 0 && !o.wait || o.timeout < 0 {
		return usage("--timeout %s: must be a positive duration, with --wait", o.timeout)
	}
	subs, err := o.submissions(cmd)
	if err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	ctx, cancel := waitContext(cmd.Context(), o.timeout)
	defer cancel()
	var w *submissionWaiter
	if !o.noCheck && (!o.wait || slices.ContainsFunc(subs, func(s *logclient.Submission) bool { return s.Version != 0 })) {
		if err := checkWorkflows(ctx, l, subs, o.wait); err != nil {
			return err
		}
	}
	if o.wait {
		if w, err = newSubmissionWaiter(ctx, l, len(subs)); err != nil {
			return err
		}
		defer w.log.Close()
	}
	if err := send(ctx, l, subs, w); err != nil {
		if cmd.Context().Err() == nil && slices.ContainsFunc(subs, func(s *logclient.Submission) bool { return s.Acknowledged }) {
			err = errors.Join(err, o.print(cmd.OutOrStdout(), subs, nil))
		}
		if ctx.Err() != nil && cmd.Context().Err() == nil {
			return exit(exitTimeout, "%w (--timeout %s)", err, o.timeout)
		}
		return err
	}
	if !o.wait {
		return o.print(cmd.OutOrStdout(), subs, nil)
	}
	return o.waitFor(ctx, cmd, l, w, subs)
}

// definitionsTimeout bounds the check of workflow names before a submit.
const definitionsTimeout = 5 * time.Second

// checkWorkflows refuses submissions of unknown workflows, so that the user needn't wait for the scheduler's
// refusal, unless they are waited for anyway. It notes those that name a deprecated version. If definitions can't be read
// completely, it warns and submits: the scheduler decides.
func checkWorkflows(ctx context.Context, l *logbook, subs []*logclient.Submission, waits bool) error {
	within, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	names, err := registry.Names(within, l.admin, l.cfg.Namespace)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		fmt.Fprintf(l.note, "waybill: submitting without checking the workflows, which can't be read: %s\n", printable(err.Error()))
		return nil
	}
	var unknown, used []string
	for _, s := range subs {
		what := s.Workflow
		if s.Version != 0 {
			what += "/" + strconv.Itoa(s.Version)
		}
		if !slices.Contains(used, what) {
			used = append(used, what)
		}
		if _, known := names[what]; !known && !slices.Contains(unknown, what) && len(unknown) < unknownWorkflowsMax {
			unknown = append(unknown, what)
		}
	}
	if waits || len(unknown) == 0 {
		return noteDeprecated(l, used, names, waits)
	}
	return exit(exitRefused, "nothing was submitted: there is no workflow %s%s; `waybill workflow list` lists the existing ones, `waybill workflow apply` adds one, --no-check submits anyway",
		strings.Join(unknown, ", "), meantWorkflows(unknown, slices.Sorted(maps.Keys(names))))
}

// submissions reads and checks the submissions.
func (o *submitOptions) submissions(cmd *cobra.Command) ([]*logclient.Submission, error) {
	if o.file == "" {
		return o.fromFlags(cmd.Flags().Changed("id"))
	}
	for _, name := range []string{"id", "workflow", "version", "input", "reply-to", "priority", "label", "complete-by"} {
		if cmd.Flags().Changed(name) {
			return nil, usage("--%s can't be combined with -f: each line has its own", name)
		}
	}
	in, name := cmd.InOrStdin(), "standard input"
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, exit(exitUsage, "-f: %w", err)
		}
		defer f.Close()
		in, name = f, o.file
	}
	subs, err := logclient.ReadSubmissions(in, name, events.Namespace(o.namespace), toolSource)
	if _, is := errors.AsType[*logclient.InvalidSubmissionsError](err); is {
		return nil, exit(exitUsage, "%w", err)
	}
	return subs, err
}

// fromFlags builds one submission from the flags. Without --id it generates an id.
func (o *submitOptions) fromFlags(idGiven bool) ([]*logclient.Submission, error) {
	if o.workflow == "" {
		return nil, usage("give -f FILE, or --workflow and --input for one task")
	}
	s := &events.Submission{ID: o.id, Workflow: o.workflow, Version: o.version, Input: json.RawMessage(o.input), ReplyTo: o.replyTo, Priority: o.priority, Labels: o.labels}
	if s.ID == "" {
		if idGiven {
			return nil, usage("--id is empty: omit it to have one generated")
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("generate an id: %w", err)
		}
		s.ID = id.String()
	}
	flag := "--input"
	if file, ok := strings.CutPrefix(o.input, "@"); ok {
		flag += " " + o.input
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, exit(exitUsage, "--input: %w", err)
		}
		s.Input = trimBOM(body)
	}
	if err := events.CheckJSON(s.Input); err != nil {
		return nil, usage("%s: %v: %s", flag, err, text.Shorten(string(s.Input), 60))
	}
	if o.completeBy != "" {
		by, err := events.ParseInstant(o.completeBy)
		if err != nil {
			return nil, usage("--complete-by %q: %v", o.completeBy, err)
		}
		s.CompleteBy = by
	}
	sub, err := logclient.NewSubmission(events.Namespace(o.namespace), toolSource, s)
	if err != nil {
		return nil, exit(exitUsage, "%w", err)
	}
	return []*logclient.Submission{sub}, nil
}

// send writes submissions and waits for their acknowledgements. The waiter may be nil.
func send(ctx context.Context, l *logbook, subs []*logclient.Submission, w *submissionWaiter) error {
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	bar := newProgress(l.note, "submitting")
	defer bar.end()
	var log *logclient.Waiter
	if w != nil {
		log = w.log
	}
	var first error
	answered, acknowledged := 0, 0
	err = logclient.SendSubmissions(ctx, producer.SendAsync, subs, log, func(_ *logclient.Submission, err error) {
		if err == nil {
			acknowledged++
		} else if first == nil {
			first = err
		}
		answered++
		bar.set(int64(answered), int64(len(subs)))
	})
	switch {
	case err != nil:
		return err
	case first != nil:
		return fmt.Errorf("%d of %s acknowledged; submit the same again: a submission that exists already won't run twice: %w", acknowledged, text.Count(len(subs), "submission"), first)
	}
	return nil
}

// waitContext returns ctx with a timeout, if there is one.
func waitContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
