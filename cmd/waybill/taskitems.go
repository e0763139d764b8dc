package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

type taskItemsOptions struct {
	taskGetOptions
	limit
	state string
}

func newTaskItems() *cobra.Command {
	var o taskItemsOptions
	cmd := &cobra.Command{
		Use:   "items ID [STEP]",
		Short: "List the items of a step with for_each",
		Long: `List the items of a step with for_each, in order, each with its state and its task. STEP can be left out if
the task has one such step.

Each item is a task of its own: 'waybill timeline' and 'waybill task why' take the id in the column TASK. A list
of tasks hides the tasks of items; 'waybill task list --parent ID' shows them.`,
		Example: `  waybill task items picking-7 pick
  waybill task items picking-7 --state held`,
		Args: cobra.MatchAll(severalArguments("a task's id"), func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return arguments("a task's id", "a step")(cmd, args)
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error { return o.runItems(cmd, args) },
	}
	o.taskGetOptions.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.max, "limit", limitNotGiven, fmt.Sprintf("maximum number of items to show; 0: all (default %d as table, all as json and jsonl)", tableLimit))
	hideDefault(f, "limit")
	f.StringVar(&o.state, "state", "", "only items in this state: "+strings.Join(itemStateNames(), ", ")+"; failed is shown as error in JSON")
	commandLineOnly(f, "state")
	return cmd
}

func (o *taskItemsOptions) runItems(cmd *cobra.Command, args []string) error {
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	if err := o.checkState(); err != nil {
		return err
	}
	return o.run(cmd, args, func(cmd *cobra.Command, c *apiClient, id string) error {
		step, of, err := o.step(cmd, c, id, args[1:])
		if err != nil {
			return err
		}
		list, more, err := o.items(cmd, c, id, step)
		if err != nil {
			return err
		}
		switch {
		case more && o.state == "" && of != nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d items; %d more: --limit 0 shows all\n", len(list), of.Count, of.Count-len(list))
		case more:
			fmt.Fprintf(cmd.ErrOrStderr(), "the first %s; there are more: --limit 0 shows all\n", text.Count(len(list), "item"))
		}
		return printList(&o.output, cmd.OutOrStdout(), "ITEM STATE ATTEMPT TASK ERROR", list, func(x events.ItemView) []string {
			attempt := dash("")
			if x.Attempt > 0 {
				attempt = strconv.Itoa(x.Attempt)
			}
			return []string{strconv.Itoa(x.Index), itemState(&x), attempt, dash(idText(x.Task)), text.Shorten(errorText(x.Error), 80)}
		})
	})
}

// itemState returns the state of an item for people.
func itemState(x *events.ItemView) string {
	if x.Error != nil && (x.State == events.StepRunning || x.State == events.StepUndoing) {
		return string(x.State) + ", held"
	}
	return itemStateText(string(x.State))
}

// itemStateText returns a state of items for people. An item in error has ended: it isn't held, as a task or a step is.
func itemStateText(state string) string {
	if state == string(events.StepError) {
		return "failed"
	}
	return state
}

// itemStateNames returns the values of --state: the words of the column STATE.
func itemStateNames() (names []string) {
	for _, state := range consoleapi.ItemStates {
		names = append(names, itemStateText(state))
	}
	return names
}

// checkState checks --state, and replaces failed by error, the name of that state in the API.
func (o *taskItemsOptions) checkState() error {
	if o.state == "" || slices.Contains(consoleapi.ItemStates, o.state) {
		return nil
	}
	i := slices.Index(itemStateNames(), o.state)
	if i < 0 {
		return usage("--state %q: must be one of %s", o.state, strings.Join(itemStateNames(), ", "))
	}
	o.state = consoleapi.ItemStates[i]
	return nil
}

// itemsText says where the items of a step are.
func itemsText(x *events.ItemsView) string {
	says := text.Count(x.Count, "item")
	for _, n := range []struct {
		count int
		state string
	}{{x.Count - x.Running - x.Completed - x.Failed - x.Undoing - x.Undone, "waiting"}, {x.Running, "running"}, {x.Completed, "completed"}, {x.Failed, "failed"},
		{x.Undoing, "being undone"}, {x.Undone, "undone"}, {x.Held, "of these held"}} {
		if n.count > 0 {
			says += fmt.Sprintf(", %d %s", n.count, n.state)
		}
	}
	return says
}

// step returns the step whose items are listed, and where they are; nil: the step has none yet.
func (o *taskItemsOptions) step(cmd *cobra.Command, c *apiClient, id string, args []string) (string, *events.ItemsView, error) {
	t, err := c.Task(cmd.Context(), id)
	if err != nil {
		return "", nil, err
	}
	var with, all []string
	var of *events.ItemsView
	for i := range t.Steps {
		s := &t.Steps[i]
		all = append(all, s.ID)
		if s.StepKind != events.ItemsStep || len(args) > 0 && s.ID != args[0] {
			continue
		}
		with, of = append(with, s.ID), s.Items
	}
	switch {
	case len(with) == 1:
		return with[0], of, nil
	case len(with) > 1:
		return "", nil, usage("several steps of task %q have items: name one of %s", id, strings.Join(with, ", "))
	case len(args) == 0:
		return "", nil, usage("task %q has no step with for_each", id)
	case slices.Contains(all, args[0]):
		return "", nil, usage("step %q of task %q runs once: it has no for_each", args[0], id)
	}
	return "", nil, exit(exitNotFound, "task %q has no step %q; it has %s", id, args[0], strings.Join(all, ", "))
}

// items returns the items of a step, up to --limit, and whether there are more.
func (o *taskItemsOptions) items(cmd *cobra.Command, c *apiClient, id, step string) (list []events.ItemView, more bool, err error) {
	q := consoleapi.AtLogEnd()
	if o.state != "" {
		q.Set("state", o.state)
	}
	for {
		size := consoleapi.PageSizeMax
		if o.max > 0 {
			size = min(size, o.max-len(list))
		}
		q.Set("page_size", strconv.Itoa(size))
		var page consoleapi.ItemPage
		if err := c.Get(cmd.Context(), consoleapi.TaskPath(id)+"/steps/"+url.PathEscape(step)+"/items", q, &page); err != nil {
			return nil, false, err
		}
		list = append(list, page.Items...)
		if err := c.NextPage(q, page.NextPageToken); err != nil {
			return nil, false, err
		}
		q.Del("min_offset")
		if more = page.NextPageToken != ""; !more || o.max > 0 && len(list) >= o.max {
			return list, more, nil
		}
	}
}
