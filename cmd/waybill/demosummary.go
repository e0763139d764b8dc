package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
)

// quietLog logs warnings and errors only.
func quietLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// summary prints the ends of the orders, by card.
func (r *demoRun) summary(res demoResult) error {
	type row struct {
		card string
		ends events.TaskState
		n    int
	}
	counts := map[string]*row{}
	for _, o := range r.orders {
		key := o.Card + string(o.WantState())
		if counts[key] == nil {
			counts[key] = &row{card: o.Card, ends: o.WantState()}
		}
		counts[key].n++
	}
	rows := make([]*row, 0, len(counts))
	for _, c := range counts {
		rows = append(rows, c)
	}
	sort.Slice(rows, func(i, j int) bool {
		return rows[i].card < rows[j].card || rows[i].card == rows[j].card && rows[i].ends > rows[j].ends
	})
	w := tabwriter.NewWriter(r.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "CARD\tORDERS\tENDED\tHOW")
	for _, c := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", c.card, c.n, stateText(c.ends), demoExplanation(c.card, c.ends))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\n%d orders: %d processed, %d undone, %d held for an operator. %d steps, %d retries (%d time-outs, %d cool-downs), %d events in %.1f s: %.0f orders/s.\n",
		res.Tasks, res.Processed, res.Undone, res.Error, res.Steps, res.Retries, r.checker.kinds["timed out"], r.checker.kinds["cooled down"], res.Events, res.Duration, res.TasksPerSecond)
	if res.Verified {
		fmt.Fprintln(r.out, "The log verifies: every transition once and in order, and the services' own ledger agrees with it.")
	}
	fmt.Fprintf(r.out, "\nThe timeline of %s:\n", r.timelineOrder())
	return printTimeline(r.out, r.timeline)
}

func demoExplanation(card string, ends events.TaskState) string {
	switch {
	case card == demo.CardDeclined:
		return "charge rejected; the reservation was released"
	case card == demo.CardSlow:
		return "charge timed out but took effect; tried again under the same key, charged once"
	case card == demo.CardDown:
		return "charge failed 5 times; cooled down, then worked"
	case card == demo.CardStuckUndo && ends == events.StateError:
		return "charge may have happened, and can't be refunded: waits for an operator"
	case card == demo.CardStuckUndo:
		return "likewise held; an operator resubmitted it when refunds worked again"
	}
	return "as it should"
}

// timelineCards are the cards whose timelines are worth showing, best first.
var timelineCards = []string{demo.CardSlow, demo.CardDeclined, demo.CardWorks}

// timelineOrder returns the id of the order whose timeline is shown.
func (r *demoRun) timelineOrder() string {
	for _, card := range timelineCards {
		for _, o := range r.orders {
			if o.Card == card {
				return o.ID
			}
		}
	}
	return r.orders[0].ID
}

// timelineTimeout bounds the reading of a timeline.
const timelineTimeout = 10 * time.Second

// readTimeline reads a task's events from the log, at the offsets that the index stored on disk.
func (r *demoRun) readTimeline(ctx context.Context) ([]events.Line, error) {
	ctx, cancel := context.WithTimeout(ctx, timelineTimeout)
	defer cancel()
	n, id := r.sys.Instance, r.timelineOrder()
	partition := events.Partition([]byte(id), n.Partitions)
	places, err := r.storedPlaces(partition, id)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(places))
	for i := range places {
		offsets[i] = places[i].Offset
	}
	restorer, err := kafka.OpenRestorer(n.Kafka, nil)
	if err != nil {
		return nil, err
	}
	defer restorer.Close()
	records, err := restorer.ReadAt(ctx, n.Kafka.Namespace.Events(), partition, offsets, nil)
	lines := make([]events.Line, len(records))
	for i := range records {
		line, lineErr := events.TimelineLine(&records[i])
		lines[i], err = line, errors.Join(err, lineErr)
	}
	return lines, err
}

func (r *demoRun) storedPlaces(partition int32, id string) (_ []projections.Place, err error) {
	n := r.sys.Instance
	s, err := projections.Open(n.DataDir+"/"+projections.ViewTimelines,
		projections.Identity{ClusterID: n.ClusterID, Namespace: n.Kafka.Namespace, Partitions: n.Partitions, View: projections.ViewTimelines}, projections.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	v, err := s.Timelines(partition)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Timeline(id), nil
}

// printTimeline prints a timeline as a table.
func printTimeline(out io.Writer, lines []events.Line) error { return printTimelineFrom(out, lines, 0) }

// printTimelineFrom prints the lines from an index on; the first call prints the head.
func printTimelineFrom(out io.Writer, lines []events.Line, from int) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if from == 0 {
		fmt.Fprintln(w, "SEQ\tAT\t+\tEVENT\tSTEP\tATTEMPT\tWAIT\tWORK\tLEFT\tOFFSET\tINSTANCE\t")
	}
	var first time.Time
	spans := replay.Spans(lines)
	for i, l := range lines {
		seq, clock, since := "-", "-", "-" // a record that isn't an event has none of them
		at, err := time.Parse(time.RFC3339, l.At)
		if first.IsZero() && err == nil {
			first = at
		}
		if i < from {
			continue
		}
		if err == nil {
			clock, since = at.Format("15:04:05.000"), at.Sub(first).String()
		}
		if l.Seq > 0 {
			seq = fmt.Sprint(l.Seq)
		}
		attempt := ""
		if l.Attempt > 0 {
			attempt = fmt.Sprint(l.Attempt)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d/%s\t%s\t\n", seq, clock, since, shortType(l.Type), l.Step, attempt,
			durationText(spans[i].Wait), durationText(spans[i].Work), durationText(spans[i].Left), l.Partition, l.Offset, instanceOf(&l))
	}
	return w.Flush()
}

// instanceOf returns the agent instance that replied, or "" if the event has none.
func instanceOf(l *events.Line) string {
	var data struct {
		Instance string `json:"instance"`
	}
	if json.Unmarshal(l.Data, &data) != nil {
		return "" // unknown event type
	}
	return shorten(printable(data.Instance), 40)
}

// durationText formats a duration; nil is "".
func durationText(d *time.Duration) string {
	if d == nil {
		return ""
	}
	return d.String()
}

// shortType returns an event's type as tables show it.
func shortType(ceType string) string {
	return strings.TrimSuffix(strings.TrimPrefix(ceType, "waybill."), ".v1")
}
