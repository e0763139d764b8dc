package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

type exportOptions struct {
	connection
	timeRange
	out string
}

func newExport() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [ID...]",
		Short: "Write events to a file, to replay them without a broker",
		Long: `Write events to a file as JSON lines: all events, those of some tasks, or those of tasks submitted between
--since and --until. The claims of partitions are included. 'waybill task list', 'waybill timeline',
'waybill replay' and 'waybill verify' read the file with --file.

Every byte of a record is kept, so that hashes can be checked. Each line has a checksum, and the last line
has the number of lines: an edited or truncated file is detected.

If an event of a task can't be read because of corruption on a broker's disk, the whole task is left out and
named, also in the file's first line. The exit code is then 7.`,
		Example: `  waybill export order-1 --out order-1.jsonl
  waybill replay order-1 --file order-1.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return runExport(cmd, &o, args) },
	}
	o.connection.flags(cmd)
	o.timeRange.flags(cmd, "only tasks submitted")
	cmd.Flags().StringVar(&o.out, "out", "", "file to write; it must not exist (default: standard output)")
	return cmd
}

func runExport(cmd *cobra.Command, o *exportOptions, args []string) error {
	x := &exporting{ids: map[string]bool{}}
	for _, id := range args {
		if err := events.CheckTaskID(id); err != nil {
			return exit(exitUsage, "task %w", err)
		}
		x.ids[id] = false
	}
	var err error
	if x.from, x.until, err = o.bounds(time.Now()); err != nil {
		return err
	}
	if x.ranged() && len(args) > 0 {
		return usage("export: give task ids, or --since and --until, not both")
	}
	t := tool{connection: o.connection}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	return o.write(cmd, &logHistory{logbook: l}, x)
}

// write exports to the file of --out or to standard output. A file is complete, except for tasks that its head
// lists as left out, or it is removed.
func (o *exportOptions) write(cmd *cobra.Command, h eventSource, x *exporting) error {
	if o.out == "" {
		out := &countingWriter{out: cmd.OutOrStdout()}
		x.restart = out.errIfWritten
		left, err := x.run(cmd, h, out)
		if err != nil {
			return err
		}
		return left.partialError()
	}
	f, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return exit(exitUsage, "--out: %w", err)
	}
	x.restart = func() error {
		_, err := f.Seek(0, io.SeekStart)
		return cmp.Or(err, f.Truncate(0))
	}
	left, err := x.run(cmd, h, f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(o.out) // a partial file could be taken for a complete one
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s in %s\n", text.Count(x.events, "event"), text.Count(len(x.taken), "task"), o.out)
	return left.partialError()
}

// countingWriter counts the bytes written to an output that can't be overwritten.
type countingWriter struct {
	out io.Writer
	n   int
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.out.Write(b)
	c.n += n
	return n, err
}

// errIfWritten returns an error if bytes were written.
func (c *countingWriter) errIfWritten() error {
	if c.n == 0 {
		return nil
	}
	return exit(exitUnreachable, "the output is incomplete: it lacks its last line, and has events of the tasks listed above as left out. Discard it, and export to a file with --out, which omits those tasks")
}

// exporting is one export.
type exporting struct {
	ids         map[string]bool // selected ids, and whether they were found; empty: all
	from, until time.Time       // bounds of the submission time; zero: none
	restart     func() error    // empties the output
	left        *leftOut        // tasks that aren't exported; nil: not known yet
	submitted   map[string]bool // whether tasks with a readable first event are in the range
	headless    map[string]bool // tasks without a readable first event
	taken       map[string]bool // exported tasks
	events      int
}

func (x *exporting) ranged() bool { return !x.from.IsZero() || !x.until.IsZero() }

// singleTask returns the id of the task to export, or "" if there are several: then all partitions are read.
func (x *exporting) singleTask() string {
	if len(x.ids) == 1 {
		for id := range x.ids {
			return id
		}
	}
	return ""
}

// run writes the export. If events can't be read, it starts again without the tasks that may have lost an
// event.
func (x *exporting) run(cmd *cobra.Command, h eventSource, out io.Writer) (*leftOut, error) {
	gone := &unreadableEvents{}
	p, err := x.writePass(cmd.Context(), h, out, replay.Without{}, gone)
	if err != nil {
		return nil, err
	}
	left, err := gone.findLeftOut(cmd.Context(), h, x.singleTask(), x.concerns)
	if err != nil {
		return nil, err
	}
	if len(x.ids) > 0 {
		left.unnamed = nil // only the selected tasks matter
	}
	left.warn(cmd.ErrOrStderr())
	if err := x.checkFound(cmd.ErrOrStderr(), left); err != nil {
		return nil, err
	}
	x.left = left
	switch partial := left.partialError(); {
	case partial == nil:
		return left, p.end()
	case len(x.ids) > 0 && len(left.tasks) == len(x.ids):
		return nil, partial
	}
	if err := x.restart(); err != nil {
		return nil, err
	}
	again := &unreadableEvents{}
	if p, err = x.writePass(cmd.Context(), h, out, left.exportHead(gone), again); err != nil {
		return nil, err
	}
	if more := again.notIn(gone); more != nil {
		return nil, fmt.Errorf("more events became unreadable during the export; run it again: %w", more.Err)
	}
	return left, p.end()
}

// checkFound reports tasks that weren't found, and tasks whose time of submission is unknown.
func (x *exporting) checkFound(note io.Writer, left *leftOut) error {
	for id, seen := range x.ids {
		if !seen && !left.contains(id) {
			return notFound(id)
		}
	}
	n := 0
	for id := range x.headless {
		if !left.contains(id) {
			n++
		}
	}
	if n > 0 {
		fmt.Fprintf(note, "waybill: %d tasks are left out: their first event can't be read, so the time of their submission is unknown; "+
			"without --since and --until they are there, and `waybill verify` says what is wrong\n", n)
	}
	return nil
}

// exportPass is a file that is written except for its last line.
type exportPass struct {
	to *bufio.Writer
	w  *replay.Writer
}

func (p *exportPass) end() error {
	if err := p.w.End(); err != nil {
		return err
	}
	return p.to.Flush()
}

// writePass reads the source once, and writes the selected events that can be read.
func (x *exporting) writePass(ctx context.Context, h eventSource, out io.Writer, without replay.Without, gone *unreadableEvents) (*exportPass, error) {
	x.submitted, x.headless, x.taken, x.events = map[string]bool{}, map[string]bool{}, map[string]bool{}, 0
	p := &exportPass{to: bufio.NewWriterSize(out, 1<<20)}
	p.w = replay.NewWriter(p.to, h.head())
	p.w.SetWithout(without)
	err := h.read(ctx, x.singleTask(), func(r *events.Record) error {
		if !x.wants(r) {
			return nil
		}
		x.events++
		return p.w.Write(r)
	}, gone.add)
	return p, err
}

// concerns reports whether a task that is left out was selected, as far as is known.
func (x *exporting) concerns(id string, _ *events.Task) bool {
	if len(x.ids) > 0 {
		_, asked := x.ids[id]
		return asked
	}
	in, known := x.submitted[id]
	return !x.ranged() || in || !known
}

// wants reports whether a record is exported. Claims of partitions are, because they name the owners of tasks.
// An export of all tasks contains every record, also unusable ones, so that the file shows what is wrong with a
// log.
func (x *exporting) wants(r *events.Record) bool {
	id := string(r.Key)
	wanted := true
	switch {
	case id == "":
		return true
	case x.left != nil && x.left.contains(id):
		return false
	case len(x.ids) > 0:
		if _, wanted = x.ids[id]; wanted {
			x.ids[id] = true
		}
	case x.ranged():
		wanted = x.inRange(id, r)
	}
	if wanted {
		x.taken[id] = true
	}
	return wanted
}

// inRange reports whether a task was submitted within the range. It is known from the task's first event, which
// precedes the others unless it was lost.
func (x *exporting) inRange(id string, r *events.Record) bool {
	if _, seq, err := events.EventName(r); err == nil && seq == 1 {
		x.submitted[id] = x.submitted[id] || !x.from.After(r.Time) && (x.until.IsZero() || !r.Time.After(x.until))
	}
	in, known := x.submitted[id]
	if !known {
		x.headless[id] = true
	}
	return in
}
