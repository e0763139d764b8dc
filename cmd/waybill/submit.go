package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/text"
)

// The bounds of one submit.
const (
	submitMaxLines  = 2_000_000
	submitMaxFaults = 20 // faults that are listed
)

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
	labels     labels
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

  {"id", "workflow", "version"?, "input", "reply_to"?, "priority"?, "labels"?, "complete_by"?}

All lines are checked before the first is sent. The id is the idempotency key: submitting the same order
again has no effect, and another order under a used id is refused.

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
	f.IntVar(&o.version, "version", 0, "version of the workflow (default: the newest)")
	f.StringVar(&o.input, "input", "null", "input of the task: JSON, or @FILE")
	f.StringVar(&o.replyTo, "reply-to", "", "topic to send status notifications to")
	f.IntVar(&o.priority, "priority", 0, "priority when steps wait for an agent; higher goes first")
	f.Var(&o.labels, "label", "label of the task, as `NAME=VALUE` (repeatable)")
	hideDefault(f, "label")
	f.StringVar(&o.completeBy, "complete-by", "", "deadline of the task, an RFC 3339 time")
	f.BoolVar(&o.wait, "wait", false, "wait until every task has ended or is held")
	f.BoolVar(&o.noCheck, "no-check", false, "don't check first that the workflows exist")
	f.DurationVar(&o.timeout, "timeout", 0, "with --wait: give up after this time (default: never)")
	return cmd
}

// submission is a record to submit, and its position after the write.
type submission struct {
	*events.Submission
	record events.Record
	there  bool // acknowledged by all in-sync replicas, at record's position
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
	if err := o.output.check(); err != nil {
		return err
	}
	if o.timeout != 0 && !o.wait || o.timeout < 0 {
		return usage("--timeout %s: a positive duration, with --wait", o.timeout)
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
	ctx := cmd.Context()
	var w *submissionWaiter
	if !o.wait && !o.noCheck {
		if err := checkWorkflows(ctx, l, subs); err != nil {
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
		if ctx.Err() == nil && slices.ContainsFunc(subs, func(s *submission) bool { return s.there }) {
			err = errors.Join(err, o.print(cmd.OutOrStdout(), subs, nil))
		}
		return err
	}
	if !o.wait {
		return o.print(cmd.OutOrStdout(), subs, nil)
	}
	return o.waitFor(cmd, l, w, subs)
}

// definitionsTimeout bounds the check of workflow names before a submit.
const definitionsTimeout = 5 * time.Second

// checkWorkflows refuses submissions of unknown workflows, so that the user needn't wait for the scheduler's
// refusal. If definitions can't be read completely, it warns and submits: the scheduler decides.
func checkWorkflows(ctx context.Context, l *logbook, subs []*submission) error {
	within, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	names, err := workflowNames(within, l)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		fmt.Fprintf(l.note, "waybill: submitting without checking the workflows, which can't be read: %s\n", printable(err.Error()))
		return nil
	}
	var unknown []string
	for _, s := range subs {
		what := s.Workflow
		if s.Version != 0 {
			what += "/" + strconv.Itoa(s.Version)
		}
		if !names[what] && !slices.Contains(unknown, what) && len(unknown) < submitMaxFaults {
			unknown = append(unknown, what)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return exit(exitRefused, "nothing was submitted: there is no workflow %s; `waybill workflow list` lists the existing ones, `waybill workflow apply` adds one, --no-check submits anyway",
		strings.Join(unknown, ", "))
}

// workflowNames returns the workflows in the log, as NAME and NAME/VERSION.
func workflowNames(ctx context.Context, l *logbook) (map[string]bool, error) {
	topic := l.cfg.Namespace.Definitions()
	partitions, _, err := l.admin.TopicPartitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := l.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	if len(ends) < int(partitions) {
		return nil, fmt.Errorf("no broker leads %d of the %d partitions of %s", int(partitions)-len(ends), partitions, topic)
	}
	keys := map[string]bool{}
	err = l.admin.ReadCompacted(ctx, topic, func(r events.Record) error {
		keys[string(r.Key)] = len(r.Value) > 0
		return nil
	})
	names := map[string]bool{}
	for key, there := range keys {
		if i := strings.LastIndexByte(key, '/'); there && i >= 0 {
			names[key[:i]], names[key] = true, true
		}
	}
	return names, err
}

// submissions reads and checks the submissions.
func (o *submitOptions) submissions(cmd *cobra.Command) ([]*submission, error) {
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
	subs, err := readSubmissions(in, name, events.Namespace(o.namespace))
	if err == nil && len(subs) == 0 {
		err = usage("%s: it has no submission; each line must be one JSON object", name)
	}
	return subs, err
}

// fromFlags builds one submission from the flags. Without --id it generates an id.
func (o *submitOptions) fromFlags(idGiven bool) ([]*submission, error) {
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
	if file, ok := strings.CutPrefix(o.input, "@"); ok {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, exit(exitUsage, "--input: %w", err)
		}
		s.Input = trimBOM(body)
	}
	if err := events.CheckJSON(s.Input); err != nil {
		return nil, usage("--input: %v: %s", err, text.Shorten(string(s.Input), 60))
	}
	if o.completeBy != "" {
		by, err := events.ParseInstant(o.completeBy)
		if err != nil {
			return nil, usage("--complete-by %q: %v", o.completeBy, err)
		}
		s.CompleteBy = by
	}
	if err := s.Check(); err != nil {
		return nil, exit(exitUsage, "%w", err)
	}
	ns := events.Namespace(o.namespace)
	sub, err := parseSubmission(s.Record(ns, toolSource).Value, ns)
	if err != nil {
		return nil, exit(exitUsage, "%w", err)
	}
	return []*submission{sub}, nil
}

// readSubmissions reads JSON lines, and reports faults by line. It skips blank lines.
func readSubmissions(in io.Reader, name string, ns events.Namespace) ([]*submission, error) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 0, 64<<10), events.MaxSubmissionBytes+2)
	var subs []*submission
	var faults []string
	seen := map[string]int{} // id -> index in subs
	lines := map[string]int{}
	number := 0
	for scanner.Scan() {
		number++
		line := scanner.Bytes()
		if number == 1 {
			line = trimBOM(line)
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		s, err := parseSubmission(bytes.Clone(line), ns)
		if err == nil {
			if at, twice := seen[s.ID]; twice && subs[at].Digest() != s.Digest() {
				err = fmt.Errorf("id %q was in line %d, with another body", s.ID, lines[s.ID])
			} else if !twice {
				seen[s.ID], lines[s.ID] = len(subs), number
			}
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("line %d: %v", number, err))
			continue
		}
		if subs = append(subs, s); len(subs) > submitMaxLines {
			return nil, usage("%s: more than %d lines; split it: submitting a part again is harmless", name, submitMaxLines)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		faults = append(faults, fmt.Sprintf("line %d: more than %d bytes", number+1, events.MaxSubmissionBytes))
	} else if err != nil {
		return nil, fmt.Errorf("%s: read: %w", name, err)
	}
	if len(faults) == 0 {
		return subs, nil
	}
	n := len(faults)
	if n > submitMaxFaults {
		faults = append(faults[:submitMaxFaults], fmt.Sprintf("and %d more", n-submitMaxFaults))
	}
	return nil, usage("%s: %d lines can't be submitted, so none was; each line is one submission:\n  %s", name, n, strings.Join(faults, "\n  "))
}

// parseSubmission parses and checks a submission as a scheduler does.
func parseSubmission(line []byte, ns events.Namespace) (*submission, error) {
	_, in, err := events.DecodeInput(events.Tasks, &events.Record{Value: line})
	if err != nil {
		return nil, err
	}
	s := in.(*events.Submission)
	if u := ns.CheckReplyTo(s.ReplyTo); u != nil {
		return nil, errors.New(u.Detail)
	}
	return &submission{Submission: s, record: s.Record(ns, toolSource)}, nil
}

// send writes submissions and waits for their acknowledgements. A waiter notes what is acknowledged; it may be nil.
func send(ctx context.Context, l *logbook, subs []*submission, w *submissionWaiter) error {
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	bar := newProgress(l.note, "submitting")
	defer bar.end()
	acks := make(chan error, len(subs))
	for _, s := range subs {
		if w != nil {
			w.log.RecordPosition(s.ID)
		}
		producer.SendAsync(ctx, s.record, func(r events.Record, err error) {
			s.record, s.there = r, err == nil
			if w != nil && err == nil {
				w.log.RecordAcknowledged(s.ID, s.Digest(), &r)
			}
			acks <- err
		})
	}
	var first error
	acknowledged := 0
	for i := range subs {
		select {
		case err := <-acks:
			if err == nil {
				acknowledged++
			} else if first == nil {
				first = err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		bar.set(int64(i+1), int64(len(subs)))
	}
	if first != nil {
		return fmt.Errorf("%d of %d submissions acknowledged; submit the same again: a submission that exists already won't run twice: %w", acknowledged, len(subs), first)
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
