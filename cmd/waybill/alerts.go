package main

import (
	"fmt"
	"slices"
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
	follow bool
}

func newAlerts() *cobra.Command {
	var o alertsOptions
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Show what waits for an operator, the newest first",
		Long: `Show the alerts, the newest first: tasks that are held, definitions and topics that can't be used.
They are events of the past: what was done about them is in the task's timeline. With --follow
they are shown in their order, and new ones as they come, until interrupted.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAlerts(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.since.flags(cmd, "only those since")
	o.limit.flags(cmd)
	cmd.Flags().BoolVar(&o.follow, "follow", false, "go on, with new ones as they come (as table or jsonl)")
	return cmd
}

func runAlerts(cmd *cobra.Command, o *alertsOptions) error {
	if err := o.begin(cmd); err != nil {
		return err
	}
	if o.follow && o.format == formatJSON {
		return usage("--follow has no end, and -o json is one value; take -o jsonl")
	}
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	var list []alert
	take := func(r *events.Record) error {
		if a, ok := l.readAlert(r); ok {
			list = append(list, a)
		}
		return nil
	}
	places, err := l.read(cmd.Context(), l.cfg.Namespace.Alerts(), kafka.Range{Since: from}, take)
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b alert) int { return compareInstants(b.At, a.At) })
	list = cut(&o.limit, l.note, "alerts", list)
	if !o.follow {
		return printList(&o.output, cmd.OutOrStdout(), alertHead, list, alertRow)
	}
	slices.Reverse(list)
	return o.tail(cmd, l, list, &tail{l, l.cfg.Namespace.Alerts(), places})
}

const alertHead = "AT TASK STEP CODE MESSAGE"

func alertRow(a alert) []string {
	return []string{tableTime(a.At), dash(a.Task), dash(a.Step), dash(a.Code), shorten(a.Message, 120)}
}

// readAlert takes an alert of a record; what is none is said and passed over.
func (l *logbook) readAlert(r *events.Record) (alert, bool) {
	a, err := events.DecodeAlert(r)
	if err != nil {
		fmt.Fprintf(l.note, "waybill: %s is no alert: %s\n", events.Origin(r), printable(err.Error()))
		return alert{}, false
	}
	return console.ViewAlert(a, r), true
}

// timeText is an instant as JSON has it.
func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(events.TimeLayout)
	return &s
}

// compareInstants orders what timeText wrote; none is the oldest.
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
