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
	"github.com/waybill-run/waybill/internal/kafka"
)

// alert is what is printed of an alert.
type alert = console.AlertView

type alertsOptions struct {
	tool
	since
	limit
	api    apiFlags
	open   bool
	follow bool
}

func newAlerts() *cobra.Command {
	var o alertsOptions
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Show alerts: held tasks, and definitions and topics that can't be used",
		Long: `Show alerts, newest first. An alert says that a task is held, or that a definition or a reply_to topic
can't be used. Look here for what needs a person; --open shows only the tasks that are still held.

A console answers if one runs. Otherwise alerts are read from their topic, which keeps them for 30 days,
and with --open from the events. --follow shows alerts in the order of the log, and new ones as they
arrive, until interrupted.`,
		Example: `  waybill alerts --open
  waybill alerts --follow -o jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAlerts(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.since.flags(cmd, "only alerts since")
	o.limit.flags(cmd)
	o.api.flags(cmd)
	cmd.Flags().BoolVar(&o.open, "open", false, "only alerts of tasks that are still held")
	narrow(cmd.Flags(), "open")
	cmd.Flags().BoolVar(&o.follow, "follow", false, "continue with new alerts as they arrive (table or jsonl)")
	return cmd
}

func runAlerts(cmd *cobra.Command, o *alertsOptions) error {
	if err := o.output.check(); err != nil {
		return err
	}
	if o.follow && o.format == formatJSON {
		return usage("--follow has no end, and -o json is one value; take -o jsonl")
	}
	if o.follow && o.open {
		return usage("--follow shows alerts as they come, and --open what became of them: one of the two")
	}
	if o.follow {
		if err := o.api.noConsole("alerts --follow"); err != nil {
			return err
		}
		o.api.url = apiOff
	}
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	return o.consoleOrLog(cmd, &o.api,
		func(c *apiClient) error { return o.ask(cmd, c, from) },
		func(l *logbook) error {
			if o.open {
				return o.readOpen(cmd, l, from)
			}
			return o.readTopic(cmd, l, from)
		})
}

// noticesAsked is how many alerts or dead letters a console gives on a page, at most.
const noticesAsked = 1000

// asking is the question for alerts or dead letters, as far back as the flags say.
func (l *limit) asking(from time.Time) url.Values {
	if from.IsZero() {
		from = time.UnixMilli(0)
	}
	most := noticesAsked
	if l.most > 0 {
		most = min(most, l.most)
	}
	return url.Values{"since": {from.UTC().Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(most)}}
}

// pages asks on until there is nothing left, or as many as are wanted; ask asks for a page and
// says how many came, how many come after them, and the token of the next one.
func (l *limit) pages(c *apiClient, q url.Values, note io.Writer, what string, ask func() (n int, left int64, next string, err error)) error {
	for all := 0; ; {
		n, left, next, err := ask()
		if err != nil {
			return err
		}
		all += n
		switch {
		case left == 0:
			return nil
		case l.most > 0 && all >= l.most:
			fmt.Fprintf(note, "%d of %d %s, the newest; --limit 0 shows all\n", all, int64(all)+left, what)
			return nil
		case next == "":
			return errPart // a build that gives one page only
		case l.most > 0:
			q.Set("limit", strconv.Itoa(min(noticesAsked, l.most-all)))
		}
		if err := c.nextPage(q, next); err != nil {
			return err
		}
	}
}

// alertPage is a console's answer.
type alertPage struct {
	Alerts        []alert              `json:"alerts"`
	Left          int64                `json:"left_off"`
	NextPageToken string               `json:"next_page_token"`
	Incomplete    []console.Incomplete `json:"incomplete"`
}

// ask has a console answer.
func (o *alertsOptions) ask(cmd *cobra.Command, c *apiClient, from time.Time) error {
	q := o.asking(from)
	q.Set("min_offset", "end")
	if o.open {
		q.Set("open", "true")
	}
	var all []alert
	var missing lacks
	err := o.pages(c, q, cmd.ErrOrStderr(), "alerts", func() (int, int64, string, error) {
		var page alertPage
		err := c.get(cmd.Context(), "/alerts", q, decode(&page))
		if err == nil {
			err = missing.add(c, page.Incomplete)
		}
		all = append(all, page.Alerts...)
		return len(page.Alerts), page.Left, page.NextPageToken, err
	})
	if err != nil {
		return err
	}
	return cmp.Or(printList(&o.output, cmd.OutOrStdout(), alertHead, all, alertRow), missing.partial())
}

// readOpen finds the alerts of tasks that are held still in the events.
func (o *alertsOptions) readOpen(cmd *cobra.Command, l *logbook, from time.Time) error {
	f, held, gone := newFolding(), map[string]alert{}, &losses{}
	h := &logHistory{logbook: l, unledToo: true}
	err := h.read(cmd.Context(), "", func(r *events.Record) error {
		f.add(r, nil)
		e, err := events.DecodeEvent(r)
		if err != nil || e.Task == "" {
			return nil // the fold says so
		}
		t := f.tasks[e.Task]
		if hold, is := e.Fact.(*events.TaskHeld); is && t != nil && t.Seq == e.Seq {
			held[e.Task] = console.ViewAlert(events.AlertOfHold(e, hold, t.Ending), r)
		}
		return nil
	}, gone.add)
	if err != nil {
		return err
	}
	left, err := gone.leftOut(cmd.Context(), h, "", func(string, *events.Task) bool { return true })
	if err != nil {
		return err
	}
	f.leave(left)
	f.warn(l.note)
	left.warn(l.note)
	var list []alert
	for id, a := range held {
		if t := f.tasks[id]; t != nil && t.State == events.StateError && compareInstants(a.At, events.InstantText(from)) >= 0 {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b alert) int { return cmp.Or(compareInstants(b.At, a.At), cmp.Compare(a.Task, b.Task)) })
	list = cut(&o.limit, l.note, "alerts", list)
	return cmp.Or(printList(&o.output, cmd.OutOrStdout(), alertHead, list, alertRow), l.partial(), left.partial())
}

// readTopic reads the alerts' topic.
func (o *alertsOptions) readTopic(cmd *cobra.Command, l *logbook, from time.Time) error {
	found := newest[alert]{limit: &o.limit, at: func(a *alert) *string { return a.At }}
	take := func(r *events.Record) error {
		if a, ok := l.readAlert(r); ok {
			found.add(a)
		}
		return nil
	}
	topic, began := l.cfg.Namespace.Alerts(), time.Now()
	places, err := l.read(cmd.Context(), topic, kafka.Range{Since: from, Unavailable: l.without(topic)}, take)
	if err != nil {
		return err
	}
	list := found.shown(l.note, "alerts")
	if !o.follow {
		return cmp.Or(printList(&o.output, cmd.OutOrStdout(), alertHead, list, alertRow), l.partial())
	}
	slices.Reverse(list)
	if err := l.partial(); err != nil {
		fmt.Fprintf(l.note, "waybill: %s; what comes there is shown when it is led\n", printable(err.Error()))
	}
	for _, p := range l.unled[topic] {
		places[p] = place{time: later(from, began.Add(-clockSpread))}
	}
	return o.tail(cmd, l, list, &tail{log: l, topic: topic, places: places})
}

const alertHead = "AT TASK STEP CODE MESSAGE"

func alertRow(a alert) []string {
	return []string{tableTime(a.At), dash(idText(a.Task)), dash(a.Step), dash(a.Code), shorten(a.Message, 120)}
}

// readAlert takes an alert of a record; what is none is said and passed over.
func (l *logbook) readAlert(r *events.Record) (alert, bool) {
	a, err := events.DecodeAlert(r)
	if err != nil {
		fmt.Fprintf(l.note, "waybill: %s is not an alert: %s\n", events.Origin(r), printable(err.Error()))
		return alert{}, false
	}
	return console.ViewAlert(a, r), true
}

// compareInstants orders what events.InstantText wrote; none is the oldest.
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

// tail prints what there is and then what comes, until interrupted.
func (o *alertsOptions) tail(cmd *cobra.Command, l *logbook, list []alert, t *tail) error {
	out, head := cmd.OutOrStdout(), alertHead
	show := func() error { // columns line up among those that come together
		err := printList(&o.output, out, head, list, alertRow)
		head, list = "", list[:0]
		return err
	}
	if err := show(); err != nil {
		return err
	}
	return l.until(cmd.Context(), func() (bool, error) {
		news, err := t.poll(cmd.Context(), func(r *events.Record) {
			if a, ok := l.readAlert(r); ok {
				list = append(list, a)
			}
		})
		if err == nil && len(list) > 0 {
			err = show()
		}
		return news, err
	}, func() bool { return false })
}
