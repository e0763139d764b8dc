package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console/onkafka"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

func newTaskWhy() *cobra.Command {
	var t oneTaskTool
	cmd := &cobra.Command{
		Use:   "why ID",
		Short: "Show why a task doesn't advance, since when, and what would unblock it",
		Long: `Show why a task doesn't advance, since when, and what would unblock it. If several steps wait, the reason
is that of the step that is blocked most; the others are listed.

  unreadable         an event of the task is unreadable
  hold           the task is held: an operator has to decide
  no_live_agent  a step could start, but nobody reads the agent's requests
  cool_down      a step waits for its cool-down
  waiting_retry  a step waits for its backoff
  capacity       a step could start, but the agent has enough to do
  queue          the agent's group may not have read the request yet
  at_work        the agent has the request
  waiting_timer  a step waits for its instant
  upstream_step  a step waits for other steps
  ended          the task has ended

With --file, and in an imported namespace, the state of agents is unknown.`,
		Example: `  waybill task why order-7`,
		Args:    arguments("a task's id"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runTaskWhy(cmd, &t, args) },
	}
	t.flags(cmd)
	return cmd
}

func runTaskWhy(cmd *cobra.Command, t *oneTaskTool, args []string) error {
	if err := t.output.check(); err != nil {
		return err
	}
	c, err := t.namedConsole(cmd)
	if err != nil {
		return err
	}
	if c != nil {
		return t.askWhy(cmd, c, args)
	}
	id, h, err := t.openTask(cmd, args)
	if err != nil {
		return err
	}
	defer h.close()
	f, since := newTaskFold(), &replay.Since{}
	err = h.read(cmd.Context(), id, func(r *events.Record) error {
		if string(r.Key) == id {
			since.Add(r)
		}
		f.add(r, func(key string) bool { return key == id })
		return nil
	}, f.onUnreadable(id))
	if err != nil {
		return err
	}
	task, unreadable := f.tasks[id], ""
	if err := f.unreadable[id]; err != nil {
		unreadable = err.Error()
	}
	switch {
	case task == nil && unreadable != "":
		return fmt.Errorf("task %q: its first event is unreadable: %s", id, unreadable)
	case task == nil:
		if l, is := h.(*logHistory); is {
			return l.explainMissing(cmd.Context(), id)
		}
		return t.taskNotFound(id)
	}
	agents, now := map[string]replay.AgentState{}, time.Now()
	if l, is := h.(*logHistory); is && !l.history { // an imported namespace has no agents
		if err := l.agents(cmd.Context(), task, now, agents); err != nil {
			return err
		}
	}
	w := replay.Explain(task, since, unreadable, agents, now)
	return t.printObject(cmd.OutOrStdout(), w, func(out io.Writer) error { return whyTable(out, w) })
}

// askWhy prints a console's explanation, which includes the agents.
func (t *oneTaskTool) askWhy(cmd *cobra.Command, c *apiClient, args []string) error {
	id, err := idArgument(args)
	if err != nil {
		return err
	}
	w := &replay.Why{}
	if err := c.Get(cmd.Context(), consoleapi.TaskPath(id)+"/why", consoleapi.AtLogEnd(), w); err != nil {
		return err
	}
	return t.printObject(cmd.OutOrStdout(), w, func(out io.Writer) error { return whyTable(out, w) })
}

// agents describes the agents that a task waits for.
func (h *logHistory) agents(ctx context.Context, t *events.Task, now time.Time, agents map[string]replay.AgentState) error {
	for _, name := range replay.AgentsAwaited(t, now) {
		var err error
		if agents[name], err = h.agent(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (h *logHistory) agent(ctx context.Context, name string) (a replay.AgentState, err error) {
	err = h.askBrokers(ctx, func(ctx context.Context) error {
		a, err = onkafka.AgentState(ctx, h.admin, h.cfg.Namespace, name)
		return err
	})
	if err != nil {
		return a, fmt.Errorf("agent %s: %w", name, err)
	}
	return a, nil
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
		w.row("Error", shorten(errorText(y.Error), 200))
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
