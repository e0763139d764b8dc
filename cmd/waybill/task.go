package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

// tableLimit is the default of --limit in a table.
const tableLimit = 50

func newTask() *cobra.Command {
	cmd := &cobra.Command{Use: "task", Short: "List, show, explain, wait for and command tasks"}
	for _, c := range taskCommands {
		cmd.AddCommand(c.build(!c.belowTask))
	}
	return cmd
}

// limit is a --limit flag. Its default is tableLimit in a table, else none.
type limit struct{ max int }

// limitNotGiven marks a --limit that wasn't given.
const limitNotGiven = math.MinInt

func (l *limit) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.max, "limit", limitNotGiven, fmt.Sprintf("maximum number to show, newest first; 0: all (default %d as table, all as json and jsonl)", tableLimit))
	hideDefault(cmd.Flags(), "limit")
}

// check sets the default.
func (l *limit) check(o *output) error {
	switch {
	case l.max == limitNotGiven && o.format == formatTable:
		l.max = tableLimit
	case l.max == limitNotGiven:
		l.max = 0
	case l.max < 0:
		return usage("--limit %d: must not be negative; 0 shows all", l.max)
	}
	return nil
}

// limitRows returns the first rows of a list, and prints how many it dropped.
func limitRows[T any](l *limit, note io.Writer, what string, list []T) []T {
	if l.max == 0 || len(list) <= l.max {
		return list
	}
	fmt.Fprintf(note, "%d of %d %s, the newest; --limit 0 shows all\n", l.max, len(list), what)
	return list[:l.max]
}

// checkStates checks the values of --state, and replaces held by error, the name of that state in events.
func checkStates(states []string) error {
	for i, s := range states {
		if s == "held" {
			states[i] = string(events.StateError)
		} else if !slices.Contains(events.TaskStates, events.TaskState(s)) {
			return usage("--state %q: must be one of %s", s, strings.Join(stateNames(), ", "))
		}
	}
	return nil
}

// stateNames returns the values of --state.
func stateNames() (names []string) {
	for _, s := range events.TaskStates {
		names = append(names, stateText(s))
	}
	return names
}

// taskHead is the header of a task list.
const taskHead = "ID WORKFLOW STATE FAILURES SUBMITTED UPDATED ERROR"

// taskRow is a task's row in a list. The error is its code only, as in a console's list; -o json has its message.
func taskRow(v events.TaskView) []string {
	errorCode := ""
	if v.Error != nil {
		errorCode = v.Error.Code
	}
	return []string{idText(v.ID), v.Workflow + "/" + strconv.Itoa(v.Version), stateText(v.State), strconv.Itoa(v.FailureCount),
		tableTime(v.SubmittedAt), tableTime(v.UpdatedAt), errorCode}
}

type taskGetOptions struct {
	tool
	queryFlags
}

func newTaskGet() *cobra.Command {
	var o taskGetOptions
	cmd := &cobra.Command{
		Use:   "get ID...",
		Short: "Show tasks: state, steps, input and output",
		Long: `Show a task: its state, its steps with attempts and failures, its input and output. A console answers if
one runs. Otherwise the task's partition of the log is indexed for this query.

Several ids are shown one after the other; -o json prints them as an array. If one isn't found, the others are
shown, and the exit code is 3.`,
		Example: `  waybill task get order-7
  waybill task get order-7 order-8 -o json`,
		Args: severalArguments("a task's id"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.runEach(cmd, args) },
	}
	o.flags(cmd)
	return cmd
}

func (o *taskGetOptions) flags(cmd *cobra.Command) {
	o.tool.flags(cmd)
	o.queryFlags.flags(cmd)
	o.fileFlag(cmd)
}

// run calls ask with a console that answers about the task.
func (o *taskGetOptions) run(cmd *cobra.Command, args []string, ask func(cmd *cobra.Command, c *apiClient, id string) error) error {
	id, err := idArgument(args)
	if err != nil {
		return err
	}
	return o.query(cmd, &o.tool, indexTask(id), func(c *apiClient) error { return ask(cmd, c, id) })
}

// runEach prints several tasks.
func (o *taskGetOptions) runEach(cmd *cobra.Command, args []string) error {
	ids, err := idArguments(args)
	if err != nil {
		return err
	}
	return o.query(cmd, &o.tool, indexTasks(ids), func(c *apiClient) error {
		var found []consoleapi.Task
		missing, err := eachTask(ids, func(id string) error {
			v, err := c.Task(cmd.Context(), id)
			if err == nil {
				found = append(found, v)
			}
			return err
		})
		if err != nil {
			return err
		}
		return cmp.Or(o.printEach(cmd, found, len(ids) > 1), missing)
	})
}

// printEach prints tasks. several are printed as an array of JSON.
func (o *taskGetOptions) printEach(cmd *cobra.Command, found []consoleapi.Task, several bool) error {
	if several && o.format == formatJSON {
		warnConsoleTasks(cmd.ErrOrStderr(), found...)
		views := make([]predictedView, len(found))
		for i := range found {
			views[i] = predictedView{found[i].TaskView, found[i].Prediction}
		}
		return encode(cmd.OutOrStdout(), views, "  ")
	}
	for i := range found {
		if i > 0 && o.format == formatTable {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if err := o.printTask(cmd, found[i]); err != nil {
			return err
		}
	}
	return nil
}

// printTask prints a task as a console returned it.
func (t *tool) printTask(cmd *cobra.Command, v consoleapi.Task) error {
	warnConsoleTasks(cmd.ErrOrStderr(), v)
	p := v.Prediction
	return t.printObject(cmd.OutOrStdout(), predictedView{v.TaskView, p}, func(out io.Writer) error {
		if p != nil {
			fmt.Fprintln(out, predictionText(p))
		}
		return taskTable(out, v.TaskView)
	})
}

// predictedView is a task with an estimate of when it will be processed.
type predictedView struct {
	events.TaskView
	Prediction *consoleapi.Prediction `json:"prediction,omitempty"`
}

// predictionText says when a task is predicted to be processed.
func predictionText(p *consoleapi.Prediction) string {
	verdict := "Predicted end"
	if p.Misses {
		verdict = "Will probably miss its deadline: predicted end"
	}
	note := ""
	if len(p.Unknown) > 0 {
		note = ", none of " + strings.Join(p.Unknown, ", ")
	}
	return fmt.Sprintf("%s %s, by %s (%s%s)", verdict, tableTime(p.EndsAt), strings.Join(p.CriticalPath, ", "), text.Count(p.Samples, "sample"), note)
}

// taskTable prints one task.
func taskTable(out io.Writer, v events.TaskView) error {
	w := newTable(out, "")
	w.row("Task", v.ID)
	w.row("Workflow", v.Workflow+"/"+strconv.Itoa(v.Version))
	w.row("State", stateText(v.State))
	if v.Error != nil {
		w.row("Error", errorText(v.Error))
	}
	origin := taskOrigin{Intake: v.Intake, Parent: v.Parent}
	if v.ReplyTo != nil {
		origin.ReplyTo = *v.ReplyTo
	}
	for _, row := range origin.rows(v.ID) {
		w.row(row[0], row[1])
	}
	w.row("Submitted", tableTime(v.SubmittedAt))
	w.row("Updated", tableTime(v.UpdatedAt))
	if v.CompleteBy != nil && v.State == events.StateProcessing {
		w.row("Complete by", tableTime(v.CompleteBy))
	}
	for _, name := range slices.Sorted(maps.Keys(v.Labels)) {
		w.row("Label", name+"="+v.Labels[name])
	}
	w.row("Input", text.Shorten(string(v.Input), 200))
	w.row("Output", text.Shorten(string(v.Output), 200))
	for i := range v.Steps {
		progressRow(w, &v.Steps[i])
		if x := v.Steps[i].Items; x != nil {
			w.row("Items", v.Steps[i].ID+": "+itemsText(x))
		}
	}
	w.row("As of", fmt.Sprintf("partition %d, offset %s", v.AsOf.Partition, v.AsOf.Offset))
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "STEP STATE ATTEMPT FAILURES AGENT OPERATION STARTED ENDED UNDO ERROR")
	for _, s := range v.Steps {
		undo, failed := "-", s.Error
		if s.Undo != nil {
			undo = fmt.Sprintf("%s (attempt %d)", stepStateText(v.State, s.Undo.State), s.Undo.Attempt)
			if s.Undo.Error != nil {
				failed = s.Undo.Error
			}
		}
		w.row(s.ID, stepStateText(v.State, s.State), strconv.Itoa(s.Attempt), strconv.Itoa(s.FailureCount), s.Agent, s.Operation,
			tableTime(s.StartedAt), tableTime(s.EndedAt), undo, text.Shorten(errorText(failed), 60))
	}
	return w.Flush()
}

// progressRow prints the last progress of a step, or of its undo.
func progressRow(w *table, s *events.StepView) {
	value, at, what := s.Progress, s.ProgressAt, s.ID
	if s.Undo != nil && s.Undo.ProgressAt != nil {
		value, at, what = s.Undo.Progress, s.Undo.ProgressAt, "undo of "+s.ID
	}
	if at != nil {
		w.row("Progress", fmt.Sprintf("%s, at %s: %s", what, tableTime(at), cmp.Or(text.Shorten(string(value), 200), "no value")))
	}
}

type taskWaitOptions struct {
	tool
	queryFlags
	timeout time.Duration
}

func newTaskWait() *cobra.Command {
	var o taskWaitOptions
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a task has ended or is held, and show it",
		Long: `Wait until a task has ended or is held, then show it. Exit code 0: processed. 3: no such task. 4: held.
5: undone or cancelled. 6: --timeout passed. 8: its submission was refused.

A task isn't held while only a child or an item of it is: then it's still processing, and ` + "`waybill task why ID`" + ` names what is held.

A console answers if one runs. Otherwise the task's partition of the log is indexed and followed.`,
		Example: `  waybill task wait order-7 --timeout 1m`,
		Args:    arguments("a task's id"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runTaskWait(cmd, &o, args) },
	}
	o.tool.flags(cmd)
	o.queryFlags.flags(cmd)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "give up after this time (default: never)")
	return cmd
}

func runTaskWait(cmd *cobra.Command, o *taskWaitOptions, args []string) error {
	id, err := idArgument(args)
	if err != nil {
		return err
	}
	if o.timeout < 0 {
		return usage("--timeout %s: must be a positive duration", o.timeout)
	}
	whole := cmd.Context()
	ctx, cancel := waitContext(whole, o.timeout)
	defer cancel()
	cmd.SetContext(ctx)
	var v consoleapi.Task
	indexed := func(partitions int32) indexOptions {
		x := indexTask(id)(partitions)
		x.follow = true
		return x
	}
	err = o.query(cmd, &o.tool, indexed, func(c *apiClient) (err error) {
		v, err = (&taskWait{console: c, id: id}).wait(ctx)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil && whole.Err() == nil:
		return exit(exitTimeout, "task %q has not ended within %s", id, o.timeout)
	case err != nil:
		return err
	}
	if err := o.printTask(cmd, v); err != nil {
		return err
	}
	if v.Unreadable != nil {
		return fmt.Errorf("the state of task %q is unknown: one of its events is unreadable", id)
	}
	return taskExitError(id, v.State)
}
