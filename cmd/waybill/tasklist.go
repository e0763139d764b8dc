package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

type taskListOptions struct {
	tool
	sinceFlag
	limit
	api      apiFlags
	states   []string
	workflow string
	labels   labels
	inError  string
	agent    string
	within   time.Duration
}

func newTaskList() *cobra.Command {
	var o taskListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List tasks, newest first. The flags select tasks by state, workflow, label, agent and time. A console
answers if one runs. Otherwise, and for json and jsonl, the tasks are read from the log. With --api URL the
console answers json and jsonl too, task by task.

A task with an event that can't be read because of corruption on a broker's disk is left out and named. The
exit code is then 7, and likewise if a partition can't be read.`,
		Example: `  waybill task list --state held
  waybill task list --workflow order --since 1h --limit 10
  waybill task list --label region=eu -o jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTaskList(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.sinceFlag.flags(cmd, "only tasks submitted since")
	o.limit.flags(cmd)
	o.api.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.states, "state", nil, "only tasks in one of these states; held is the state error of JSON")
	f.StringVar(&o.workflow, "workflow", "", "only tasks of a workflow: NAME or NAME/VERSION")
	f.Var(&o.labels, "label", "only tasks with this label, `NAME=VALUE` (repeatable: all must match)")
	f.StringVar(&o.inError, "step-in-error", "", "only tasks in which this step is held")
	f.StringVar(&o.agent, "agent", "", "only tasks with an attempt at this agent")
	f.DurationVar(&o.within, "due-within", 0, "only open tasks whose complete-by is within this time, or past")
	commandLineOnly(f, "state", "workflow", "label", "step-in-error", "agent", "due-within")
	return cmd
}

func runTaskList(cmd *cobra.Command, o *taskListOptions) error {
	if err := o.output.check(); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.format != formatTable && o.api.url == apiAuto {
		o.api.url = apiOff // a console needs one request per task
	}
	return o.consoleOrLog(cmd, &o.api,
		func(c *apiClient) error { return o.askConsole(cmd, c, from) },
		func(l *logbook) error { return o.readLog(cmd, l, from) })
}

func (o *taskListOptions) check() error {
	if err := checkStates(o.states); err != nil {
		return err
	}
	name, version, versioned := strings.Cut(o.workflow, "/")
	if n, err := strconv.Atoi(version); o.workflow != "" && name == "" || versioned && (err != nil || n < 1) {
		return usage("--workflow %q: NAME or NAME/VERSION", o.workflow)
	}
	if o.within < 0 {
		return usage("--due-within %s: a positive duration", o.within)
	}
	return o.limit.check(&o.output)
}

// readLog builds the list from the events.
func (o *taskListOptions) readLog(cmd *cobra.Command, l *logbook, from time.Time) error {
	f, gone := newTaskFold(), &unreadableEvents{}
	h := &logHistory{logbook: l, allowLeaderless: true}
	err := h.read(cmd.Context(), "", func(r *events.Record) error {
		f.add(r, nil)
		return nil
	}, gone.add)
	if err != nil {
		return err
	}
	left, err := gone.findLeftOut(cmd.Context(), h, "", func(_ string, t *events.Task) bool { return t == nil || o.mayShow(t, from) })
	if err != nil {
		return err
	}
	f.dropLeftOut(left)
	f.warn(l.note)
	left.warn(l.note)
	now := time.Now()
	tasks := slices.SortedFunc(maps.Values(f.tasks), newestFirst)
	tasks = slices.DeleteFunc(tasks, func(t *events.Task) bool { return !o.shows(t, from, now) })
	tasks = limitRows(&o.limit, l.note, "tasks", tasks)
	views := make([]events.TaskView, len(tasks))
	for i, t := range tasks {
		p := l.partition(t.ID)
		views[i] = t.View(f.owners[p], p, h.places[p].next)
	}
	return cmp.Or(printList(&o.output, cmd.OutOrStdout(), taskHead, views, taskRow), l.partialError(), left.partialError())
}

func newestFirst(a, b *events.Task) int {
	if c := b.SubmittedAt.Compare(a.SubmittedAt); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

func (o *taskListOptions) shows(t *events.Task, from, now time.Time) bool {
	switch {
	case !o.mayShow(t, from):
		return false
	case len(o.states) > 0 && !slices.Contains(o.states, string(t.State)):
		return false
	case o.within > 0 && (!t.Open() || t.CompleteBy.IsZero() || !t.CompleteBy.Before(now.Add(o.within))):
		return false
	case o.inError != "" && !hasStepInError(t, o.inError):
		return false
	case o.agent != "" && !slices.Contains(replay.AgentsOf(t), o.agent):
		return false
	}
	return true
}

// mayShow is the part of shows that depends only on values which a task never changes.
func (o *taskListOptions) mayShow(t *events.Task, from time.Time) bool {
	name, version, _ := strings.Cut(o.workflow, "/")
	switch {
	case t.SubmittedAt.Before(from):
		return false
	case name != "" && t.Workflow != name || version != "" && version != strconv.Itoa(t.Version):
		return false
	}
	for k, v := range o.labels {
		if got, ok := t.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// hasStepInError reports whether a step or its undo is held.
func hasStepInError(t *events.Task, step string) bool {
	for i := range t.Steps {
		if t.Plan.Steps[i].ID != step {
			continue
		}
		s := t.Steps[i]
		return s.State == events.StepError || s.Undo != nil && s.Undo.State == events.StepError
	}
	return false
}

// filter returns the filter for a console.
func (o *taskListOptions) filter(from time.Time) *consoleapi.Filter {
	return &consoleapi.Filter{States: o.states, Workflow: o.workflow, Labels: o.labels, StepInError: o.inError, Agent: o.agent, Since: from, DueWithin: o.within}
}

// askConsole prints the list that a console returns.
func (o *taskListOptions) askConsole(cmd *cobra.Command, c *apiClient, from time.Time) error {
	var list []events.SummaryView
	var missing incompletePartitions
	more, err := c.Tasks(cmd.Context(), o.filter(from), o.max, func(page *consoleapi.TaskPage) error {
		list = append(list, page.Tasks...)
		return missing.add(c, page.Incomplete)
	})
	if err != nil {
		return err
	}
	var whole []events.TaskView
	if o.format != formatTable {
		asked, err := c.tasks(cmd.Context(), list)
		if err != nil {
			return err
		}
		warnConsoleTasks(cmd.ErrOrStderr(), asked...)
		whole = make([]events.TaskView, len(asked))
		for i := range asked {
			whole[i] = asked[i].TaskView
		}
	}
	if more {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d tasks, the newest; --limit 0 shows all\n", len(list))
	}
	if o.format != formatTable {
		return cmp.Or(printList(&o.output, cmd.OutOrStdout(), taskHead, whole, taskRow), missing.partialError())
	}
	warnStopped(cmd.ErrOrStderr(), list)
	err = printList(&o.output, cmd.OutOrStdout(), taskHead, list, func(v events.SummaryView) []string {
		code := ""
		if v.ErrorCode != nil {
			code = *v.ErrorCode
		}
		return []string{idText(v.ID), v.Workflow + "/" + strconv.Itoa(v.Version), stateText(v.State), strconv.Itoa(v.FailureCount),
			tableTime(v.SubmittedAt), tableTime(v.UpdatedAt), code}
	})
	return cmp.Or(err, missing.partialError())
}

// warnStopped prints which tasks of a list are shown incompletely, and why.
func warnStopped(note io.Writer, list []events.SummaryView) {
	unreadable := map[string]error{}
	for i := range list {
		if seq := list[i].StoppedSeq; seq > 0 {
			unreadable[list[i].ID] = fmt.Errorf("event %d; `waybill timeline` shows where it is", seq)
		}
	}
	warnUnreadable(note, unreadable, func(string) bool { return true })
}

// concurrentTaskQueries bounds concurrent requests for single tasks.
const concurrentTaskQueries = 8

// tasks requests the full view of each task of a list.
func (c *apiClient) tasks(ctx context.Context, list []events.SummaryView) ([]consoleapi.Task, error) {
	whole := make([]consoleapi.Task, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentTaskQueries)
	for i := range list {
		g.Go(func() (err error) {
			whole[i], err = c.Task(ctx, list[i].ID)
			return err
		})
	}
	return whole, g.Wait()
}
