package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/text"
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
  - no attempt exceeds its budget or starts before its backoff has ended
  - undo is complete and in the right order
  - each input is used once
  - no event was changed or lost after it was written

Exit code 0: all are kept. 1: one is broken; the faults and the timeline of the first broken task are shown.
Nothing is written to the brokers, and the system may be running. Events are compared with the records of the
inboxes as far as those still exist: inboxes are trimmed after consumption. An input that led to nothing must have a dead
letter. If the oldest dead letters were deleted (they are kept for 30 days), only inputs that came after the oldest
kept one are checked; "Not checked" counts the others.

--since and --until select tasks by the time of their submission. Each is checked from its first event to its
current end. The log is read from --since on; events of other tasks are only counted, and so is a task whose
first event was lost.

The hash of an event is in the next event of its task, or in itself if none has to follow. Two changes can't be
detected: one of the newest event of an open task, until the next event is written, and one by a writer that
recomputes all hashes.

With --data-dir it checks the directory of a 'waybill up' that isn't running, or a copy of it, down to the
checksum of each batch. Corruption on the disk is reported with partition, offset, task and file. First it
repairs there what a kill left, as 'waybill up' does: for example, it aborts open transactions. If settings name
both a directory and brokers, the brokers' log is checked.

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
		return fmt.Errorf("%s: the log breaks a guarantee", text.Count(view.Broken, "fault"))
	}
	return err
}

// verify checks the log, a directory, or a file.
func (o *verifyOptions) verify(cmd *cobra.Command) (*verify.Result, error) {
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
func (o *verifyOptions) verifyLog(cmd *cobra.Command, options verify.Options) (*verify.Result, error) {
	l, err := o.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	parts, err := l.choosePartitions(o.partitions)
	if err != nil {
		return nil, err
	}
	options.Namespace, options.Partitions, options.Inputs = l.cfg.Namespace, l.partitions, true
	v := logVerification{logbook: l, parts: parts}
	return v.run(cmd.Context(), options)
}

// verifyDirectory checks the log of an embedded broker that isn't running. It starts the broker meanwhile. The
// broker refuses to start on a corrupt log, and says where it is corrupt.
func (o *verifyOptions) verifyDirectory(cmd *cobra.Command, options verify.Options) (_ *verify.Result, err error) {
	if o.file != "" || o.brokers != nil {
		return nil, usage("verify checks one log: --data-dir, --file or --brokers")
	}
	if _, err := os.Stat(local.LogDir(o.dataDir)); err != nil {
		return nil, exit(exitUsage, "--data-dir %s: not the directory of a `waybill up`: %w", o.dataDir, err)
	}
	broker, err := local.OpenLog(o.dataDir, endProcess)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	o.connection = connection{brokers: []string{broker.Addr()}, namespace: o.namespace} // other connection settings are for other brokers
	return o.verifyLog(cmd, options)
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
func verifiedTable(out io.Writer, v *verify.Result) error {
	w := newTable(out, "")
	w.row("Tasks", statesText(v.States))
	if r := v.Range; r != nil {
		w.row("Submitted", fmt.Sprintf("%s to %s; %s of other tasks skipped", dash(tableTime(r.Since)), dash(tableTime(r.Until)), text.Count(r.OtherEvents, "event")))
	}
	w.row("Events", fmt.Sprintf("%d, of %s", v.Events, text.Count(len(v.AsOf), "partition")))
	w.row("Inputs", fmt.Sprintf("%d in the inboxes, %s of them not consumed yet; %s", v.Inputs, atMost(v.Pending), text.Count(v.Deadletters, "dead letter")))
	if v.Unchecked > 0 {
		why := "dead letters are missing"
		if v.DeadlettersSince != nil {
			why = "dead letters from before " + tableTime(v.DeadlettersSince) + " may have been deleted"
		}
		w.row("Not checked", fmt.Sprintf("%s that led to no event: %s", text.Count(v.Unchecked, "consumed input"), why))
	}
	w.row("Timers", fmt.Sprintf("%d fired, late by %d ms (p50), %d ms (p99), %d ms (max); %d due",
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
		w.row(f.Promise, dash(idText(f.Task)), at, text.Shorten(f.What, 200))
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
