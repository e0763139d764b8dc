package main

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

// deadletter is a dead letter as commands print it.
type deadletter = consoleapi.Deadletter

type deadletterOptions struct {
	tool
	sinceFlag
	limit
	queryFlags
	reasons []string
	intake  string
}

func newDeadletters() *cobra.Command {
	var o deadletterOptions
	cmd := &cobra.Command{
		Use:   "deadletters",
		Short: "Show records that could not be processed",
		Long: `Show dead letters, newest first: records that a role could not process, with the reason. -o json also shows
their bytes. Fix the cause, then write them again with 'waybill deadletters redrive', which takes what the column
DEADLETTER shows. ORIGIN is where the record was: topic, partition and offset.`,
		Example: `  waybill deadletters --since 24h
  waybill deadletters --reason unknown_workflow -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDeadletters(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.sinceFlag.flags(cmd, "only dead letters since")
	o.limit.flags(cmd)
	o.queryFlags.flags(cmd)
	cmd.Flags().StringSliceVar(&o.reasons, "reason", nil, "only dead letters with one of these reasons")
	cmd.Flags().StringVar(&o.intake, "intake", "", "only dead letters of this intake")
	commandLineOnly(cmd.Flags(), "reason", "intake")
	cmd.AddCommand(newRedrive())
	return cmd
}

func checkReasons(reasons []string) error {
	for _, r := range reasons {
		if !slices.Contains(events.Reasons, events.Reason(r)) {
			return usage("--reason %q: must be one of %v", r, events.Reasons)
		}
	}
	return nil
}

func runDeadletters(cmd *cobra.Command, o *deadletterOptions) error {
	if err := checkReasons(o.reasons); err != nil {
		return err
	}
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	return o.query(cmd, &o.tool, noIndex, func(c *apiClient) error { return o.ask(cmd, c, from) })
}

// ask prints the dead letters that a console returns.
func (o *deadletterOptions) ask(cmd *cobra.Command, c *apiClient, from time.Time) error {
	q := o.consoleQuery(from)
	if len(o.reasons) > 0 {
		q.Set("reason", strings.Join(o.reasons, ","))
	}
	if o.intake != "" {
		q.Set("intake", o.intake)
	}
	var all []deadletter
	var missing incompletePartitions
	err := o.eachPage(c, q, cmd.ErrOrStderr(), "dead letters", func() (int, int64, string, error) {
		var page consoleapi.DeadletterPage
		err := c.Get(cmd.Context(), "/deadletters", q, &page)
		if err == nil {
			err = missing.add(c, page.Incomplete)
		}
		all = append(all, page.Deadletters...)
		return len(page.Deadletters), page.Left, page.NextPageToken, err
	})
	if err != nil {
		return err
	}
	return cmp.Or(o.print(cmd.OutOrStdout(), all), missing.partialError())
}

func (o *deadletterOptions) print(out io.Writer, list []deadletter) error {
	return printList(&o.output, out, "DEADLETTER AT REASON ORIGIN KEY SIZE DETAIL", list, func(d deadletter) []string {
		return []string{strconv.Itoa(int(d.Partition)) + "/" + d.Offset, tableTime(d.At), d.Reason, d.Origin, dash(idText(d.Key)), strconv.FormatInt(d.Size, 10), text.Shorten(d.Detail, 120)}
	})
}
