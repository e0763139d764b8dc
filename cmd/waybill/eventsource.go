package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/replay"
)

// historyTool is a tool that reads events from the log or from a file of `waybill export`.
type historyTool struct {
	tool
	file string
}

func (t *historyTool) flags(cmd *cobra.Command) {
	t.tool.flags(cmd)
	cmd.Flags().StringVar(&t.file, "file", "", fileUsage)
}

const fileUsage = "read a file of 'waybill export' (-: standard input) instead of the log"

// oneTaskTool is a historyTool for one task. A console can provide the events, too.
type oneTaskTool struct {
	historyTool
	api apiFlags
}

func (t *oneTaskTool) flags(cmd *cobra.Command) {
	t.historyTool.flags(cmd)
	t.api.flags(cmd)
}

// namedConsole returns the console that --api names, or nil.
func (t *oneTaskTool) namedConsole(cmd *cobra.Command) (*apiClient, error) {
	c, err := t.api.namedConsole()
	switch {
	case c != nil && t.file != "":
		return nil, usage("--file reads a file, not a console: omit --api and WAYBILL_API, or use --api off")
	case c != nil:
		t.expectSystem(cmd, c)
	}
	return c, err
}

// eventSource is a replay.Source with an output for notes. It must be closed.
type eventSource interface {
	replay.Source
	// warnings is the output for notes.
	warnings() io.Writer
	close()
}

// openHistory opens the file, or connects to the brokers.
func (t *historyTool) openHistory(cmd *cobra.Command) (eventSource, error) {
	if t.file == "" {
		l, err := t.open(cmd)
		if err != nil {
			return nil, err
		}
		return &logHistory{logbook: l}, nil
	}
	f := &fileHistory{path: t.file, note: cmd.ErrOrStderr()}
	if t.file == "-" {
		var err error
		if f.stdin, err = replay.NewReader(cmd.InOrStdin()); err != nil {
			return nil, exit(exitUsage, "--file -: %w", err)
		}
		f.first, f.stdin.Changed = f.stdin.Head(), f.warnChanged
		return f, nil
	}
	return f, f.each(nil) // reads the head
}

// logHistory is the eventSource of the events topic.
type logHistory struct {
	*logbook
	console         *apiClient // provides the offsets of a task's events; nil: the whole partition is read
	allowLeaderless bool       // skip partitions without a leader; partialError reports them
}

func (h *logHistory) Read(ctx context.Context, id string, fn func(*events.Record) error, lost func(replay.Loss)) (err error) {
	in := logreader.Range{Corrupt: h.corruptionHandler(lost)}
	if id != "" && h.console != nil {
		records, _, err := h.console.history(ctx, id)
		if err == nil {
			for i := range records {
				if err := fn(&records[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if !h.console.shouldReadLog(ctx, h.note, err) {
			return err
		}
	}
	if id != "" {
		in.Partitions = []int32{h.partition(id)}
	}
	if h.allowLeaderless {
		in.Unavailable = h.skipLeaderless(h.cfg.Namespace.Events())
	}
	_, err = h.logbook.read(ctx, h.cfg.Namespace.Events(), in, fn)
	return err
}

// corruptionHandler returns the logreader.Range.Corrupt of a read that continues after corruption: it warns and
// calls lost. It returns nil, which ends the read, if lost is nil.
func (l *logbook) corruptionHandler(lost func(replay.Loss)) func(*logreader.CorruptError) {
	if lost == nil {
		return nil
	}
	return func(d *logreader.CorruptError) {
		l.warnCorrupt(d)
		lost(lossOf(d))
	}
}

// warnCorrupt warns of records that can't be read, once for each place.
func (l *logbook) warnCorrupt(d *logreader.CorruptError) {
	l.corruption.Lock() // several partitions are read concurrently
	defer l.corruption.Unlock()
	at := fmt.Sprintf("%s/%d/%d", d.Topic, d.Partition, d.Offset)
	if l.corrupt[at] {
		return
	}
	if l.corrupt == nil {
		l.corrupt = map[string]bool{}
	}
	l.corrupt[at] = true
	fmt.Fprintf(l.note, "waybill: some events are missing from the output: %s; `waybill verify` lists all of them\n", printable(d.Error()))
}

func (h *logHistory) Head() replay.Head {
	return replay.Head{Namespace: h.cfg.Namespace, Partitions: h.partitions}
}

func (h *logHistory) warnings() io.Writer { return h.note }

// fileHistory is the eventSource of an exported file. Standard input can be read once only.
type fileHistory struct {
	path   string
	stdin  *replay.Reader // nil: read the file at path, each time from its start
	note   io.Writer
	first  replay.Head
	reader *replay.Reader // of the read that goes on
	noted  bool           // warnChanged has warned
	cut    bool           // warnIncomplete has warned
	lacks  bool           // warnWithout has warned
}

// warnWithout warns once that the file was exported without some tasks.
func (h *fileHistory) warnWithout(w *replay.Without) {
	if w != nil && !h.lacks {
		h.lacks = true
		_, _ = fmt.Fprintf(h.note, "waybill: %s: %s\n", h.path, printable(w.Error())) // a failed note doesn't stop the read
	}
}

// warnChanged warns once that a line differs from what was exported. The line is used as it is.
func (h *fileHistory) warnChanged(e *replay.ChangedError) {
	if !h.noted {
		h.noted = true
		_, _ = fmt.Fprintf(h.note, "waybill: %s: %s; `waybill verify --file` lists all such lines\n", h.path, printable(e.Error())) // a failed note doesn't stop the read
	}
}

// warnIncomplete warns once that the file is incomplete. Its readable lines are used.
func (h *fileHistory) warnIncomplete(err error) error {
	cut, is := errors.AsType[*replay.CutError](err)
	if !is {
		return err
	}
	if !h.cut {
		h.cut = true
		_, _ = fmt.Fprintf(h.note, "waybill: %s is incomplete: %s\n", h.path, cut) // a failed note doesn't stop the read
	}
	return nil
}

func (h *fileHistory) Read(ctx context.Context, _ string, fn func(*events.Record) error, _ func(replay.Loss)) error {
	until := func(r *events.Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(r)
	}
	if h.stdin != nil {
		h.warnWithout(h.stdin.Without())
		return h.warnIncomplete(h.stdin.Each(until))
	}
	return h.each(until)
}

// each passes the records of the file to fn. With a nil fn it reads the head only.
func (h *fileHistory) each(fn func(*events.Record) error) error {
	f, err := os.Open(h.path)
	if err != nil {
		return exit(exitUsage, "--file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read: an error on close loses nothing
	r, err := replay.NewReader(f)
	h.reader = r
	if err == nil && fn != nil {
		h.warnWithout(r.Without())
		r.Changed = h.warnChanged
		err = h.warnIncomplete(r.Each(fn))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.path, err)
	}
	h.first = r.Head()
	return nil
}

func (h *fileHistory) Head() replay.Head { return h.first }

func (h *fileHistory) warnings() io.Writer { return h.note }

func (h *fileHistory) close() {}

// openTask checks the id, and opens the source of the task's events.
func (t *oneTaskTool) openTask(cmd *cobra.Command, args []string) (id string, h eventSource, err error) {
	if id, err = idArgument(args); err != nil {
		return "", nil, err
	}
	c, err := t.namedConsole(cmd)
	switch {
	case err != nil:
		return "", nil, err
	case c != nil:
		return id, &consoleHistory{console: c, note: cmd.ErrOrStderr()}, nil
	}
	if h, err = t.openHistory(cmd); err != nil {
		return "", nil, err
	}
	if l, is := h.(*logHistory); is {
		l.console = t.api.findLocalConsole(cmd.Context(), l.logbook)
	}
	return id, h, nil
}

// taskNotFound is the error if no event of a task was found.
func (t *historyTool) taskNotFound(id string) error {
	if t.file != "" {
		return exit(exitNotFound, "no task %q in %s", id, t.file)
	}
	return notFound(id)
}
