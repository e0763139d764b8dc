package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
)

type timelineOptions struct {
	oneTaskTool
	follow bool
}

func newTimeline() *cobra.Command {
	var o timelineOptions
	cmd := &cobra.Command{
		Use:   "timeline ID",
		Short: "Show every event of a task, in the order of the log",
		Long: `Show every event of a task, in the order of the log, with partition and offset. Use it to see what happened
and when.

WAIT is the time from when an attempt could start to its start: its backoff is part of it, a hold is not.
WORK is the time that the agent took, LEFT what was left until the deadline, and INSTANCE the process of the
agent that replied.

A record of the task that is not a valid event is shown with type 'poison', with a note that says why; so is
one that can't be read because of corruption on a broker's disk. Other lines are not affected. --follow
continues with new events until the task has ended or is held.`,
		Example: `  waybill timeline order-7
  waybill timeline order-7 --follow`,
		Args: arguments("a task's id"),
		RunE: func(cmd *cobra.Command, args []string) error { return runTimeline(cmd, &o, args) },
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.follow, "follow", false, "continue with new events as they arrive (table or jsonl)")
	return cmd
}

func runTimeline(cmd *cobra.Command, o *timelineOptions, args []string) error {
	if err := o.output.check(); err != nil {
		return err
	}
	switch {
	case o.follow && o.format == formatJSON:
		return usage("--follow prints events as they arrive, and -o json prints one value; use -o jsonl")
	case o.follow && o.file != "":
		return usage("--follow and --file can't be combined: a file doesn't grow")
	}
	id, h, err := o.openTask(cmd, args)
	if err != nil {
		return err
	}
	defer h.close()
	t := &timeline{options: o, id: id, note: h.warnings()}
	err = h.read(cmd.Context(), id, func(r *events.Record) error {
		t.addRecord(r)
		return nil
	}, t.addUnreadable)
	switch {
	case err != nil:
		return err
	case len(t.lines) == 0:
		return o.taskNotFound(id)
	}
	if err := t.show(cmd.OutOrStdout()); err != nil || !o.follow {
		return err
	}
	if h, asked := h.(*consoleHistory); asked {
		return t.followConsole(cmd.Context(), h, cmd.OutOrStdout())
	}
	return t.followLog(cmd.Context(), h.(*logHistory), cmd.OutOrStdout())
}

// timeline is a timeline that is printed, and optionally followed.
type timeline struct {
	options *timelineOptions
	id      string
	note    io.Writer
	lines   []timelineLine
	shown   int // number of printed lines
	ended   bool
}

// timelineLine is an event of a task; with Error set, it is a record that isn't an event.
type timelineLine struct {
	events.Line
	Error string `json:"error,omitempty"`
}

// addRecord adds a record of the task.
func (t *timeline) addRecord(r *events.Record) {
	if string(r.Key) != t.id {
		return
	}
	line, err := events.TimelineLine(r)
	if err != nil {
		warnNotAnEvent(t.note, r, err)
		t.addLine(timelineLine{replay.PoisonLine(r), err.Error()})
		return
	}
	if _, err := time.Parse(time.RFC3339, line.At); err != nil && t.options.format == formatTable {
		line.At = r.Time.UTC().Format(events.TimeLayout)
	}
	t.addLine(timelineLine{Line: line})
}

// addUnreadable adds a line for a range that can't be read, at its position.
func (t *timeline) addUnreadable(d *kafka.DamagedError) {
	if d.Of(t.id) {
		t.addLine(timelineLine{replay.LostLine(d.Partition, d.Offset), d.Error()})
	}
}

// addLine adds a line.
func (t *timeline) addLine(line timelineLine) {
	if t.options.format == formatTable {
		line.Type, line.Step = printable(line.Type), printable(line.Step)
	}
	t.lines = append(t.lines, line)
	switch shortType(line.Type) {
	case "task.processed", "task.undone", "task.cancelled", "task.held":
		t.ended = true
	case "task.resumed", "task.undoing":
		t.ended = false
	}
}

// show prints the lines that weren't printed yet.
func (t *timeline) show(out io.Writer) error {
	from := t.shown
	t.shown = len(t.lines)
	if t.options.format == formatTable {
		lines := make([]events.Line, len(t.lines))
		for i := range t.lines {
			lines[i] = t.lines[i].Line
		}
		return printTimelineFrom(out, lines, from)
	}
	return printList(&t.options.output, out, "", t.lines[from:], nil)
}

// followConsole prints new events from a console's stream until the task has ended or is held.
func (t *timeline) followConsole(ctx context.Context, h *consoleHistory, out io.Writer) error {
	return h.follow(ctx, t.id, func(line timelineLine) error {
		t.addLine(line)
		return t.show(out)
	}, func() bool { return t.ended })
}

// followLog prints new events of the log until the task has ended or is held.
func (t *timeline) followLog(ctx context.Context, h *logHistory, out io.Writer) error {
	news := &tail{log: h.logbook, topic: h.cfg.Namespace.Events(), places: h.places, waitForLeaders: true}
	return h.pollUntil(ctx, func() (bool, error) {
		any, err := news.poll(ctx, t.addRecord)
		if err == nil && len(t.lines) > t.shown {
			err = t.show(out)
		}
		return any, err
	}, func() bool { return t.ended })
}
