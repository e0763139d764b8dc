package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

type taskListOptions struct {
	tool
	sinceFlag
	limit
	queryFlags
	idPrefix string
	states   []string
	workflow string
	labels   map[string]string
	inError  string
	group    string
	parent   string
	agent    string
	within   time.Duration
	count    bool
}

func newTaskList() *cobra.Command {
	var o taskListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List tasks, newest first. The flags select tasks by state, workflow, label, agent and time. As json and
jsonl each task is shown whole. With --id-prefix they are in the order of ids. --count shows how many tasks
match, by state.

A console answers if one runs. Otherwise the log is indexed for this query, or the file of --file. With
--data-dir the index stays, and the next query reads only new events.

A task with an event that can't be read because of corruption on a broker's disk is left out and named. The
exit code is then 7, and likewise if a partition can't be read. With -o json and jsonl, so is a task whose first
event this release can't read.`,
		Example: `  waybill task list --state held
  waybill task list --workflow order --since 1h --limit 10
  waybill task list --label region=eu -o jsonl
  waybill task list --id-prefix order-17
  waybill task list --workflow order --count`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTaskList(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.sinceFlag.flags(cmd, "only tasks submitted since")
	o.limit.flags(cmd)
	o.queryFlags.flags(cmd)
	o.fileFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.idPrefix, "id-prefix", "", "only tasks whose id begins with this, in the order of ids")
	f.StringSliceVar(&o.states, "state", nil, "only tasks in one of these states; held is shown as error in JSON")
	f.StringVar(&o.workflow, "workflow", "", "only tasks of a workflow: NAME or NAME/VERSION")
	f.Var(labelPairs(&o.labels), "label", "only tasks with this label, `NAME=VALUE` (repeatable: all must match)")
	f.StringVar(&o.inError, "step-in-error", "", "only tasks in which this step is held")
	f.StringVar(&o.group, "error-group", "", "only held tasks of this error group; waybill errors lists the groups")
	f.StringVar(&o.parent, "parent", "", "only children of this task, and the tasks of its items, which other lists hide")
	f.StringVar(&o.agent, "agent", "", "only tasks with an attempt at this agent")
	f.DurationVar(&o.within, "due-within", 0, "only open tasks whose complete-by is within this time, or past")
	f.BoolVar(&o.count, "count", false, "show the number of matching tasks by state, instead of the tasks")
	commandLineOnly(f, "id-prefix", "count", "state", "workflow", "label", "step-in-error", "error-group", "parent", "agent", "due-within")
	return cmd
}

func runTaskList(cmd *cobra.Command, o *taskListOptions) error {
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	return o.query(cmd, &o.tool, indexAll, func(c *apiClient) error {
		if o.count {
			return o.askCounts(cmd, c, from)
		}
		return o.ask(cmd, c, from)
	})
}

func (o *taskListOptions) check() error {
	if err := checkStates(o.states); err != nil {
		return err
	}
	name, version, versioned := strings.Cut(o.workflow, "/")
	if n, err := strconv.Atoi(version); o.workflow != "" && name == "" || versioned && (err != nil || n < 1) {
		return usage("--workflow %q: must be NAME or NAME/VERSION", o.workflow)
	}
	if o.within < 0 {
		return usage("--due-within %s: must be a positive duration", o.within)
	}
	if o.count && o.max != limitNotGiven {
		return usage("--count counts all tasks that match: omit --limit")
	}
	if err := events.CheckTaskID(o.idPrefix); o.idPrefix != "" && err != nil {
		return usage("--id-prefix: %v", err)
	}
	return o.limit.check(&o.output)
}

// mayShow reports whether a task may be in the list, by values which a task never changes. t is nil if only its id is
// known.
func (o *taskListOptions) mayShow(id string, t *events.Task, from time.Time) bool {
	if !strings.HasPrefix(id, o.idPrefix) {
		return false
	}
	if t == nil {
		return true
	}
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

// filter returns the filter for a console.
func (o *taskListOptions) filter(from time.Time) *consoleapi.Filter {
	return &consoleapi.Filter{IDPrefix: o.idPrefix, States: o.states, Workflow: o.workflow, Labels: o.labels, StepInError: o.inError, ErrorGroup: o.group, Parent: o.parent, Agent: o.agent, Since: from, DueWithin: o.within}
}

// ask prints the list that a console returns.
func (o *taskListOptions) ask(cmd *cobra.Command, c *apiClient, from time.Time) error {
	list, more, partial, err := o.list(cmd, c, from)
	if err != nil {
		return err
	}
	if more {
		order := "the newest"
		if o.idPrefix != "" {
			order = "the first by id"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s; --limit 0 shows all\n", text.Count(len(list), "task"), order)
	}
	if o.format == formatTable {
		warnStopped(cmd.ErrOrStderr(), list)
		err = printList(&o.output, cmd.OutOrStdout(), taskHead, list, summaryRow)
	} else {
		err = o.printTasks(cmd, c, list)
	}
	return cmp.Or(err, partial)
}

// list returns the list of a console, up to --limit, and whether there are more tasks. partial says what the list
// lacks.
func (o *taskListOptions) list(cmd *cobra.Command, c *apiClient, from time.Time) (list []events.SummaryView, more bool, partial, err error) {
	var missing incompletePartitions
	more, err = c.Tasks(cmd.Context(), o.filter(from), o.max, func(page *consoleapi.TaskPage) error {
		list = append(list, page.Tasks...)
		return missing.add(c, page.Incomplete)
	})
	if err != nil {
		return nil, false, nil, err
	}
	left, err := c.findLeftOut(cmd.Context(), cmd.ErrOrStderr(), func(id string, t *events.Task) bool { return o.mayShow(id, t, from) })
	if err != nil {
		return nil, false, nil, err
	}
	list = slices.DeleteFunc(list, func(v events.SummaryView) bool { return left.Contains(v.ID) })
	return list, more, cmp.Or(missing.partialError(), leftOutError(left)), nil
}

// printTasks prints the full view of each task of a list as JSON. A task whose first event is unreadable has none: it is
// left out, and the error says so.
func (o *taskListOptions) printTasks(cmd *cobra.Command, c *apiClient, list []events.SummaryView) error {
	asked, unreadable, err := c.tasks(cmd.Context(), list)
	if err != nil {
		return err
	}
	warnConsoleTasks(cmd.ErrOrStderr(), asked...)
	warnUnreadable(cmd.ErrOrStderr(), unreadable, func(string) bool { return false })
	whole := make([]events.TaskView, len(asked))
	for i := range asked {
		whole[i] = asked[i].TaskView
	}
	if err := printList(&o.output, cmd.OutOrStdout(), taskHead, whole, taskRow); err != nil || len(unreadable) == 0 {
		return err
	}
	return exit(exitUnreachable, "%s left out, because the first event is unreadable", text.Count(len(unreadable), "task"))
}

// summaryRow is a task's row in a list.
func summaryRow(v events.SummaryView) []string {
	code := ""
	if v.ErrorCode != nil {
		code = *v.ErrorCode
	}
	return []string{idText(v.ID), v.Workflow + "/" + strconv.Itoa(v.Version), stateText(v.State), strconv.Itoa(v.FailureCount),
		tableTime(v.SubmittedAt), tableTime(v.UpdatedAt), code}
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

// tasks requests the full view of each task of a list. unreadable are those without one. A task that was forgotten
// since the list was read isn't there.
func (c *apiClient) tasks(ctx context.Context, list []events.SummaryView) (whole []consoleapi.Task, unreadable map[string]error, err error) {
	views, failures := make([]consoleapi.Task, len(list)), make([]*consoleapi.Problem, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentTaskQueries)
	for i := range list {
		g.Go(func() (err error) {
			views[i], err = c.Task(ctx, list[i].ID)
			if p, is := errors.AsType[*consoleapi.Problem](err); is && (p.Status == http.StatusNotFound || p.Type == consoleapi.UnreadableProblem) {
				failures[i], err = p, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	unreadable = map[string]error{}
	for i, p := range failures {
		switch {
		case p == nil:
			whole = append(whole, views[i])
		case p.Status != http.StatusNotFound:
			unreadable[list[i].ID] = errors.New(p.Detail)
		}
	}
	return whole, unreadable, nil
}
