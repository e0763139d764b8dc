package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

// topDefaultEvery is the default interval between redraws.
const topDefaultEvery = 2 * time.Second

// topAlerts bounds the alerts that are shown.
const topAlerts = 5

type topOptions struct {
	connection
	api   apiFlags
	every time.Duration
	once  bool
	size  func() (columns, lines int) // size of the terminal; nil or 0: unknown
}

func newTop() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the whole system live: workflows, agents, partitions, alerts",
		Long: `Watch the whole system: tasks of each workflow by state and how fast they end, agents, partitions with
their owners and lag, and the newest alerts. It queries a console; start one with 'waybill up' or
'waybill console'.

On a terminal the view is refreshed until interrupted (exit code 130) and cut to fit: partitions with
the greatest lag are shown. While the console doesn't answer, the last view stays. With --once, or if the
output isn't a terminal, one view is printed.`,
		Example: `  waybill top
  waybill top --once --api https://console.example:8443 --api-token-file token`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTop(cmd, &o) },
	}
	o.connection.flags(cmd)
	o.api.flags(cmd)
	cmd.Flags().Lookup("api").Usage = "URL of a console to query instead of the brokers; auto: http://" + defaultConsole + " if it belongs to this cluster"
	cmd.Flags().DurationVar(&o.every, "every", topDefaultEvery, "time between two refreshes")
	cmd.Flags().BoolVar(&o.once, "once", false, "print one view and exit")
	return cmd
}

func runTop(cmd *cobra.Command, o *topOptions) error {
	if o.every < 100*time.Millisecond {
		return usage("--every %s: must be 100ms or more", o.every)
	}
	c, err := o.client(cmd)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	live := false
	if f, is := out.(*os.File); is && !o.once {
		live = isTerminal(f)
		o.size = func() (int, int) {
			columns, lines, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0, 0
			}
			return columns, lines
		}
	}
	return o.redraw(cmd.Context(), c, out, live)
}

// redraw draws the view once or, if live, repeatedly until ctx ends. If the console stops answering, it keeps
// the last view and tries again.
func (o *topOptions) redraw(ctx context.Context, c *apiClient, out io.Writer, live bool) error {
	var last, before *overview
	for {
		now, err := c.readOverview(ctx)
		switch {
		case err == nil:
			last, before = now, last
		case ctx.Err() != nil:
			return ctx.Err()
		case !live || last == nil || !consoleapi.Transient(err):
			return err
		default:
			last.lastError = err
		}
		var view bytes.Buffer
		if !live {
			if err := last.print(&view, before, len(last.partitions.Partitions)); err != nil {
				return err
			}
		} else if err := o.draw(&view, last, before); err != nil {
			return err
		}
		if _, err := view.WriteTo(out); err != nil || !live {
			return err
		}
		if backoff.Sleep(ctx, o.every) != nil {
			fmt.Fprintln(out) // later output starts on its own line
			return ctx.Err()
		}
	}
}

// draw draws a view on a terminal, shortened to the terminal's height: otherwise it would scroll.
func (o *topOptions) draw(out *bytes.Buffer, v, before *overview) error {
	columns, rows := 0, 0
	if o.size != nil {
		columns, rows = o.size()
	}
	var lines []string
	for most, fits := len(v.partitions.Partitions), false; !fits; {
		var view bytes.Buffer
		if err := v.print(&view, before, most); err != nil {
			return err
		}
		lines = strings.Split(strings.TrimSuffix(view.String(), "\n"), "\n")
		over := len(lines) - rows
		fits = rows == 0 || over <= 0 || most == 0
		if most == len(v.partitions.Partitions) {
			over++ // room for the line with the number of hidden partitions
		}
		most = max(0, most-over)
	}
	if rows > 0 && len(lines) > rows {
		lines = lines[:rows]
	}
	out.WriteString("\x1b[H") // home
	for i, line := range lines {
		if i > 0 {
			out.WriteString("\n")
		}
		if columns > 0 {
			line = text.Shorten(line, columns)
		}
		out.WriteString("\x1b[K" + line) // clear the rest of the line
	}
	out.WriteString("\x1b[J") // clear the lines below
	return nil
}

// client returns the console to query. Without one it is an error.
func (o *topOptions) client(cmd *cobra.Command) (*apiClient, error) {
	if o.api.url == apiOff {
		return nil, usage("top needs a console: give --api URL")
	}
	c, err := o.api.namedConsole()
	if c != nil {
		o.expectSystem(cmd, c)
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
	if c = o.api.findLocalConsole(cmd.Context(), l); c == nil {
		err = exit(exitUnreachable, "no console was found: start one with `waybill console`, or give --api URL")
	}
	return c, err
}

// overview is the data of one view.
type overview struct {
	at         time.Time
	base       string
	lastError  error // why the last refresh failed; nil: the view is current
	workflows  consoleapi.WorkflowList
	agents     consoleapi.AgentList
	partitions consoleapi.PartitionList
	alerts     consoleapi.AlertPage
}

func (c *apiClient) readOverview(ctx context.Context) (*overview, error) {
	v := &overview{at: time.Now(), base: c.URL()}
	for path, into := range map[string]any{"/workflows": &v.workflows, "/agents": &v.agents, "/partitions": &v.partitions, "/alerts": &v.alerts} {
		if err := c.Get(ctx, path, nil, into); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// endedTasks counts the ended tasks of a workflow version.
func endedTasks(v consoleapi.Workflow) (n int64) {
	for state, tasks := range v.Tasks {
		if state.Terminal() {
			n += tasks
		}
	}
	return n
}

// print prints the view with at most that many partitions. Rates are since the view before.
func (v *overview) print(out io.Writer, before *overview, most int) error {
	fmt.Fprintf(out, "Waybill at %s, from %s\n\n", v.at.UTC().Format(tableTimeLayout), printable(v.base))
	if v.lastError != nil {
		fmt.Fprintf(out, "Not updated: %s\n\n", printable(v.lastError.Error()))
	}
	if err := (*incompletePartitions)(&v.workflows.Incomplete).partialError(); err != nil {
		fmt.Fprintf(out, "Incomplete: %v.\n\n", err)
	}
	partitions := func(out io.Writer, _ *overview) error { return v.printPartitions(out, most) }
	for _, part := range []func(io.Writer, *overview) error{v.printWorkflows, v.printAgents, partitions, v.printAlerts} {
		if err := part(out, before); err != nil {
			return err
		}
	}
	return nil
}

func (v *overview) printWorkflows(out io.Writer, before *overview) error {
	w := newTable(out, "WORKFLOW PENDING PROCESSING HELD UNDOING PROCESSED UNDONE CANCELLED ENDED/S")
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

func (v *overview) rate(f consoleapi.Workflow, before *overview) string {
	if before == nil {
		return "-"
	}
	i := slices.IndexFunc(before.workflows.Workflows, func(o consoleapi.Workflow) bool { return o.Workflow == f.Workflow && o.Version == f.Version })
	if i < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(endedTasks(f)-endedTasks(before.workflows.Workflows[i]))/v.at.Sub(before.at).Seconds())
}

func (v *overview) printAgents(out io.Writer, _ *overview) error {
	w := newTable(out, "AGENT MEMBERS IN-FLIGHT LAG CIRCUIT")
	for _, a := range v.agents.Agents {
		w.row(a.Agent, strconv.Itoa(a.Members), strconv.FormatInt(a.InFlight, 10), strconv.FormatInt(a.Lag, 10), a.Circuit)
	}
	return closeTable(out, w)
}

func (v *overview) printPartitions(out io.Writer, most int) error {
	shown, left := v.partitions.Partitions, len(v.partitions.Partitions)-most
	if left > 0 {
		shown = slices.SortedStableFunc(slices.Values(shown), func(a, b consoleapi.Partition) int { return cmp.Compare(b.Lag, a.Lag) })[:most]
		slices.SortFunc(shown, func(a, b consoleapi.Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	w := newTable(out, "PARTITION OWNER SCHEDULER LAG OPEN TASKS OLDEST-DUE INDEX")
	for _, p := range shown {
		owner := "-"
		if p.Owner != nil {
			owner = *p.Owner
		}
		w.row(strconv.Itoa(int(p.Partition)), owner, schedulerText(p), strconv.FormatInt(p.Lag, 10), strconv.FormatInt(p.OpenTasks, 10),
			strconv.FormatInt(p.Tasks, 10), tableTime(p.OldestDue), fmt.Sprintf("%.0f%%", 100*p.Restored))
	}
	if left > 0 {
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(out, "%d more %s, whose lag is no greater; --once shows all\n", left, text.Plural(left, "partition"))
	}
	return closeTable(out, w)
}

// schedulerText formats the restore progress of a partition's scheduler, and its name if it isn't the owner.
func schedulerText(p consoleapi.Partition) string {
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
		_, err := fmt.Fprintln(out, "No open alerts, and none in the last 24 hours.")
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
