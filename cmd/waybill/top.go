package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
)

// topDefaultEvery is how often the view is drawn anew.
const topDefaultEvery = 2 * time.Second

// topAlerts is how many alerts are shown.
const topAlerts = 5

type topOptions struct {
	connection
	api   apiFlags
	every time.Duration
	once  bool
}

func newTop() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the whole system: tasks by state, rates, agents, partitions, alerts",
		Long: `Watch the whole system: tasks of each workflow by state and how fast they end, the agents, the
partitions with their owners and lag, and the newest alerts. It asks a console; start one with
waybill up or waybill console. Ends when interrupted, with exit code 130; with --once, or where
the output is no terminal, after one view.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTop(cmd, &o) },
	}
	o.connection.flags(cmd)
	o.api.flags(cmd)
	cmd.Flags().Lookup("api").Usage = "URL of a console to ask instead of any broker; auto: one of the cluster, if it is on this machine or there is a token"
	cmd.Flags().DurationVar(&o.every, "every", topDefaultEvery, "how often the view is drawn anew")
	cmd.Flags().BoolVar(&o.once, "once", false, "show one view and end")
	return cmd
}

func runTop(cmd *cobra.Command, o *topOptions) error {
	if err := settle(cmd); err != nil {
		return err
	}
	if o.every < 100*time.Millisecond {
		return usage("--every %s: 100ms or more", o.every)
	}
	c, err := o.client(cmd)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	live := false
	if f, is := out.(*os.File); is && !o.once {
		live = term.IsTerminal(int(f.Fd()))
	}
	return o.watch(cmd.Context(), c, out, live)
}

// watch draws the view; live: again and again, over the one before, until ctx ends.
func (o *topOptions) watch(ctx context.Context, c *apiClient, out io.Writer, live bool) error {
	var before *overview
	for {
		now, err := c.overview(ctx)
		if err != nil {
			return err
		}
		var view bytes.Buffer
		if err := now.print(&view, before); err != nil {
			return err
		}
		if live {
			// Home, each line cleared to its end, the rest of the screen cleared.
			text := append([]byte("\x1b[H"), bytes.ReplaceAll(view.Bytes(), []byte("\n"), []byte("\x1b[K\n"))...)
			view = *bytes.NewBuffer(append(text, "\x1b[J"...))
		}
		if _, err := view.WriteTo(out); err != nil || !live {
			return err
		}
		before = now
		select {
		case <-time.After(o.every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// client is the console; there must be one.
func (o *topOptions) client(cmd *cobra.Command) (*apiClient, error) {
	if o.api.url == apiOff {
		return nil, usage("top asks a console: name one with --api")
	}
	c, err := o.api.named()
	if c != nil {
		o.expect(cmd, c)
	}
	if err != nil || c != nil {
		return c, err
	}
	t := tool{connection: o.connection}
	l, err := t.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if c = o.api.found(cmd.Context(), l); c == nil {
		err = exit(exitUnreachable, "no console runs that can be asked: start one with `waybill console`, or name one with --api URL")
	}
	return c, err
}

// overview is what top shows.
type overview struct {
	at        time.Time
	base      string
	workflows struct {
		Workflows         []console.WorkflowView `json:"workflows"`
		MissingPartitions []int32                `json:"missing_partitions"`
	}
	agents struct {
		Agents []console.AgentView `json:"agents"`
	}
	partitions struct {
		Partitions []console.PartitionView `json:"partitions"`
	}
	alerts alertPage
}

func (c *apiClient) overview(ctx context.Context) (*overview, error) {
	v := &overview{at: time.Now(), base: c.base}
	for path, into := range map[string]any{"/workflows": &v.workflows, "/agents": &v.agents, "/partitions": &v.partitions, "/alerts": &v.alerts} {
		if err := c.get(ctx, path, nil, decode(into)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// ended is how many tasks of a version have ended.
func ended(v console.WorkflowView) (n int64) {
	for state, tasks := range v.Tasks {
		if state.Terminal() {
			n += tasks
		}
	}
	return n
}

// print shows the view; rates are those since the one before.
func (v *overview) print(out io.Writer, before *overview) error {
	fmt.Fprintf(out, "Waybill, %s, asked of %s\n\n", v.at.UTC().Format("2006-01-02 15:04:05"), printable(v.base))
	if len(v.workflows.MissingPartitions) > 0 {
		fmt.Fprintf(out, "No console has the partitions %v: they are missing below.\n\n", v.workflows.MissingPartitions)
	}
	for _, part := range []func(io.Writer, *overview) error{v.printWorkflows, v.printAgents, v.printPartitions, v.printAlerts} {
		if err := part(out, before); err != nil {
			return err
		}
	}
	return nil
}

func (v *overview) printWorkflows(out io.Writer, before *overview) error {
	w := newTable(out, "WORKFLOW PENDING PROCESSING ERROR UNDOING PROCESSED UNDONE CANCELLED ENDED/S")
	for _, f := range v.workflows.Workflows {
		row := []string{f.Workflow + "/" + strconv.Itoa(f.Version)}
		for _, state := range []events.TaskState{events.StatePending, events.StateProcessing, events.StateError, events.StateUndoing,
			events.StateProcessed, events.StateUndone, events.StateCancelled} {
			row = append(row, strconv.FormatInt(f.Tasks[state], 10))
		}
		w.row(append(row, v.rate(f, before))...)
	}
	return closeTable(out, w)
}

func (v *overview) rate(f console.WorkflowView, before *overview) string {
	if before == nil {
		return "-"
	}
	i := slices.IndexFunc(before.workflows.Workflows, func(o console.WorkflowView) bool { return o.Workflow == f.Workflow && o.Version == f.Version })
	if i < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(ended(f)-ended(before.workflows.Workflows[i]))/v.at.Sub(before.at).Seconds())
}

func (v *overview) printAgents(out io.Writer, _ *overview) error {
	w := newTable(out, "AGENT MEMBERS IN-FLIGHT LAG CIRCUIT")
	for _, a := range v.agents.Agents {
		w.row(a.Agent, strconv.Itoa(a.Members), strconv.FormatInt(a.InFlight, 10), strconv.FormatInt(a.Lag, 10), a.Circuit)
	}
	return closeTable(out, w)
}

func (v *overview) printPartitions(out io.Writer, _ *overview) error {
	w := newTable(out, "PARTITION OWNER SCHEDULER LAG OPEN TASKS OLDEST-DUE AUDIT")
	for _, p := range v.partitions.Partitions {
		owner := "-"
		if p.Owner != nil {
			owner = *p.Owner
		}
		w.row(strconv.Itoa(int(p.Partition)), owner, schedulerText(p), strconv.FormatInt(p.Lag, 10), strconv.FormatInt(p.OpenTasks, 10),
			strconv.FormatInt(p.Tasks, 10), tableTime(p.OldestDue), fmt.Sprintf("%.0f%%", 100*p.Restored))
	}
	return closeTable(out, w)
}

// schedulerText is how far the scheduler of a partition is, and who it is where that isn't the owner.
func schedulerText(p console.PartitionView) string {
	if p.Scheduler == nil || p.SchedulerRestored == nil {
		return "none"
	}
	restored := fmt.Sprintf("%.0f%%", 100**p.SchedulerRestored)
	if p.Owner == nil || *p.Owner != *p.Scheduler {
		return *p.Scheduler + " " + restored
	}
	return restored
}

func (v *overview) printAlerts(out io.Writer, _ *overview) error {
	list := v.alerts.Alerts[:min(topAlerts, len(v.alerts.Alerts))]
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "No alerts are open, and there are none of the last 24 hours.")
		return err
	}
	w := newTable(out, alertHead)
	for _, a := range list {
		w.row(alertRow(a)...)
	}
	return w.Flush()
}

func closeTable(out io.Writer, w *table) error {
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
