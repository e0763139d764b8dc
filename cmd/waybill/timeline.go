package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

type timelineOptions struct {
	tool
	queryFlags
	treeFlags
	follow bool
}

func newTimeline() *cobra.Command {
	var o timelineOptions
	cmd := &cobra.Command{
		Use:   "timeline ID...",
		Short: "Show every event of a task, in the order of the log",
		Long: `Show every event of a task, in the order of the log, with partition and offset. Use it to see what happened
and when.

WAIT is the time from when an attempt could start until it started, including its backoff but not a hold.
WORK is the time that the agent took, LEFT the time left until the deadline, and INSTANCE the process of the
agent that replied.

A record of the task that is not a valid event is shown with type 'unreadable', with a note that says why; so is
one that can't be read because of corruption on a broker's disk. Other lines are not affected. --follow
continues with new events until the task has ended or is held.

--tree shows the task with its children, their children, and so on, in one timeline; the column TASK is indented
by their depth. It shows at most --tasks tasks, and --items items of each step: those that failed or are held
first. What it leaves out is counted.

Several ids are shown one after the other. With -o json they are an array with the members task and lines, and
with -o jsonl each line names its task. If one isn't found, the others are shown, and the exit code is 3.`,
		Example: `  waybill timeline order-7
  waybill timeline order-7 order-8
  waybill timeline order-7 --follow
  waybill timeline trip-1 --tree`,
		Args: severalArguments("a task's id"),
		RunE: func(cmd *cobra.Command, args []string) error { return runTimeline(cmd, &o, args) },
	}
	o.tool.flags(cmd)
	o.queryFlags.flags(cmd)
	o.fileFlag(cmd)
	o.treeFlags.flags(cmd)
	cmd.Flags().BoolVar(&o.follow, "follow", false, "continue with new events as they arrive (table or jsonl)")
	return cmd
}

func runTimeline(cmd *cobra.Command, o *timelineOptions, args []string) error {
	switch {
	case o.follow && o.format == formatJSON:
		return usage("--follow prints events as they arrive, and -o json prints one value; use -o jsonl")
	case o.follow && o.file != "":
		return usage("--follow and --file can't be combined: a file doesn't grow")
	}
	ids, err := idArguments(args)
	switch {
	case err != nil:
		return err
	case o.follow && len(ids) > 1:
		return usage("--follow follows one task; %d ids are given", len(ids))
	}
	if err := o.treeFlags.check(cmd, ids, o.follow); err != nil {
		return err
	}
	if o.tree {
		return o.query(cmd, &o.tool, indexAll, func(c *apiClient) error { return o.askTree(cmd, c, &o.output, ids[0]) })
	}
	return o.query(cmd, &o.tool, indexTasks(ids), func(c *apiClient) error {
		if len(ids) > 1 {
			return askTimelines(cmd, c, o, ids)
		}
		t := &timeline{options: o, id: ids[0], note: cmd.ErrOrStderr()}
		return t.ask(cmd, c)
	})
}

// ask prints the timeline that a console returns, and follows it.
func (t *timeline) ask(cmd *cobra.Command, c *apiClient) error {
	if err := t.read(cmd.Context(), c); err != nil {
		return err
	}
	if err := t.show(cmd.OutOrStdout()); err != nil || !t.options.follow {
		return err
	}
	c.discovered = false // no other source may begin again
	return t.follow(cmd.Context(), c, t.lines[len(t.lines)-1].offset(), cmd.OutOrStdout())
}

// read adds the lines of the timeline that a console returns.
func (t *timeline) read(ctx context.Context, c *apiClient) error {
	answer, err := c.Timeline(ctx, t.id)
	if err != nil {
		return err
	}
	lines := make([]timelineLine, 0, len(answer.Lines)+len(answer.Unreadable))
	for i := range answer.Lines {
		lines = append(lines, timelineLine{Line: answer.Lines[i]})
	}
	for i := range answer.Unreadable {
		u := &answer.Unreadable[i]
		t.warnUnreadable(u)
		lines = append(lines, timelineLine{events.Line{Seq: u.Seq, Type: replay.UnreadableType, At: u.At, Partition: u.Partition, Offset: u.Offset}, u.Error})
	}
	slices.SortFunc(lines, func(a, b timelineLine) int { return cmp.Compare(a.offset(), b.offset()) })
	for i := range lines {
		t.addLine(lines[i])
	}
	return nil
}

// follow prints the events after an offset, until the task has ended or is held.
func (t *timeline) follow(ctx context.Context, c *apiClient, after int64, out io.Writer) error {
	if t.ended {
		return nil
	}
	return c.FollowTask(ctx, t.id, after, func(e consoleapi.TaskEvent) (bool, error) {
		if e.Error != "" {
			t.warnUnreadable(&consoleapi.Unreadable{Partition: e.Partition, Offset: e.Offset, Error: e.Error})
		}
		t.addLine(timelineLine(e))
		return t.ended, t.show(out)
	})
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

// offset returns the position of a line in its partition; 0 if the console sent none.
func (l *timelineLine) offset() int64 {
	offset, _ := strconv.ParseInt(l.Offset, 10, 64)
	return offset
}

// warnUnreadable warns of a record that isn't an event.
func (t *timeline) warnUnreadable(u *consoleapi.Unreadable) {
	fmt.Fprintf(t.note, "waybill: offset %s of partition %d of the events isn't an event: %s\n", printable(u.Offset), u.Partition, printable(u.Error))
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
		if from == 0 && len(t.lines) > 0 {
			origin := originOfLine(&t.lines[0].Line)
			for _, row := range origin.rows(t.id) {
				fmt.Fprintln(out, printable(row[0]+" "+row[1]))
			}
		}
		lines := make([]events.Line, len(t.lines))
		for i := range t.lines {
			lines[i] = t.lines[i].Line
		}
		return printTimelineFrom(out, lines, from)
	}
	return printList(&t.options.output, out, "", t.lines[from:], nil)
}
