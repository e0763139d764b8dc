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
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/verify"
)

type verifyOptions struct {
	historyTool
	span
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
		Short: "Check that the log keeps what Waybill promises",
		Long: `Read the log to its end as of now, and check that it keeps what Waybill promises: each transition
once and by the table, no late reply accepted, one recovery for each timer, no attempt past its
budget or before its backoff, undo in its order and whole, every input used once, nothing that was
changed or lost since it was written.

Events are held against the records of the inboxes as far as these are still there: they are
trimmed once they are consumed, and what is gone is no fault. Nothing is changed, and the system
may be running.

--since and --until check the tasks that were submitted between them, each to its end or as far as
it is. The log is read from --since on, so of the others nothing can be said: how many events they
have is shown, and a task whose first event was lost counts as one of them.

The hash of an event is in the next one of its task, and in itself where none need follow. So what can't
be seen is a change of the newest event of a task at work, until the next one comes, and of any
event if all hashes were made anew.

With --data-dir it checks the log in the directory of a ` + "`waybill up`" + ` that isn't running, or in a copy of
one, down to the checksum of each batch of records: what was changed on the disk is named by its partition,
offset, task and file. What a kill left open there is rolled back first, as ` + "`up`" + ` does. Where
settings name a directory and brokers, for other commands, the brokers' log is checked.

With --file it checks the events that ` + "`waybill export`" + ` wrote, without what only the log can
tell, each line by its checksum, and whether the file is whole. A task that has ended takes about 500
bytes of memory. Partitions are checked side by side, by all processors (GOMAXPROCS). A log that is
too large for memory is checked a few partitions at a time (--partition), or by --since and --until.

Exit code 0 if no promise is broken. 1 if one is: then the faults are shown, and the timeline of the
first broken task.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd, &o) },
	}
	o.historyTool.flags(cmd)
	o.span.flags(cmd, "only tasks submitted")
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "check the log in this directory of 'waybill up', which isn't running")
	f.IntSliceVar(&o.partitions, "partition", nil, "only these partitions (default all)")
	f.DurationVar(&o.latest, "late-timers", 0, "a timer that fires later after its due is a fault (default: shown only)")
	f.DurationVar(&o.tolerance, "late-replies", -1, "a reply that was written later after its attempt's complete-by is a fault (default: shown only)")
	hideDefault(f, "late-replies")
	o.profiles.flags(f, "the reading's")
	for _, name := range []string{"cpuprofile", "memprofile"} { // for who makes it faster
		_ = f.MarkHidden(name) // it exists: flags has just added it
	}
	return cmd
}

// choose keeps one log to verify. A log that the command line names goes before those that settings name. Of those
// a directory comes last: the same settings are for other verbs, and for those it is their own.
func (o *verifyOptions) choose(cmd *cobra.Command) {
	named := func(name string) bool { return typed(cmd, name) }
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
	o.choose(cmd)
	if o.latest < 0 {
		return usage("--late-timers %s: a duration has no sign", o.latest)
	}
	ended, err := o.profiles.begin()
	if err != nil {
		return err
	}
	view, err := o.verify(cmd)
	if err = errors.Join(err, ended()); err != nil {
		return err
	}
	err = o.printObject(cmd.OutOrStdout(), view, func(out io.Writer) error { return verifiedTable(out, view) })
	if err == nil && view.Broken > 0 {
		return fmt.Errorf("%d faults: the log doesn't keep what is promised", view.Broken)
	}
	return err
}

// verify checks the log, or a file.
func (o *verifyOptions) verify(cmd *cobra.Command) (*verified, error) {
	options := verify.Options{LatestBy: o.latest, ReplyTolerance: o.tolerance, Whole: true}
	if o.tolerance < 0 {
		options.ReplyTolerance = math.MaxInt64
	}
	var err error
	if options.Since, options.Until, err = o.instants(time.Now()); err != nil {
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

// verifyLog checks what the brokers have.
func (o *verifyOptions) verifyLog(cmd *cobra.Command, options verify.Options) (*verified, error) {
	l, err := o.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	v := &verification{logbook: l}
	if err := v.choose(o.partitions); err != nil {
		return nil, err
	}
	options.Namespace, options.Partitions, options.Inputs = l.cfg.Namespace, l.partitions, true
	return v.run(cmd.Context(), options)
}

// verifyDirectory checks the log of an embedded broker that doesn't run: it runs for that
// long. It doesn't start on a log that isn't as it was written, and says where.
func (o *verifyOptions) verifyDirectory(cmd *cobra.Command, options verify.Options) (_ *verified, err error) {
	if o.file != "" || o.brokers != nil {
		return nil, usage("verify checks one log: --data-dir, --file or --brokers")
	}
	dir := kafkaDir(o.dataDir)
	if _, err := os.Stat(dir); err != nil {
		return nil, exit(exitUsage, "--data-dir %s: not the directory of a `waybill up`: %w", o.dataDir, err)
	}
	broker, err := embedded.Start(embedded.Options{DataDir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	broker.Open()
	o.connection = connection{brokers: []string{broker.Addr()}, namespace: o.namespace} // what else is set is for another
	return o.verifyLog(cmd, options)
}

// verification is one reading of the log.
type verification struct {
	*logbook
	parts []int32
}

// choose takes the partitions that were asked for; none: all.
func (v *verification) choose(partitions []int) error {
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

// run reads the inboxes first, and the dead letters last: what was consumed when
// the events were read has left its dead letter by then. What was consumed since the
// inboxes were read may have been forwarded past that, so it asks before up to where
// there are events.
func (v *verification) run(ctx context.Context, o verify.Options) (*verified, error) {
	ns := v.cfg.Namespace
	kept, err := v.offsets(ctx, "start", ns.Deadletters(), v.admin.StartOffsets)
	if err != nil {
		return nil, err
	}
	there, err := v.offsets(ctx, "committed end", ns.Events(), v.admin.CommittedEndsKnown)
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
		if err := v.inbox(ctx, checkers, i); err != nil {
			return nil, err
		}
	}
	places, err := v.read(ctx, ns.Events(), kafka.Range{Partitions: v.parts, Since: o.Since, Apart: true, Lend: true, Damaged: damagedOf(checkers)}, func(r *events.Record) error {
		checkers[r.Partition].Event(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := merged(checkers, o)
	_, err = v.read(ctx, ns.Deadletters(), kafka.Range{Lend: true}, func(r *events.Record) error {
		c.Deadletter(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v.wasHeld(ns.Deadletters()) {
		c.DeadlettersMissing()
	}
	report := c.Finish(time.Now())
	view := verifiedOf(report, v.parts, places)
	if line := report.Timeline(); line != nil {
		view.Timeline, err = v.timeline(ctx, line)
	}
	return view.within(o), err
}

// damagedOf tells the checker of each partition what can't be read of it.
func damagedOf(checkers map[int32]*verify.Checker) func(*kafka.DamagedError) {
	return func(d *kafka.DamagedError) {
		checkers[d.Partition].Damaged(d.Topic, d.Partition, d.Offset, d.Keys, d.Error())
	}
}

// checkersOf makes one for each partition: they are fed side by side.
func checkersOf(parts []int32, o verify.Options) map[int32]*verify.Checker {
	checkers := make(map[int32]*verify.Checker, len(parts))
	for _, p := range parts {
		checkers[p] = verify.New(o)
	}
	return checkers
}

// merged is one checker that has seen what all have, in the order of the partitions.
func merged(checkers map[int32]*verify.Checker, o verify.Options) *verify.Checker {
	all := verify.New(o)
	for _, p := range slices.Sorted(maps.Keys(checkers)) {
		all.Merge(checkers[p])
	}
	return all
}

// offsets is what the brokers say of each partition of a topic now.
func (v *verification) offsets(ctx context.Context, what, topic string, ask func(context.Context, string) (map[int32]int64, error)) (at map[int32]int64, err error) {
	err = v.patiently(ctx, func(ctx context.Context) error {
		at, err = ask(ctx, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", what, topic, err)
	}
	return at, nil
}

// inbox feeds what is left of an inbox, which may be trimmed meanwhile.
func (v *verification) inbox(ctx context.Context, checkers map[int32]*verify.Checker, i events.Inbox) error {
	topic := v.cfg.Namespace.Inbox(i)
	first := make(map[int32]*int64, len(v.parts)) // offset, by partition: each is one goroutine's
	for _, p := range v.parts {
		none := int64(-1)
		first[p] = &none
	}
	in := kafka.Range{Partitions: v.parts, Apart: true, Lend: true, Damaged: damagedOf(checkers), Trimmed: func(p int32, start int64) { *first[p] = start }}
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

// timeline reads the events around a fault.
func (v *verification) timeline(ctx context.Context, line *verify.Timeline) ([]events.Line, error) {
	p := line.Fault.Partition
	if line.Fault.Task != "" && line.Fault.Topic != "events" {
		p = v.partition(line.Fault.Task)
	}
	_, err := v.read(ctx, v.cfg.Namespace.Events(), kafka.Range{Partitions: []int32{p}, Damaged: func(*kafka.DamagedError) {}}, func(r *events.Record) error {
		line.Add(r)
		return nil
	})
	return line.Lines(), err
}

// verified is what is printed of a verification. Offsets are strings: they pass
// 2^53.
type verified struct {
	Tasks       int                      `json:"tasks"`
	States      map[events.TaskState]int `json:"states"`
	Events      int                      `json:"events"`
	Inputs      int                      `json:"inputs"`       // still in the inboxes
	Pending     int                      `json:"pending"`      // of those, not consumed yet, at most: what led to nothing doesn't show it
	Poison      int                      `json:"poison"`       // of those, can't be used
	Deadletters int                      `json:"dead_letters"` // of inputs
	Overdue     int                      `json:"overdue"`      // timers of open tasks that are due
	Recoveries  struct {
		Accepted int `json:"accepted"`
		Rejected int `json:"rejected"` // of those still in the inbox
	} `json:"recoveries"`
	Lateness struct {
		Timers int   `json:"timers"`
		P50    int64 `json:"p50_ms"`
		P99    int64 `json:"p99_ms"`
		Max    int64 `json:"max_ms"`
	} `json:"lateness"`
	LateReplies struct {
		Count int   `json:"count"` // of those still in the inbox
		Max   int64 `json:"max_ms"`
	} `json:"late_replies"`
	Range    *verifiedRange  `json:"range,omitempty"`
	Broken   int             `json:"broken"`
	Faults   []verifiedFault `json:"faults"`   // the first of them
	Timeline []events.Line   `json:"timeline"` // of the first broken task, around its fault
	AsOf     []events.AsOf   `json:"as_of"`

	others int // events of tasks that weren't looked at
}

// verifiedRange says which tasks were looked at, by when they were submitted.
type verifiedRange struct {
	Since       *string `json:"since"`
	Until       *string `json:"until"`
	OtherEvents int     `json:"other_events"` // of tasks that weren't
}

// within says what was looked at, if that isn't all.
func (v *verified) within(o verify.Options) *verified {
	if o.Since.IsZero() && o.Until.IsZero() {
		return v
	}
	v.Range = &verifiedRange{Since: events.InstantText(o.Since), Until: events.InstantText(o.Until), OtherEvents: v.others}
	return v
}

// verifiedFault is one broken promise.
type verifiedFault struct {
	Promise   string `json:"promise"`
	Task      string `json:"task,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"`
	Offset    string `json:"offset,omitempty"`
	What      string `json:"what"`
}

func verifiedOf(r *verify.Report, parts []int32, places map[int32]place) *verified {
	v := &verified{Tasks: r.Tasks, States: r.States, Events: r.Events, Inputs: r.Inputs, Pending: r.Pending, Poison: r.Poison,
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

// atMost is a count that may be less.
func atMost(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("at most %d", n)
}

// faultsShown is how many faults a table shows; json and jsonl have more.
const faultsShown = 10

// verifiedTable shows a verification to people.
func verifiedTable(out io.Writer, v *verified) error {
	w := newTable(out, "")
	w.row("Tasks", statesText(v.States))
	if r := v.Range; r != nil {
		w.row("Submitted", fmt.Sprintf("%s to %s; %d events of other tasks were not looked at", dash(tableTime(r.Since)), dash(tableTime(r.Until)), r.OtherEvents))
	}
	w.row("Events", fmt.Sprintf("%d, of %d partitions", v.Events, len(v.AsOf)))
	w.row("Inputs", fmt.Sprintf("%d in the inboxes, %s of them to be consumed; %d dead letters", v.Inputs, atMost(v.Pending), v.Deadletters))
	w.row("Timers", fmt.Sprintf("%d fired, late by %d ms (half of them), %d ms (99 of 100), %d ms (all); %d are due",
		v.Lateness.Timers, v.Lateness.P50, v.Lateness.P99, v.Lateness.Max, v.Overdue))
	if n := v.LateReplies.Count; n > 0 {
		w.row("Late replies", fmt.Sprintf("%d, the latest %d ms after its complete-by", n, v.LateReplies.Max))
	}
	w.row("Faults", strconv.Itoa(v.Broken))
	if err := w.Flush(); err != nil || v.Broken == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "PROMISE TASK AT WHAT")
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
