package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

func newTaskWhy() *cobra.Command {
	var o taskGetOptions
	cmd := &cobra.Command{
		Use:   "why ID",
		Short: "Show why a task doesn't advance, since when, and what would unblock it",
		Long: `Show why a task doesn't advance, since when, and what would unblock it. If several steps wait, the reason
of the most seriously blocked step is given; the others are listed.

  unreadable     an event of the task is unreadable
  hold           the task is held: an operator has to decide
  no_live_agent  a step could start, but no process reads the agent's requests
  cool_down      a step waits for its cool-down
  waiting_retry  a step waits for its backoff
  capacity       a step could start, but the agent is at its concurrency limit
  queue          the agent's group may not have read the request yet
  at_work        the agent has the request
  waiting_timer  a step waits for its instant
  waiting_signal a step waits for a signal
  waiting_child  a step waits for the end of its child task
  child_held     the child task of a step is held for an operator
  waiting_items  a step waits for the ends of its items
  waiting_repeat a step that polls waits for its next call
  upstream_step  a step waits for other steps
  ended          the task has ended

If a step waits for a child task or for items, or failed because of one, that task is explained too, down to the
cause. Among running items, the one with the most failed attempts is followed.

With --file the state of agents is unknown.`,
		Example: `  waybill task why order-7`,
		Args:    arguments("a task's id"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.runWhy(cmd, args) },
	}
	o.flags(cmd)
	return cmd
}

// runWhy asks why a task doesn't advance. Without a console the index has the task's partition. It is built again of all
// partitions if the way to the cause leads to a child in another one.
func (o *taskGetOptions) runWhy(cmd *cobra.Command, args []string) error {
	id, err := idArgument(args)
	if err != nil {
		return err
	}
	indexes := []func(int32) indexOptions{indexTask(id), indexAll}
	if o.file != "" { // it may be standard input, which is read once
		indexes = indexes[1:]
	}
	for i, indexed := range indexes {
		again := false
		err := o.query(cmd, &o.tool, indexed, func(c *apiClient) error {
			w := &replay.Why{}
			if err := c.Get(cmd.Context(), consoleapi.TaskPath(id)+"/why", consoleapi.AtLogEnd(), w); err != nil {
				return err
			}
			if again = c.local != nil && w.Cut != "" && i+1 < len(indexes); again {
				return nil
			}
			return o.printObject(cmd.OutOrStdout(), w, func(out io.Writer) error { return whyTable(out, w) })
		})
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// whyTable prints an explanation.
func whyTable(out io.Writer, y *replay.Why) error {
	w := newTable(out, "")
	w.row("Task", y.Task)
	w.row("State", stateText(y.State))
	w.row("Reason", reasonText(y.Reason, whyStep(y.Step, y.Error)))
	w.row("Since", tableTime(y.Since))
	if y.Until != nil {
		w.row("Until", tableTime(y.Until))
	}
	if y.Error != nil {
		w.row("Error", text.Shorten(errorText(y.Error), 200))
	}
	for i := range y.Steps {
		if y.Steps[i].Step == y.Step {
			itemsRows(w, y.Steps[i].Items, "")
		}
	}
	w.row("Unblocked by", y.Moves)
	causeRows(w, y)
	if err := w.Flush(); err != nil {
		return err
	}
	if len(y.Causes) > 0 {
		fmt.Fprintln(out)
		w = newTable(out, "TASK STATE STEP REASON SINCE ERROR")
		w.row(idText(y.Task), stateText(y.State), whyStep(y.Step, y.Error), string(y.Reason), tableTime(y.Since), text.Shorten(errorText(y.Error), 60))
		for _, c := range y.Causes {
			w.row(idText(c.Task), stateText(c.State), whyStep(c.Step, c.Error), string(c.Reason), tableTime(c.Since), text.Shorten(errorText(c.Error), 60))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(y.Steps) < 2 {
		return nil
	}
	fmt.Fprintln(out)
	w = newTable(out, "STEP KIND ATTEMPT AGENT REASON SINCE UNTIL")
	for _, s := range y.Steps {
		w.row(s.Step, string(s.Kind), fmt.Sprint(s.Attempt), s.Agent, string(s.Reason), tableTime(s.Since), tableTime(s.Until))
	}
	return w.Flush()
}

func reasonText(reason replay.Reason, step string) string {
	if step == "" {
		return string(reason)
	}
	return string(reason) + ", step " + step
}

// whyStep returns the step of a reason, or of the error of a task that has ended.
func whyStep(step string, err *events.Error) string {
	if step == "" && err != nil {
		return err.Step
	}
	return step
}

// causeRows says what the cause is at the end of the way down from a task, and what would unblock that.
func causeRows(w *table, y *replay.Why) {
	if n := len(y.Causes); n > 0 {
		c := &y.Causes[n-1]
		way := []string{y.Task}
		for i := range y.Causes {
			way = append(way, y.Causes[i].Task)
		}
		w.row("Way", strings.Join(way, " -> "))
		cause := c.Task + ": " + reasonText(c.Reason, whyStep(c.Step, c.Error))
		if c.Reason == replay.ReasonEnded {
			cause += ", " + stateText(c.State)
		}
		w.row("Cause", cause)
		if c.Error != nil {
			w.row("", text.Shorten(errorText(c.Error), 200))
		}
		for i := range y.Causes {
			itemsRows(w, y.Causes[i].Items, " of "+y.Causes[i].Task)
		}
		if c.Until != nil {
			w.row("Until", tableTime(c.Until))
		}
		if c.Reason != replay.ReasonEnded {
			w.row("Unblocked by", c.Moves)
		}
	}
	if y.Cut != "" {
		w.row("Not followed", y.Cut)
	}
}

// itemsRows says where the items of a step are, and which errors they have.
func itemsRows(w *table, x *replay.ItemsWhy, of string) {
	if x == nil {
		return
	}
	held := ""
	if x.Held > 0 {
		held = fmt.Sprintf(" (%d held)", x.Held)
	}
	w.row("Items", fmt.Sprintf("%s%s: %d waiting, %d running%s, %d completed, %d failed", text.Count(x.Count, "item"), of, x.Waiting, x.Running, held, x.Completed, x.Failed))
	for _, e := range x.Errors {
		example := fmt.Sprintf("item %d", e.Item)
		if e.Task != "" {
			example = "task " + e.Task
		}
		w.row("", text.Shorten(fmt.Sprintf("%s with %s, as %s: %s", text.Count(e.Count, "item"), e.Code, example, e.Message), 200))
	}
}
