package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

// treeTasksDefault is the default of --tasks.
const treeTasksDefault = 50

// treeFlags are the flags of a timeline of a task with its children.
type treeFlags struct {
	tree         bool
	tasks, items int
}

func (o *treeFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.tree, "tree", false, "show the task with its children, their children, and so on, in one timeline")
	f.IntVar(&o.tasks, "tasks", treeTasksDefault, fmt.Sprintf("with --tree: maximum number of tasks, 1 to %d", consoleapi.PageSizeMax))
	f.IntVar(&o.items, "items", consoleapi.TreeItemsDefault, fmt.Sprintf("with --tree: maximum number of items of each step, 1 to %d", consoleapi.PageSizeMax))
	commandLineOnly(f, "tree", "tasks", "items")
}

func (o *treeFlags) check(cmd *cobra.Command, ids []string, follow bool) error {
	for _, name := range []string{"tasks", "items"} {
		if !o.tree && cmd.Flags().Changed(name) {
			return usage("--%s needs --tree", name)
		}
	}
	switch {
	case o.tree && follow:
		return usage("--tree shows what has happened so far, so it can't be combined with --follow")
	case o.tree && len(ids) > 1:
		return usage("--tree shows one task with its children; %d ids are given", len(ids))
	case o.tasks < 1 || o.tasks > consoleapi.PageSizeMax:
		return usage("--tasks %d: must be 1 to %d", o.tasks, consoleapi.PageSizeMax)
	case o.items < 1 || o.items > consoleapi.PageSizeMax:
		return usage("--items %d: must be 1 to %d", o.items, consoleapi.PageSizeMax)
	}
	return nil
}

// askTree prints the timeline of a task with its children.
func (o *treeFlags) askTree(cmd *cobra.Command, c *apiClient, format *output, id string) error {
	q := consoleapi.AtLogEnd()
	for name, value := range (url.Values{"lines": {"true"}, "page_size": {strconv.Itoa(o.tasks)}, "items": {strconv.Itoa(o.items)}}) {
		q[name] = value
	}
	var tree consoleapi.TaskTree
	if err := c.Get(cmd.Context(), consoleapi.TaskPath(id)+"/tree", q, &tree); err != nil {
		return err
	}
	if format.format != formatJSONL {
		return format.printObject(cmd.OutOrStdout(), &tree, func(out io.Writer) error { return treeTable(out, &tree) })
	}
	depths := treeDepths(&tree)
	lines := make([]treeLine, len(tree.Lines))
	for i, l := range tree.Lines {
		lines[i] = treeLine{depths[l.Task], l}
	}
	for _, text := range leftOutOfTree(&tree) {
		fmt.Fprintln(cmd.ErrOrStderr(), printable(text))
	}
	return printList(format, cmd.OutOrStdout(), "", lines, nil)
}

// treeLine is an event of a task in a tree.
type treeLine struct {
	Depth int `json:"depth"`
	events.Line
}

func treeDepths(tree *consoleapi.TaskTree) map[string]int {
	depths := map[string]int{}
	for i := range tree.Tasks {
		depths[tree.Tasks[i].Task] = tree.Tasks[i].Depth
	}
	return depths
}

// treeTable prints the tasks of a tree, and their events.
func treeTable(out io.Writer, tree *consoleapi.TaskTree) error {
	w := newTable(out, "TASK WORKFLOW STATE STEP EVENTS ERROR")
	for i := range tree.Tasks {
		t := &tree.Tasks[i]
		workflow, why := "-", errorText(t.Error)
		if t.Workflow != "" {
			workflow = t.Workflow + "/" + strconv.Itoa(t.Version)
		}
		if t.Missing != "" {
			why = t.Missing
		}
		step := t.Step
		if t.Item != nil {
			step = fmt.Sprintf("%s, item %d", step, *t.Item)
		}
		w.row(indented(t.Depth, idText(t.Task)), workflow, dash(stateText(t.State)), dash(step), strconv.Itoa(t.Events), text.Shorten(why, 60))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := writeTimeline(out, treeRows(tree), true); err != nil {
		return err
	}
	left := leftOutOfTree(tree)
	if len(left) > 0 {
		fmt.Fprintln(out)
	}
	for _, text := range left {
		if _, err := fmt.Fprintln(out, printable(text)); err != nil {
			return err
		}
	}
	return nil
}

func indented(depth int, s string) string { return strings.Repeat("  ", depth) + s }

// treeRows returns the rows of a timeline of several tasks. Its spans are within each task.
func treeRows(tree *consoleapi.TaskTree) [][]string {
	depths, own := treeDepths(tree), map[string][]events.Line{}
	for i := range tree.Lines {
		l := &tree.Lines[i]
		own[l.Task] = append(own[l.Task], *l)
	}
	spans := map[string][]replay.Span{}
	for task, lines := range own {
		spans[task] = replay.Spans(lines)
	}
	rows := [][]string{append([]string{"TASK"}, strings.Fields(timelineHead)...)}
	clock := timelineClock{}
	for i := range tree.Lines {
		l := &tree.Lines[i]
		l.Type, l.Step = printable(l.Type), printable(l.Step)
		at, since := clock.read(l)
		span := spans[l.Task][0]
		spans[l.Task] = spans[l.Task][1:]
		rows = append(rows, append([]string{printable(indented(depths[l.Task], idText(l.Task)))}, timelineRow(l, at, since, &span)...))
	}
	return rows
}

// leftOutOfTree says what a tree leaves out.
func leftOutOfTree(tree *consoleapi.TaskTree) (says []string) {
	for _, m := range tree.More {
		if m.Items {
			says = append(says, fmt.Sprintf("%d more: items of step %s of task %s; --tasks and --items show more, `waybill task items %s %s` lists them", m.Count, m.Step, m.Task, m.Task, m.Step))
		} else {
			says = append(says, fmt.Sprintf("%d more: children of step %s of task %s; --tasks shows more", m.Count, m.Step, m.Task))
		}
	}
	for i := range tree.Tasks {
		if t := &tree.Tasks[i]; t.LeftOut > 0 {
			says = append(says, fmt.Sprintf("%d more: events of task %s; `waybill timeline %s` shows all", t.LeftOut, t.Task, t.Task))
		}
	}
	return says
}
