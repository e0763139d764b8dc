package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/text"
)

// alert is an alert as commands print it.
type alert = consoleapi.Alert

type alertsOptions struct {
	tool
	sinceFlag
	limit
	queryFlags
	open   bool
	follow bool
}

func newAlerts() *cobra.Command {
	var o alertsOptions
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Show alerts: held tasks, and definitions, intakes and topics with faults",
		Long: `Show alerts, newest first. An alert says that a task is held, that a definition or a reply_to topic can't be
used, or that an intake has a fault. Each needs an operator. --open shows only alerts of tasks that are still held.

A console answers if one runs. Otherwise the log is indexed for this query. --follow reads the topic of
alerts, which keeps them for 30 days: it shows alerts in the order of the log, and new ones as they arrive,
until interrupted.`,
		Example: `  waybill alerts --open
  waybill alerts --follow -o jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAlerts(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.sinceFlag.flags(cmd, "only alerts since")
	o.limit.flags(cmd)
	o.queryFlags.flags(cmd)
	cmd.Flags().BoolVar(&o.open, "open", false, "only alerts of tasks that are still held")
	commandLineOnly(cmd.Flags(), "open")
	cmd.Flags().BoolVar(&o.follow, "follow", false, "continue with new alerts as they arrive (table or jsonl)")
	return cmd
}

func runAlerts(cmd *cobra.Command, o *alertsOptions) error {
	if o.follow && o.format == formatJSON {
		return usage("--follow never ends, and -o json prints one value; use -o jsonl")
	}
	if o.follow && o.open {
		return usage("--follow and --open can't be combined: --follow prints alerts as they arrive, --open those of tasks that are still held")
	}
	if o.follow {
		if err := o.api.refuseConsole("alerts --follow"); err != nil {
			return err
		}
	}
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	if o.follow {
		return o.followTopic(cmd, from)
	}
	return o.query(cmd, &o.tool, indexAll, func(c *apiClient) error { return o.ask(cmd, c, from) })
}

// noticePageSize is the page size of alerts and dead letters, when a console answers.
const noticePageSize = 1000

// consoleQuery selects alerts or dead letters by --since and --limit.
func (l *limit) consoleQuery(from time.Time) url.Values {
	if from.IsZero() {
		from = time.UnixMilli(0)
	}
	most := noticePageSize
	if l.max > 0 {
		most = min(most, l.max)
	}
	return url.Values{"since": {from.UTC().Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(most)}}
}

// eachPage requests pages until none is left or --limit is reached. ask reads one page; it returns the number of its
// entries, the number of entries after them, and the token of the next page.
func (l *limit) eachPage(c *apiClient, q url.Values, note io.Writer, what string, ask func() (n int, left int64, next string, err error)) error {
	for all := 0; ; {
		n, left, next, err := ask()
		if err != nil {
			return err
		}
		all += n
		switch {
		case left == 0:
			return nil
		case l.max > 0 && all >= l.max:
			fmt.Fprintf(note, "%d of %d %s, the newest; --limit 0 shows all\n", all, int64(all)+left, what)
			return nil
		case next == "":
			return exit(exitUnreachable, "the console at %s has %d more %s, but no page with them", c.URL(), left, what)
		case l.max > 0:
			q.Set("limit", strconv.Itoa(min(noticePageSize, l.max-all)))
		}
		if err := c.NextPage(q, next); err != nil {
			return err
		}
	}
}

// ask prints the alerts that a console returns.
func (o *alertsOptions) ask(cmd *cobra.Command, c *apiClient, from time.Time) error {
	q := o.consoleQuery(from)
	q.Set("min_offset", consoleapi.LogEnd)
	if o.open {
		q.Set("open", "true")
	}
	var all []alert
	var missing incompletePartitions
	err := o.eachPage(c, q, cmd.ErrOrStderr(), "alerts", func() (int, int64, string, error) {
		var page consoleapi.AlertPage
		err := c.Get(cmd.Context(), "/alerts", q, &page)
		if err == nil {
			err = missing.add(c, page.Incomplete)
		}
		all = append(all, page.Alerts...)
		return len(page.Alerts), page.Left, page.NextPageToken, err
	})
	if err != nil {
		return err
	}
	left, err := c.findLeftOut(cmd.Context(), cmd.ErrOrStderr(), func(string, *events.Task) bool { return true })
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(a alert) bool { return left.Contains(a.Task) })
	return cmp.Or(printList(&o.output, cmd.OutOrStdout(), alertHead, all, alertRow), missing.partialError(), leftOutError(left))
}

const alertHead = "AT TASK STEP CODE MESSAGE"

func alertRow(a alert) []string {
	return []string{tableTime(a.At), dash(idText(a.Task)), dash(a.Step), dash(a.Code), text.Shorten(a.Message, 120)}
}

// readAlert decodes an alert. It reports and skips a record that isn't one.
func (l *logbook) readAlert(r *events.Record) (alert, bool) {
	a, err := events.DecodeAlert(r)
	if err != nil {
		fmt.Fprintf(l.note, "waybill: %s isn't an alert: %s\n", events.Origin(r), printable(err.Error()))
		return alert{}, false
	}
	return console.ViewAlert(a, r), true
}

// compareInstants orders texts of events.InstantText; nil is the oldest.
func compareInstants(a, b *string) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	case *a < *b:
		return -1
	case *a > *b:
		return 1
	}
	return 0
}

// followTopic prints the alerts in their topic, and then new ones as they arrive, until interrupted.
func (o *alertsOptions) followTopic(cmd *cobra.Command, from time.Time) error {
	l, err := o.tool.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	found := newestBuffer[alert]{limit: &o.limit, instant: func(a *alert) *string { return a.At }}
	topic, began := l.cfg.Namespace.Alerts(), time.Now()
	next, err := l.read(cmd.Context(), topic, logreader.Range{Since: from, Unavailable: l.skipLeaderless(topic)}, func(r *events.Record) error {
		if a, ok := l.readAlert(r); ok {
			found.add(a)
		}
		return nil
	})
	if err != nil {
		return err
	}
	list := found.newestRows(l.note, "alerts")
	slices.Reverse(list)
	if err := l.partialError(); err != nil {
		fmt.Fprintf(l.note, "waybill: %s; new alerts there are shown when the partition has a leader again\n", printable(err.Error()))
	}
	for _, p := range l.leaderless[topic] {
		next[p] = 0
	}
	return o.followTail(cmd, list, &tail{log: l, topic: topic, next: next, since: later(from, began.Add(-clockSpread))})
}

// followTail prints the list, and then new alerts.
func (o *alertsOptions) followTail(cmd *cobra.Command, list []alert, t *tail) error {
	out, head := cmd.OutOrStdout(), alertHead
	show := func() error { // columns are aligned within one poll
		err := printList(&o.output, out, head, list, alertRow)
		head, list = "", list[:0]
		return err
	}
	if err := show(); err != nil {
		return err
	}
	return t.log.pollForever(cmd.Context(), func() (bool, error) {
		news, err := t.poll(cmd.Context(), func(r *events.Record) {
			if a, ok := t.log.readAlert(r); ok {
				list = append(list, a)
			}
		})
		if err == nil && len(list) > 0 {
			err = show()
		}
		return news, err
	})
}
