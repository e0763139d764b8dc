package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
)

type redriveOptions struct {
	tool
	sinceFlag
	reasons []string
	execute bool
}

func newRedrive() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "redrive [PARTITION/OFFSET...]",
		Short: "Write dead letters to their original topics again",
		Long: `Write the original records of dead letters to the inboxes, or the notifications, that they came from. Do
this when the reason is fixed: when a missing workflow has been applied, for example. Select dead
letters by PARTITION/OFFSET, as 'waybill deadletters -o json' shows them, or by --reason or --since.
Without --execute the command only shows what it would do.

The value and the CloudEvents headers are those of the original. A record that would become a dead letter
again is refused: its bytes were cut or can't be read, its key names another task, its id belongs to
another submission, or it was redriven before and became a later dead letter, which counts instead. If a
record that was named by PARTITION/OFFSET is refused, --execute exits with 8.

A second redrive changes nothing: a task id, an attempt and a request id count once.`,
		Example: `  waybill deadletters redrive --reason unknown_workflow
  waybill deadletters redrive --reason unknown_workflow --execute
  waybill deadletters redrive 4/17 --execute`,
		RunE: func(cmd *cobra.Command, args []string) error { return runRedrive(cmd, &o, args) },
	}
	o.tool.flags(cmd)
	o.sinceFlag.flags(cmd, "only dead letters since")
	cmd.Flags().StringSliceVar(&o.reasons, "reason", nil, "only dead letters with one of these reasons")
	commandLineOnly(cmd.Flags(), "reason")
	cmd.Flags().BoolVar(&o.execute, "execute", false, "write the records; without it, only show what would be written")
	return cmd
}

// redriveResult is a dead letter and what was done with it, as it is printed.
type redriveResult struct {
	Partition int32  `json:"partition"`
	Offset    string `json:"offset"`
	Reason    string `json:"reason"`
	Task      string `json:"task"`
	To        string `json:"to"`
	Done      string `json:"done"` // written, would_write or refused
	Why       string `json:"why"`  // reason of a refusal

	at  deadletterPosition
	sum string // digest of the original record
}

// The values of redriveResult.Done.
const (
	redriveWritten = "written"
	redriveWould   = "would_write"
	redriveRefused = "refused"
)

func runRedrive(cmd *cobra.Command, o *redriveOptions, args []string) error {
	if err := o.output.check(); err != nil {
		return err
	}
	places, err := parsePositions(args)
	if err != nil {
		return err
	}
	if err := checkReasons(o.reasons); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	if o.execute && len(places) == 0 && len(o.reasons) == 0 && from.IsZero() {
		return usage("redrive --execute: select dead letters by position, --reason or --since; without --execute it lists all")
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	list, err := chooseRedriven(cmd.Context(), l, places, o.reasons, from)
	if err != nil {
		return err
	}
	if o.execute {
		if err := writeRedriven(cmd.Context(), l, list, from); err != nil {
			return err
		}
	}
	err = printList(&o.output, cmd.OutOrStdout(), "DEADLETTER REASON TASK TO DONE WHY", list, func(d redriveResult) []string {
		return []string{strconv.Itoa(int(d.Partition)) + "/" + d.Offset, d.Reason, dash(idText(d.Task)), dash(shorten(d.To, 60)), d.Done, dash(shorten(d.Why, 160))}
	})
	if n := countRefused(list); err == nil && o.execute && len(places) > 0 && n > 0 {
		return exit(exitRefused, "%d of the %d named dead letters can't be written again; WHY says the reason of each", n, len(list))
	}
	return err
}

// countRefused counts the dead letters that can't be written again.
func countRefused(list []redriveResult) (n int) {
	for i := range list {
		if list[i].Done == redriveRefused {
			n++
		}
	}
	return n
}

// deadletterPosition is the position of a dead letter in its topic.
type deadletterPosition struct {
	partition int32
	offset    int64
}

func parsePositions(args []string) (map[deadletterPosition]bool, error) {
	places := map[deadletterPosition]bool{}
	for _, arg := range args {
		// Causes of events have the same form, after the inbox's name.
		at, err := events.ParseCause(events.Tasks.String() + "/" + arg)
		if err != nil {
			return nil, usage("%q: the position of a dead letter is PARTITION/OFFSET, as 3/17; `waybill deadletters -o json` shows them", arg)
		}
		places[deadletterPosition{at.Partition, at.Offset}] = false
	}
	return places, nil
}

// chooseRedriven reads the selected dead letters, and decides on each.
func chooseRedriven(ctx context.Context, l *logbook, places map[deadletterPosition]bool, reasons []string, from time.Time) ([]redriveResult, error) {
	var list []redriveResult
	newer := redriveChain{map[deadletterPosition]redriveOf{}, map[string]deadletterPosition{}}
	_, err := l.read(ctx, l.cfg.Namespace.Deadletters(), kafka.Range{Since: from}, func(r *events.Record) error {
		d, at := console.ViewDeadletter(r), deadletterPosition{r.Partition, r.Offset}
		newer.add(r, at, d.SHA256)
		if _, named := places[at]; len(places) > 0 && !named || len(reasons) > 0 && !slices.Contains(reasons, d.Reason) {
			return nil
		}
		if len(places) > 0 {
			places[at] = true
		}
		x := redriveResult{Partition: d.Partition, Offset: d.Offset, Reason: d.Reason, Task: d.Key, Done: redriveWould, at: at, sum: d.SHA256}
		again, err := events.Redrive(l.cfg.Namespace, toolSource, r)
		if err != nil {
			x.Done, x.Why = redriveRefused, err.Error()
		} else {
			x.Task, x.To = string(again.Key), again.Topic
		}
		list = append(list, x)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for at, seen := range places {
		if !seen {
			return nil, exit(exitNotFound, "no dead letter %d/%d, or not one with that reason or since then; `waybill deadletters -o json` shows them", at.partition, at.offset)
		}
	}
	newer.refuse(list)
	// Partitions are read in parallel, each in order.
	slices.SortStableFunc(list, func(a, b redriveResult) int { return cmp.Compare(a.Partition, b.Partition) })
	return list, nil
}

// redriveChain finds dead letters that are redrives of others. Only the last one can be redriven. Otherwise each
// earlier one would write the same record again.
type redriveChain struct {
	of            map[deadletterPosition]redriveOf
	notifications map[string]deadletterPosition // the last position of each notification
}

// redriveOf is the latest redrive of a dead letter.
type redriveOf struct {
	at  deadletterPosition
	sum string
}

func (rs *redriveChain) add(r *events.Record, at deadletterPosition, sum string) {
	if p, offset, again := events.RedriveOf(r); again {
		rs.of[deadletterPosition{p, offset}] = redriveOf{at, sum}
	}
	if name := events.NotificationOf(r); name != "" { // notifications with one key are in one partition, in order
		if before, again := rs.notifications[name]; again {
			rs.of[before] = redriveOf{at, sum}
		}
		rs.notifications[name] = at
	}
}

// refuse marks dead letters that were already redriven as refused.
func (rs *redriveChain) refuse(list []redriveResult) {
	for i := range list {
		x := &list[i]
		if again, is := rs.of[x.at]; is && again.sum == x.sum && x.Done == redriveWould {
			x.Done, x.Why = redriveRefused, fmt.Sprintf("it was written again already, and is now dead letter %d/%d", again.at.partition, again.at.offset)
		}
	}
}

// redriveRecords and redriveBytes bound the records that are written together, and so held in memory.
const (
	redriveRecords = 1000
	redriveBytes   = 16 << 20
)

// redriveWriter writes dead letters again while it reads their topic a second time. The topic may not fit into
// memory.
type redriveWriter struct {
	logbook *logbook
	send    func(context.Context, ...events.Record) error
	left    map[deadletterPosition]*redriveResult // not read yet
	read    []*redriveResult                      // read, and to be written together
	records []events.Record
	bytes   int
}

// writeRedriven writes the dead letters that aren't refused, in order within each partition. After an error it
// is safe to run it again: a record that is written twice counts once.
func writeRedriven(ctx context.Context, l *logbook, list []redriveResult, from time.Time) error {
	if err := l.writable(); err != nil {
		return err
	}
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	w := redriveWriter{logbook: l, send: producer.Send, left: map[deadletterPosition]*redriveResult{}}
	for i := range list {
		if list[i].Done == redriveWould {
			w.left[list[i].at] = &list[i]
		}
	}
	_, err = l.read(ctx, l.cfg.Namespace.Deadletters(), kafka.Range{Since: from}, func(r *events.Record) error { return w.add(ctx, r) })
	if err == nil {
		err = w.write(ctx)
	}
	for _, d := range w.left {
		if err == nil {
			d.Done, d.Why = redriveRefused, "it isn't there any more"
		}
	}
	return err
}

// add adds a dead letter if it is one of those to write.
func (w *redriveWriter) add(ctx context.Context, r *events.Record) error {
	at := deadletterPosition{r.Partition, r.Offset}
	d := w.left[at]
	if d == nil {
		return nil
	}
	again, err := events.Redrive(w.logbook.cfg.Namespace, toolSource, r)
	if err != nil {
		return fmt.Errorf("dead letter %d/%d has changed since it was selected: %w", at.partition, at.offset, err)
	}
	delete(w.left, at)
	w.read, w.records, w.bytes = append(w.read, d), append(w.records, again), w.bytes+len(again.Value)
	if len(w.records) < redriveRecords && w.bytes < redriveBytes {
		return nil
	}
	return w.write(ctx)
}

// write writes the dead letters added so far.
func (w *redriveWriter) write(ctx context.Context) error {
	if len(w.records) == 0 {
		return nil
	}
	err := w.logbook.askBrokers(ctx, func(ctx context.Context) error { return w.send(ctx, w.records...) })
	if err != nil {
		first := w.read[0].at
		return fmt.Errorf("not all of %d dead letters from %d/%d on were written: %w; run it again: a record that is written twice counts once",
			len(w.read), first.partition, first.offset, err)
	}
	for _, d := range w.read {
		d.Done = redriveWritten
	}
	clear(w.records)
	w.read, w.records, w.bytes = w.read[:0], w.records[:0], 0
	return nil
}
