package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/verify"
)

type verifyOptions struct {
	historyTool
	timeRange
	dataDir    string
	partitions []int
	latest     time.Duration
	tolerance  time.Duration
	profiles   profiles
}

func newVerify() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the log keeps the guarantees",
		Long: `Read the log to its current end, and check that it keeps Waybill's guarantees:

  - each transition happens once and is one that the table of states allows
  - no late reply is accepted, and each timer has one recovery
  - no attempt is past its budget or before its backoff
  - undo is complete and in its order
  - each input is used once
  - no event was changed or lost after it was written

Exit code 0: all are kept. 1: one is broken; the faults and the timeline of the first broken task are shown.
Nothing is written, and the system may be running. Events are compared with the records of the inboxes as
far as those still exist: inboxes are trimmed after consumption.

--since and --until select tasks by the time of their submission. Each is checked from its first event to its
current end. The log is read from --since on; events of other tasks are only counted, and so is a task whose
first event was lost.

The hash of an event is in the next event of its task, or in itself if none has to follow. Two changes can't be
seen: one of the newest event of an open task, until the next event is written, and one by somebody who
computes all hashes again.

With --data-dir it checks the directory of a 'waybill up' that isn't running, or a copy of it, down to the
checksum of each batch. Corruption on the disk is reported with partition, offset, task and file. A
transaction that a kill left open is aborted first, as 'waybill up' does. If settings name both a directory and brokers,
the brokers' log is checked.

With --file it checks a file of 'waybill export': each line by its checksum, and that the file is complete.

A finished task takes about 500 bytes of memory. Partitions are checked in parallel, one for each processor. Check a
log that is too large for memory in parts, with --partition, or with --since and --until.`,
		Example: `  waybill verify
  waybill verify --since 24h --late-timers 1s
  waybill verify --data-dir copy-of-data`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd, &o) },
	}
	o.historyTool.flags(cmd)
	o.timeRange.flags(cmd, "only tasks submitted")
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "check the log in the directory of a 'waybill up' that isn't running")
	f.IntSliceVar(&o.partitions, "partition", nil, "only these partitions (default: all)")
	f.DurationVar(&o.latest, "late-timers", 0, "report a timer as a fault if it fires later than this (default: only show it)")
	f.DurationVar(&o.tolerance, "late-replies", -1, "report a reply as a fault if it was written later than this after complete-by (default: only show it)")
	hideDefault(f, "late-replies")
	o.profiles.flags(f, "the reading")
	for _, name := range []string{"cpuprofile", "memprofile"} { // for developers
		_ = f.MarkHidden(name) // can't fail: the flag exists
	}
	return cmd
}

// chooseLog selects the log to verify. One on the command line wins over those in settings. Among settings,
// --data-dir comes last: the same settings serve other verbs, for which the directory is their own.
func (o *verifyOptions) chooseLog(cmd *cobra.Command) {
	named := func(name string) bool { return onCommandLine(cmd, name) }
	dir, file, brokers, cluster := named("data-dir"), named("file"), named("brokers"), named("kafka-config")
	switch {
	case dir && !file && !brokers:
		o.file, o.brokers = "", nil
	case (brokers || cluster) && !file && !dir:
		o.file, o.dataDir = "", ""
	case !dir && (o.file != "" || o.brokers != nil || o.properties != ""):
		o.dataDir = ""
	}
}

func runVerify(cmd *cobra.Command, o *verifyOptions) error {
	if err := o.output.check(); err != nil {
		return err
	}
	o.chooseLog(cmd)
	if o.latest < 0 {
		return usage("--late-timers %s: must not be negative", o.latest)
	}
	ended, err := o.profiles.start()
	if err != nil {
		return err
	}
	view, err := o.verify(cmd)
	if err = errors.Join(err, ended()); err != nil {
		return err
	}
	err = o.printObject(cmd.OutOrStdout(), view, func(out io.Writer) error { return verifiedTable(out, view) })
	if err == nil && view.Broken > 0 {
		return fmt.Errorf("%d faults: the log breaks a guarantee", view.Broken)
	}
	return err
}

// verify checks the log, a directory, or a file.
func (o *verifyOptions) verify(cmd *cobra.Command) (*verifyResult, error) {
	options := verify.Options{LatestBy: o.latest, ReplyTolerance: o.tolerance, Whole: true}
	if o.tolerance < 0 {
		options.ReplyTolerance = math.MaxInt64
	}
	var err error
	if options.Since, options.Until, err = o.bounds(time.Now()); err != nil {
		return nil, err
	}
	switch {
	case o.dataDir != "":
		return o.verifyDirectory(cmd, options)
	case o.file != "":
		return o.verifyFile(cmd, options)
	}
	return o.verifyLog(cmd, options)
}

// verifyLog checks the log of the brokers.
func (o *verifyOptions) verifyLog(cmd *cobra.Command, options verify.Options) (*verifyResult, error) {
	l, err := o.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	v := &verification{logbook: l}
	if err := v.choosePartitions(o.partitions); err != nil {
		return nil, err
	}
	options.Namespace, options.Partitions, options.Inputs = l.cfg.Namespace, l.partitions, true
	return v.run(cmd.Context(), options)
}

// verifyDirectory checks the log of an embedded broker that isn't running. It starts the broker meanwhile. The
// broker refuses to start on a corrupt log, and says where it is corrupt.
func (o *verifyOptions) verifyDirectory(cmd *cobra.Command, options verify.Options) (_ *verifyResult, err error) {
	if o.file != "" || o.brokers != nil {
		return nil, usage("verify checks one log: --data-dir, --file or --brokers")
	}
	if _, err := os.Stat(local.LogDir(o.dataDir)); err != nil {
		return nil, exit(exitUsage, "--data-dir %s: not the directory of a `waybill up`: %w", o.dataDir, err)
	}
	broker, err := local.OpenLog(o.dataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	o.connection = connection{brokers: []string{broker.Addr()}, namespace: o.namespace} // other connection settings are for other brokers
	return o.verifyLog(cmd, options)
}

// verification is one check of the log.
type verification struct {
	*logbook
	parts []int32
}

// choosePartitions selects the partitions of --partition; nil means all.
func (v *verification) choosePartitions(partitions []int) error {
	for _, p := range partitions {
		if p < 0 || p >= int(v.partitions) {
			return usage("--partition %d: the namespace %s has the partitions 0 to %d", p, v.cfg.Namespace, v.partitions-1)
		}
		if !slices.Contains(v.parts, int32(p)) {
			v.parts = append(v.parts, int32(p))
		}
	}
	if partitions == nil {
		for p := range v.partitions {
			v.parts = append(v.parts, p)
		}
	}
	slices.Sort(v.parts)
	return nil
}

// run reads the inboxes first, then the events, and the dead letters last: an input that was consumed before
// its event was read has left its dead letter by then. An input consumed after the inboxes were read may have
// been forwarded behind that point. So run first records the end of the events.
func (v *verification) run(ctx context.Context, o verify.Options) (*verifyResult, error) {
	ns := v.cfg.Namespace
	kept, err := v.offsets(ctx, "start", ns.Deadletters(), v.admin.StartOffsets)
	if err != nil {
		return nil, err
	}
	there, err := v.offsets(ctx, "committed end", ns.Events(), v.admin.KnownCommittedEndOffsets)
	if err != nil {
		return nil, err
	}
	o.Deadletters = !slices.ContainsFunc(slices.Collect(maps.Values(kept)), func(start int64) bool { return start > 0 })
	if o.TopicIDs, err = v.admin.InboxTopicIDs(ctx); err != nil {
		return nil, err
	}
	checkers := checkersOf(v.parts, o)
	for p, c := range checkers {
		c.EventsThere(p, there[p])
	}
	for i := range events.Inboxes {
		if err := v.readInbox(ctx, checkers, i); err != nil {
			return nil, err
		}
	}
	places, err := v.read(ctx, ns.Events(), kafka.Range{Partitions: v.parts, Since: o.Since, Concurrent: true, ReuseBuffers: true, Corrupt: corruptOf(checkers)}, func(r *events.Record) error {
		checkers[r.Partition].Event(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := mergeCheckers(checkers, o)
	_, err = v.read(ctx, ns.Deadletters(), kafka.Range{ReuseBuffers: true}, func(r *events.Record) error {
		c.Deadletter(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v.readIncomplete(ns.Deadletters()) {
		c.DeadlettersMissing()
	}
	report := c.Finish(time.Now())
	view := newVerifyResult(report, v.parts, places)
	if line := report.Timeline(); line != nil {
		view.Timeline, err = v.readTimeline(ctx, line)
	}
	return view.withRange(o), err
}

// corruptOf returns a handler that passes unreadable ranges to the checker of their partition.
func corruptOf(checkers map[int32]*verify.Checker) func(*kafka.CorruptError) {
	return func(d *kafka.CorruptError) {
		checkers[d.Partition].Corrupt(d.Topic, d.Partition, d.Offset, d.Keys, d.Error())
	}
}

// checkersOf creates a checker for each partition. They run in parallel.
func checkersOf(parts []int32, o verify.Options) map[int32]*verify.Checker {
	checkers := make(map[int32]*verify.Checker, len(parts))
	for _, p := range parts {
		checkers[p] = verify.New(o)
	}
	return checkers
}

// mergeCheckers merges the checkers in the order of the partitions.
func mergeCheckers(checkers map[int32]*verify.Checker, o verify.Options) *verify.Checker {
	all := verify.New(o)
	for _, p := range slices.Sorted(maps.Keys(checkers)) {
		all.Merge(checkers[p])
	}
	return all
}

// offsets requests one kind of offset of each partition of a topic.
func (v *verification) offsets(ctx context.Context, what, topic string, ask func(context.Context, string) (map[int32]int64, error)) (at map[int32]int64, err error) {
	err = v.askBrokers(ctx, func(ctx context.Context) error {
		at, err = ask(ctx, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", what, topic, err)
	}
	return at, nil
}

// readInbox feeds the records of an inbox. The inbox may be trimmed meanwhile.
func (v *verification) readInbox(ctx context.Context, checkers map[int32]*verify.Checker, i events.Inbox) error {
	topic := v.cfg.Namespace.Inbox(i)
	first := make(map[int32]*int64, len(v.parts)) // first offset by partition; each element is used by one goroutine
	for _, p := range v.parts {
		none := int64(-1)
		first[p] = &none
	}
	in := kafka.Range{Partitions: v.parts, Concurrent: true, ReuseBuffers: true, Corrupt: corruptOf(checkers), Trimmed: func(p int32, start int64) { *first[p] = start }}
	places, err := v.read(ctx, topic, in, func(r *events.Record) error {
		if at := first[r.Partition]; *at < 0 {
			*at = r.Offset
		}
		checkers[r.Partition].Input(r)
		return nil
	})
	for p, at := range places {
		from := *first[p]
		if from < 0 {
			from = at.next
		}
		checkers[p].InputsRead(i, p, from, at.next)
	}
	return err
}

// readTimeline reads the events around a fault.
func (v *verification) readTimeline(ctx context.Context, line *verify.Timeline) ([]events.Line, error) {
	p := line.Fault.Partition
	if line.Fault.Task != "" && line.Fault.Topic != "events" {
		p = v.partition(line.Fault.Task)
	}
	_, err := v.read(ctx, v.cfg.Namespace.Events(), kafka.Range{Partitions: []int32{p}, Corrupt: func(*kafka.CorruptError) {}}, func(r *events.Record) error {
		line.Add(r)
		return nil
	})
	return line.Lines(), err
}

// verifyResult is the result as it is printed. Offsets are strings because they may exceed 2^53.
type verifyResult struct {
	Tasks       int                      `json:"tasks"`
	States      map[events.TaskState]int `json:"states"`
	Events      int                      `json:"events"`
	Inputs      int                      `json:"inputs"`       // still in the inboxes
	Pending     int                      `json:"pending"`      // upper bound of those not consumed yet: an input without an effect leaves no trace
	Unreadable  int                      `json:"unreadable"`   // inputs that can't be used
	Deadletters int                      `json:"dead_letters"` // of inputs
	Overdue     int                      `json:"overdue"`      // timers of open tasks that are due
	Recoveries  struct {
		Accepted int `json:"accepted"`
		Rejected int `json:"rejected"` // only of inputs still in the inbox
	} `json:"recoveries"`
	Lateness struct {
		Timers int   `json:"timers"`
		P50    int64 `json:"p50_ms"`
		P99    int64 `json:"p99_ms"`
		Max    int64 `json:"max_ms"`
	} `json:"lateness"`
	LateReplies struct {
		Count int   `json:"count"` // only of inputs still in the inbox
		Max   int64 `json:"max_ms"`
	} `json:"late_replies"`
	Range    *verifiedRange  `json:"range,omitempty"`
	Broken   int             `json:"broken"`
	Faults   []verifiedFault `json:"faults"`   // the first faults
	Timeline []events.Line   `json:"timeline"` // events around the first broken task's fault
	AsOf     []events.AsOf   `json:"as_of"`

	others int // events of skipped tasks
}

// verifiedRange is the time range of --since and --until.
type verifiedRange struct {
	Since       *string `json:"since"`
	Until       *string `json:"until"`
	OtherEvents int     `json:"other_events"` // events of skipped tasks
}

// withRange adds the time range, if there is one.
func (v *verifyResult) withRange(o verify.Options) *verifyResult {
	if o.Since.IsZero() && o.Until.IsZero() {
		return v
	}
	v.Range = &verifiedRange{Since: events.InstantText(o.Since), Until: events.InstantText(o.Until), OtherEvents: v.others}
	return v
}

// verifiedFault is one broken guarantee.
type verifiedFault struct {
	Promise   string `json:"promise"`
	Task      string `json:"task,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"`
	Offset    string `json:"offset,omitempty"`
	What      string `json:"what"`
}

func newVerifyResult(r *verify.Report, parts []int32, places map[int32]readPosition) *verifyResult {
	v := &verifyResult{Tasks: r.Tasks, States: r.States, Events: r.Events, Inputs: r.Inputs, Pending: r.Pending, Unreadable: r.Unreadable,
		Deadletters: r.Deadletters, Overdue: r.Overdue, Broken: r.Broken, others: r.Others, Faults: []verifiedFault{}, Timeline: []events.Line{}}
	v.Recoveries.Accepted, v.Recoveries.Rejected = r.Recoveries.Accepted, r.Recoveries.Rejected
	v.Lateness.Timers, v.Lateness.P50 = r.Lateness.Timers, r.Lateness.P50.Milliseconds()
	v.Lateness.P99, v.Lateness.Max = r.Lateness.P99.Milliseconds(), r.Lateness.Max.Milliseconds()
	v.LateReplies.Count, v.LateReplies.Max = r.LateReplies, r.LatestReply.Milliseconds()
	for _, f := range r.Faults {
		x := verifiedFault{Promise: f.Promise, Task: f.Task, Topic: f.Topic, Partition: f.Partition, What: f.What}
		if f.Topic != "" {
			x.Offset = strconv.FormatInt(f.Offset, 10)
		}
		v.Faults = append(v.Faults, x)
	}
	for _, p := range parts {
		v.AsOf = append(v.AsOf, events.AsOf{Partition: p, Offset: strconv.FormatInt(places[p].next, 10)})
	}
	return v
}

// atMost formats an upper bound.
func atMost(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("at most %d", n)
}

// faultsShown bounds the faults in a table; json and jsonl have more.
const faultsShown = 10

// verifiedTable prints the result.
func verifiedTable(out io.Writer, v *verifyResult) error {
	w := newTable(out, "")
	w.row("Tasks", statesText(v.States))
	if r := v.Range; r != nil {
		w.row("Submitted", fmt.Sprintf("%s to %s; %d events of other tasks were skipped", dash(tableTime(r.Since)), dash(tableTime(r.Until)), r.OtherEvents))
	}
	w.row("Events", fmt.Sprintf("%d, of %d partitions", v.Events, len(v.AsOf)))
	w.row("Inputs", fmt.Sprintf("%d in the inboxes, %s of them not consumed yet; %d dead letters", v.Inputs, atMost(v.Pending), v.Deadletters))
	w.row("Timers", fmt.Sprintf("%d fired, late by %d ms (p50), %d ms (p99), %d ms (max); %d are due",
		v.Lateness.Timers, v.Lateness.P50, v.Lateness.P99, v.Lateness.Max, v.Overdue))
	if n := v.LateReplies.Count; n > 0 {
		w.row("Late replies", fmt.Sprintf("%d, the latest %d ms after its complete-by", n, v.LateReplies.Max))
	}
	w.row("Faults", strconv.Itoa(v.Broken))
	if err := w.Flush(); err != nil || v.Broken == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "GUARANTEE TASK AT WHAT")
	for i, f := range v.Faults {
		if i == faultsShown {
			break
		}
		at := "-"
		if f.Topic != "" {
			at = fmt.Sprintf("%s/%d/%s", f.Topic, f.Partition, f.Offset)
		}
		w.row(f.Promise, dash(idText(f.Task)), at, shorten(f.What, 200))
	}
	if err := w.Flush(); err != nil || len(v.Timeline) == 0 {
		return err
	}
	fmt.Fprintln(out)
	for i := range v.Timeline {
		l := &v.Timeline[i]
		l.Type, l.Step = printable(l.Type), printable(l.Step)
	}
	return printTimeline(out, v.Timeline)
}
