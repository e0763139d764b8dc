package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
)

// historyTool is a tool that reads events: of the log, or of a file that
// `waybill export` wrote, without a broker.
type historyTool struct {
	tool
	file string
}

func (t *historyTool) flags(cmd *cobra.Command) {
	t.tool.flags(cmd)
	cmd.Flags().StringVar(&t.file, "file", "", "read a file of 'waybill export' (-: standard input) instead of the log")
}

// askingTool is one about one task, of which a console knows the events.
type askingTool struct {
	historyTool
	api apiFlags
}

func (t *askingTool) flags(cmd *cobra.Command) {
	t.historyTool.flags(cmd)
	t.api.flags(cmd)
}

// named is the console that the user named; nil: none.
func (t *askingTool) named(cmd *cobra.Command) (*apiClient, error) {
	c, err := t.api.named()
	switch {
	case c != nil && t.file != "":
		return nil, usage("--file reads a file, and --api asks a console: one of them")
	case c != nil:
		t.expect(cmd, c)
	}
	return c, err
}

// eventSource is where events come from.
type eventSource interface {
	// read gives fn the events of a task's partition (id empty: of all), in the
	// order of their partition. lost is told of those that aren't as they were written, in
	// their place, but of several partitions at once; nil: they end the read.
	read(ctx context.Context, id string, fn func(*events.Record) error, lost func(*kafka.DamagedError)) error
	// head says where they are from.
	head() replay.Head
	// warnings is for what isn't data.
	warnings() io.Writer
	close()
}

// openHistory opens the file, or connects.
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
		f.first, f.stdin.Changed = f.stdin.Head(), f.changed
		return f, nil
	}
	return f, f.each(nil) // learns the head
}

// logHistory is the events topic.
type logHistory struct {
	*logbook
	places   map[int32]place // where the last read ended
	console  *apiClient      // knows where a task's events are; nil: the partition is read
	unledToo bool            // partitions that no broker leads are left out, which the logbook's partial says
}

func (h *logHistory) read(ctx context.Context, id string, fn func(*events.Record) error, lost func(*kafka.DamagedError)) (err error) {
	in := kafka.Range{Damaged: h.passing(lost)}
	if id != "" && h.console != nil {
		records, _, err := h.console.history(ctx, id)
		if err == nil {
			for i := range records {
				h.places = map[int32]place{records[i].Partition: {records[i].Offset + 1, records[i].Time}}
				if err := fn(&records[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if !h.console.fallBack(h.note, err) {
			return err
		}
	}
	if id != "" {
		in.Partitions = []int32{h.partition(id)}
	}
	if h.unledToo {
		in.Unavailable = h.without(h.cfg.Namespace.Events())
	}
	h.places, err = h.logbook.read(ctx, h.cfg.Namespace.Events(), in, fn)
	return err
}

// passing is kafka.Range.Damaged of who shows the rest, and is told of each; nil: nobody does.
func (l *logbook) passing(lost func(*kafka.DamagedError)) func(*kafka.DamagedError) {
	if lost == nil {
		return nil
	}
	return func(d *kafka.DamagedError) {
		l.tellDamaged(d)
		lost(d)
	}
}

// tellDamaged says of what can't be read, of each once, that it can't.
func (l *logbook) tellDamaged(d *kafka.DamagedError) {
	l.damage.Lock() // several partitions are read at once
	defer l.damage.Unlock()
	at := fmt.Sprintf("%s/%d/%d", d.Topic, d.Partition, d.Offset)
	if l.damaged[at] {
		return
	}
	if l.damaged == nil {
		l.damaged = map[string]bool{}
	}
	l.damaged[at] = true
	fmt.Fprintf(l.note, "waybill: what is shown is without some events: %s; `waybill verify` names all such\n", printable(d.Error()))
}

func (h *logHistory) head() replay.Head {
	return replay.Head{Namespace: h.cfg.Namespace, Partitions: h.partitions}
}

func (h *logHistory) warnings() io.Writer { return h.note }

// fileHistory is an exported file, or standard input, which can be read once.
type fileHistory struct {
	path  string
	stdin *replay.Reader // nil: read the file at path, each time from its start
	note  io.Writer
	first replay.Head
	noted bool // that a line isn't as it was exported
	cut   bool // it was said that it isn't whole
	lacks bool // it was said what it was exported without
}

// without says once of a file that it was exported without some tasks.
func (h *fileHistory) without(w *replay.Without) {
	if w != nil && !h.lacks {
		h.lacks = true
		_, _ = fmt.Fprintf(h.note, "waybill: %s: %s\n", h.path, printable(w.Error())) // likewise
	}
}

// changed says once of a file that it isn't as it was exported: it is shown as it is.
func (h *fileHistory) changed(e *replay.ChangedError) {
	if !h.noted {
		h.noted = true
		_, _ = fmt.Fprintf(h.note, "waybill: %s: %s; `waybill verify --file` names all such\n", h.path, printable(e.Error())) // a note that can't be written is no reason to stop
	}
}

// whole says once of a file that it isn't whole: what is left of it is shown.
func (h *fileHistory) whole(err error) error {
	cut, is := errors.AsType[*replay.CutError](err)
	if !is {
		return err
	}
	if !h.cut {
		h.cut = true
		_, _ = fmt.Fprintf(h.note, "waybill: %s isn't whole: %s\n", h.path, cut) // likewise
	}
	return nil
}

func (h *fileHistory) read(ctx context.Context, _ string, fn func(*events.Record) error, _ func(*kafka.DamagedError)) error {
	until := func(r *events.Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(r)
	}
	if h.stdin != nil {
		h.without(h.stdin.Without())
		return h.whole(h.stdin.Each(until))
	}
	return h.each(until)
}

// each opens the file and gives fn its records; fn nil: only the head is read.
func (h *fileHistory) each(fn func(*events.Record) error) error {
	f, err := os.Open(h.path)
	if err != nil {
		return exit(exitUsage, "--file: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	r, err := replay.NewReader(f)
	if err == nil && fn != nil {
		h.without(r.Without())
		r.Changed = h.changed
		err = h.whole(r.Each(fn))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.path, err)
	}
	h.first = r.Head()
	return nil
}

func (h *fileHistory) head() replay.Head { return h.first }

func (h *fileHistory) warnings() io.Writer { return h.note }

func (h *fileHistory) close() {}

// openOne begins a tool about one task.
func (t *askingTool) openOne(cmd *cobra.Command, args []string) (id string, h eventSource, err error) {
	if id, err = idArgument(args); err != nil {
		return "", nil, err
	}
	c, err := t.named(cmd)
	switch {
	case err != nil:
		return "", nil, err
	case c != nil:
		return id, &askedHistory{console: c, note: cmd.ErrOrStderr()}, nil
	}
	if h, err = t.openHistory(cmd); err != nil {
		return "", nil, err
	}
	if l, is := h.(*logHistory); is {
		l.console = t.api.found(cmd.Context(), l.logbook)
	}
	return id, h, nil
}

// notThere says that no event of a task was found.
func (t *historyTool) notThere(id string) error {
	if t.file != "" {
		return exit(exitNotFound, "no task %q in %s", id, t.file)
	}
	return notFound(id)
}

// noEvent tells of a record that can't be an event.
func noEvent(note io.Writer, r *events.Record, err error) {
	fmt.Fprintf(note, "waybill: %s is no event: %s\n", events.Origin(r), printable(err.Error()))
}
