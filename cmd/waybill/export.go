package main

import (
	"cmp"
	"errors"
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
named, in the output and in the file's first line. The exit code is then 7.`,
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
	x := &replay.Export{IDs: args}
	for _, id := range args {
		if err := events.CheckTaskID(id); err != nil {
			return exit(exitUsage, "task %w", err)
		}
	}
	var err error
	if x.From, x.Until, err = o.bounds(time.Now()); err != nil {
		return err
	}
	if !(x.From.IsZero() && x.Until.IsZero()) && len(args) > 0 {
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
func (o *exportOptions) write(cmd *cobra.Command, h replay.Source, x *replay.Export) error {
	if o.out == "" {
		out := &countingWriter{out: cmd.OutOrStdout()}
		x.Restart = out.errIfWritten
		_, err := runExportTo(cmd, h, x, out)
		return err
	}
	f, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return exit(exitUsage, "--out: %w: remove it, or name another one", err)
	case err != nil:
		return exit(exitUsage, "--out: %w", err)
	}
	x.Restart = func() error {
		_, err := f.Seek(0, io.SeekStart)
		return cmp.Or(err, f.Truncate(0))
	}
	done, err := runExportTo(cmd, h, x, f)
	if closed := f.Close(); closed != nil {
		done, err = nil, closed
	}
	if done == nil {
		_ = os.Remove(o.out) // a partial file could be taken for a complete one
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s in %s\n", text.Count(done.Events, "event"), text.Count(done.Tasks, "task"), o.out)
	return err
}

// runExportTo runs an export, and prints what is left out. It returns nil if the output isn't usable. The error may also
// say that the output is incomplete.
func runExportTo(cmd *cobra.Command, h replay.Source, x *replay.Export, out io.Writer) (*replay.Exported, error) {
	done, err := x.Run(cmd.Context(), h, out)
	if done.Omission != nil {
		warnLeftOut(cmd.ErrOrStderr(), done.Omission)
	}
	missing, is := errors.AsType[*replay.NotFoundError](err)
	switch {
	case is:
		return nil, notFound(missing.Task)
	case errors.Is(err, replay.ErrAllOmitted):
		return nil, leftOutError(done.Omission)
	case err != nil:
		return nil, err
	}
	if done.Headless > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "waybill: %s %s left out: the first event of each can't be read, so the time of its submission is unknown; "+
			"export without --since and --until to include them; `waybill verify` says what is wrong\n", text.Count(done.Headless, "task"), text.Verb(done.Headless, "is", "are"))
	}
	return &done, leftOutError(done.Omission)
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
