package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

type errorsOptions struct {
	tool
	queryFlags
	workflow string
	ended    bool
	max      int
}

// The bounds of --limit of errors, as the API has them.
const (
	errorGroupsDefault = 50
	errorGroupsMax     = 200
)

func newErrors() *cobra.Command {
	o := errorsOptions{max: errorGroupsDefault}
	cmd := &cobra.Command{
		Use:   "errors",
		Short: "Show the errors of held tasks, in groups",
		Long: `Show the errors of held tasks. Held tasks with the same error are one group: the same workflow, step and code,
and messages that differ only in values (ids, numbers, texts in quotes), which are shown as #. For each group
it says how many tasks are held, and when the error was first and last seen.

'waybill task list --error-group ID' lists the tasks of a group.

A console answers if one runs. Otherwise the log is indexed for this query, or the file of --file.`,
		Example: `  waybill errors
  waybill errors --workflow order -o json
  waybill task list --error-group 3f9a0c2b7d11e845`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runErrors(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.queryFlags.flags(cmd)
	o.fileFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.workflow, "workflow", "", "only errors of this workflow")
	f.BoolVar(&o.ended, "ended", false, "also errors that hold no task any more")
	f.IntVar(&o.max, "limit", o.max, fmt.Sprintf("maximum number of groups to show, at most %d", errorGroupsMax))
	commandLineOnly(f, "workflow", "ended")
	return cmd
}

func runErrors(cmd *cobra.Command, o *errorsOptions) error {
	if o.max < 1 || o.max > errorGroupsMax {
		return usage("--limit %d: must be 1 to %d", o.max, errorGroupsMax)
	}
	return o.query(cmd, &o.tool, indexAll, func(c *apiClient) error { return o.ask(cmd, c) })
}

// ask prints the groups that a console returns.
func (o *errorsOptions) ask(cmd *cobra.Command, c *apiClient) error {
	q := consoleapi.AtLogEnd()
	q.Set("limit", strconv.Itoa(o.max))
	o.addTo(q)
	var list consoleapi.ErrorGroupList
	if err := c.Get(cmd.Context(), "/error-groups", q, &list); err != nil {
		return err
	}
	var missing incompletePartitions
	if err := missing.add(c, list.Incomplete); err != nil {
		return err
	}
	left, err := c.findLeftOut(cmd.Context(), cmd.ErrOrStderr(), func(string, *events.Task) bool { return true })
	if err != nil {
		return err
	}
	if list.Left > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d groups, those with the most held tasks; --limit shows up to %d\n", len(list.Groups), len(list.Groups)+list.Left, errorGroupsMax)
	}
	out := cmd.OutOrStdout()
	if o.format == formatTable {
		err = printErrorGroups(out, &list, time.Now())
	} else {
		err = printList(&o.output, out, "", list.Groups, nil)
	}
	return cmp.Or(err, missing.partialError(), leftOutError(left))
}

func (o *errorsOptions) addTo(q url.Values) {
	if o.workflow != "" {
		q.Set("workflow", o.workflow)
	}
	if o.ended {
		q.Set("ended", "true")
	}
}

// errorLineMax is the number of characters of a line in the table of errors.
const errorLineMax = 80

// errorColumns are the columns of a group's first line: of at most errorLineMax characters with a place of 32.
const errorColumns = "%-16s  %6s  %-8s  %-8s  %s"

// printErrorGroups prints two lines for each group: its numbers and its place, and below its error.
func printErrorGroups(out io.Writer, list *consoleapi.ErrorGroupList, now time.Time) error {
	if len(list.Groups) == 0 {
		_, err := fmt.Fprintln(out, "No task is held.")
		return err
	}
	lines := []string{fmt.Sprintf(errorColumns, "GROUP", "HELD", "SINCE", "LAST", "WORKFLOW STEP")}
	for i := range list.Groups {
		g := &list.Groups[i]
		lines = append(lines, fmt.Sprintf(errorColumns, g.Group, strconv.FormatInt(g.Held, 10), ageText(g.FirstSeen, now), ageText(g.LastSeen, now), printable(errorPlace(g))),
			"  "+printable(dash(errorText(&events.Error{Code: g.Code, Message: g.Pattern}))))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, text.Shorten(line, errorLineMax)); err != nil {
			return err
		}
	}
	return nil
}

// errorPlace says where the error is: in which workflow, which step, and whether in its undo.
func errorPlace(g *consoleapi.ErrorGroup) string {
	switch {
	case g.Other:
		return "all other errors"
	case g.Step == "":
		return g.Workflow
	case g.Kind == string(events.Undo):
		return g.Workflow + " undo of " + g.Step
	}
	return g.Workflow + " " + g.Step
}

// ageText says how long ago an instant of JSON was, in its largest unit or two.
func ageText(at *string, now time.Time) string {
	if at == nil {
		return "-"
	}
	t, err := time.Parse(events.TimeLayout, *at)
	if err != nil {
		return "-"
	}
	age := max(0, now.Sub(t))
	days, hours, minutes := int(age.Hours())/24, int(age.Hours())%24, int(age.Minutes())%60
	switch {
	case days > 99:
		return fmt.Sprintf("%dd", days)
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%ds", int(age.Seconds()))
}
