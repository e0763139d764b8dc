package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

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
is that of the step that is blocked most; the others are listed.

  unreadable     an event of the task is unreadable
  hold           the task is held: an operator has to decide
  no_live_agent  a step could start, but nobody reads the agent's requests
  cool_down      a step waits for its cool-down
  waiting_retry  a step waits for its backoff
  capacity       a step could start, but the agent has enough to do
  queue          the agent's group may not have read the request yet
  at_work        the agent has the request
  waiting_timer  a step waits for its instant
  waiting_signal a step waits for a signal
  waiting_repeat a step that polls waits for its next call
  upstream_step  a step waits for other steps
  ended          the task has ended

With --file the state of agents is unknown.`,
		Example: `  waybill task why order-7`,
		Args:    arguments("a task's id"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, o.printWhy) },
	}
	o.flags(cmd)
	return cmd
}

func (o *taskGetOptions) printWhy(cmd *cobra.Command, c *apiClient, id string) error {
	w := &replay.Why{}
	if err := c.Get(cmd.Context(), consoleapi.TaskPath(id)+"/why", consoleapi.AtLogEnd(), w); err != nil {
		return err
	}
	return o.printObject(cmd.OutOrStdout(), w, func(out io.Writer) error { return whyTable(out, w) })
}

// whyTable prints an explanation.
func whyTable(out io.Writer, y *replay.Why) error {
	w := newTable(out, "")
	w.row("Task", y.Task)
	w.row("State", stateText(y.State))
	reason := string(y.Reason)
	if y.Step != "" {
		reason += ", step " + y.Step
	}
	w.row("Reason", reason)
	w.row("Since", tableTime(y.Since))
	if y.Until != nil {
		w.row("Until", tableTime(y.Until))
	}
	if y.Error != nil {
		w.row("Error", text.Shorten(errorText(y.Error), 200))
	}
	w.row("Unblocked by", y.Moves)
	if err := w.Flush(); err != nil || len(y.Steps) < 2 {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "STEP KIND ATTEMPT AGENT REASON SINCE UNTIL")
	for _, s := range y.Steps {
		w.row(s.Step, string(s.Kind), fmt.Sprint(s.Attempt), s.Agent, string(s.Reason), tableTime(s.Since), tableTime(s.Until))
	}
	return w.Flush()
}
