package main

import (
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
	"github.com/waybill-run/waybill/projections"
)

// quietLog writes warnings only, each on a line of its own.
func quietLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// summary prints how the orders ended, by card.
func (r *demoRun) summary(res demoResult) error {
	type row struct {
		card string
		ends events.TaskState
		n    int
	}
	counts := map[string]*row{}
	for _, o := range r.orders {
		key := o.Card + string(o.Ends())
		if counts[key] == nil {
			counts[key] = &row{card: o.Card, ends: o.Ends()}
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
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", c.card, c.n, c.ends, demoHow(c.card, c.ends))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\n%d orders: %d processed, %d undone, %d held for an operator. %d steps, %d retries (%d time-outs, %d cool-downs), %d events in %.1f s: %.0f orders/s.\n",
		res.Tasks, res.Processed, res.Undone, res.Error, res.Steps, res.Retries, r.watch.kinds["timed out"], r.watch.kinds["cooled down"], res.Events, res.Duration, res.TasksPerSecond)
	if res.Verified {
		fmt.Fprintln(r.out, "The log verifies: every transition once and in order, and the services' own ledger agrees with it.")
	}
	return r.timeline()
}

func demoHow(card string, ends events.TaskState) string {
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

// timelineCards is whose timeline is worth showing, the best first.
var timelineCards = []string{demo.CardSlow, demo.CardDeclined, demo.CardWorks}

// timeline prints the timeline of one order, from the audit's projection.
func (r *demoRun) timeline() error {
	id := r.orders[0].ID
pick:
	for _, card := range timelineCards {
		for _, o := range r.orders {
			if o.Card == card {
				id = o.ID
				break pick
			}
		}
	}
	lines, err := r.storedTimeline(id)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\nThe timeline of %s:\n", id)
	return printTimeline(r.out, lines)
}

// storedTimeline reads a timeline from the projection on disk, as it was left
// by the audit.
func (r *demoRun) storedTimeline(id string) (_ []events.Line, err error) {
	n := r.sys.node
	s, err := projections.Open(n.dataDir+"/"+projections.ViewTimelines,
		projections.Identity{ClusterID: n.clusterID, Namespace: n.cfg.Namespace, Partitions: n.partitions, View: projections.ViewTimelines}, projections.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	v, err := s.Timelines(events.Partition([]byte(id), n.partitions))
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Timeline(id)
}

// printTimeline prints a timeline for people.
func printTimeline(out io.Writer, lines []events.Line) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SEQ\tAT\t+\tEVENT\tSTEP\tATTEMPT\tOFFSET\t")
	var first time.Time
	for _, l := range lines {
		at, err := time.Parse(time.RFC3339, l.At)
		if err != nil {
			return err
		}
		if first.IsZero() {
			first = at
		}
		attempt := ""
		if l.Attempt > 0 {
			attempt = fmt.Sprint(l.Attempt)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(l.Type, "waybill."), ".v1")
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d/%s\t\n", l.Seq, at.Format("15:04:05.000"), at.Sub(first), name, l.Step, attempt, l.Partition, l.Offset)
	}
	return w.Flush()
}
