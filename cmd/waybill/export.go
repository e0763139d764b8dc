package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

type exportOptions struct {
	connection
	span
	out string
}

func newExport() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [ID...]",
		Short: "Write the events of tasks to a file, for replay without a broker",
		Long: `Write events as lines of JSON: all, whatever is wrong with them, those of some tasks, or those of
tasks submitted between --since and --until, with all that happened to them. The claims of
partitions are among them. Every byte of a record is kept, so that its chain of hashes can be
checked. Each line has a checksum, and the last one says how many there are, so that a file that was
edited or cut off is known.

  waybill export order-1 --out order-1.jsonl
  waybill replay order-1 --file order-1.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return runExport(cmd, &o, args) },
	}
	o.connection.flags(cmd)
	o.span.flags(cmd, "only tasks submitted")
	cmd.Flags().StringVar(&o.out, "out", "", "the file to write; it must not be there (default: standard output)")
	return cmd
}

func runExport(cmd *cobra.Command, o *exportOptions, args []string) error {
	if err := settle(cmd); err != nil {
		return err
	}
	x := &exporting{ids: map[string]bool{}}
	for _, id := range args {
		if err := events.CheckTaskID(id); err != nil {
			return exit(exitUsage, "task %w", err)
		}
		x.ids[id] = false
	}
	var err error
	if x.from, x.until, err = o.instants(time.Now()); err != nil {
		return err
	}
	if x.ranged() && len(args) > 0 {
		return usage("export: tasks by their ids, or by --since and --until; not both")
	}
	t := tool{connection: o.connection}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	return o.write(cmd, &logHistory{logbook: l}, x)
}

// write writes to where it was asked for. A file is there whole, or not at all.
func (o *exportOptions) write(cmd *cobra.Command, h eventSource, x *exporting) error {
	if o.out == "" {
		return x.run(cmd, h, cmd.OutOrStdout())
	}
	f, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return exit(exitUsage, "--out: %w", err)
	}
	err = x.run(cmd, h, f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(o.out) // half a file would be taken for a whole one; the error is said
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d events of %d tasks in %s\n", x.events, len(x.taken), o.out)
	return nil
}

// exporting is one run of export.
type exporting struct {
	ids         map[string]bool // that were asked for, and whether they were seen; empty: all
	from, until time.Time       // of submission; zero: no bound
	submitted   map[string]bool // in the range? Of tasks whose first event was seen
	headless    map[string]bool // the others
	taken       map[string]bool // tasks that are exported
	events      int
}

func (x *exporting) ranged() bool { return !x.from.IsZero() || !x.until.IsZero() }

func (x *exporting) run(cmd *cobra.Command, h eventSource, out io.Writer) error {
	x.submitted, x.headless, x.taken = map[string]bool{}, map[string]bool{}, map[string]bool{}
	buffered := bufio.NewWriterSize(out, 1<<20)
	w := replay.NewWriter(buffered, h.head())
	id := "" // all partitions
	if len(x.ids) == 1 {
		for only := range x.ids {
			id = only
		}
	}
	err := h.read(cmd.Context(), id, func(r *events.Record) error {
		if !x.wants(r) {
			return nil
		}
		x.events++
		return w.Write(r)
	}, nil)
	if err != nil {
		return err
	}
	for id, seen := range x.ids {
		if !seen {
			return notFound(id)
		}
	}
	if n := len(x.headless); n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "waybill: %d tasks are left out: the log has no first event of them that can be read, so it can't be told when they were submitted; "+
			"without --since and --until they are there, and `waybill verify` says what is wrong\n", n)
	}
	if err := w.End(); err != nil {
		return err
	}
	return buffered.Flush()
}

// wants reports whether a record is to be exported. The claims of partitions are:
// they say who owned a task. Of all tasks, everything is: what is wrong with a log is to
// be found in the file, too.
func (x *exporting) wants(r *events.Record) bool {
	id := string(r.Key)
	wanted := true
	switch {
	case id == "":
		return true
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

// inRange reports whether a task was submitted in the range, as far as is known: its first
// event comes first, if the log has it.
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
