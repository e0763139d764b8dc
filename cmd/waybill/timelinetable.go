package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

// printTimeline prints a timeline as a table.
func printTimeline(out io.Writer, lines []events.Line) error { return printTimelineFrom(out, lines, 0) }

// timelineHead is the head of a timeline.
const timelineHead = "SEQ AT + EVENT STEP ATTEMPT WAIT WORK LEFT OFFSET INSTANCE"

// printTimelineFrom prints the lines from an index on; the first call prints the head.
func printTimelineFrom(out io.Writer, lines []events.Line, from int) error {
	rows := [][]string{strings.Fields(timelineHead)}
	clock := timelineClock{}
	spans := replay.Spans(lines)
	for i := range lines {
		at, since := clock.read(&lines[i])
		if i >= from {
			rows = append(rows, timelineRow(&lines[i], at, since, &spans[i]))
		}
	}
	return writeTimeline(out, rows, from == 0)
}

// timelineClock returns the times of lines, and since the first of them. A record that isn't an event has none.
type timelineClock struct{ first time.Time }

func (c *timelineClock) read(l *events.Line) (clock, since string) {
	at, err := time.Parse(time.RFC3339, l.At)
	if err != nil {
		return "-", "-"
	}
	if c.first.IsZero() {
		c.first = at
	}
	return at.UTC().Format("15:04:05.000Z"), at.Sub(c.first).String()
}

// timelineRow returns the cells of a line, in the order of timelineHead.
func timelineRow(l *events.Line, at, since string, span *replay.Span) []string {
	seq, attempt := "-", ""
	if l.Seq > 0 {
		seq = fmt.Sprint(l.Seq)
	}
	if l.Attempt > 0 {
		attempt = fmt.Sprint(l.Attempt)
	}
	return []string{seq, at, since, shortType(l.Type), l.Step, attempt, durationText(span.Wait), durationText(span.Work), durationText(span.Left),
		fmt.Sprintf("%d/%s", l.Partition, l.Offset), instanceOf(l)}
}

// writeTimeline writes rows of a timeline. On a terminal they are fitted to its width.
func writeTimeline(out io.Writer, rows [][]string, withHead bool) error {
	if isTerminal(out) {
		if width := terminalWidth(out); width > 0 {
			rows = fitTable(rows, width, time.Now())
		}
		text := layOut(rows, coloured())
		if !withHead {
			_, text, _ = strings.Cut(text, "\n")
		}
		_, err := io.WriteString(out, text)
		return err
	}
	if !withHead {
		rows = rows[1:]
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t")+"\t")
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
	return text.Shorten(printable(data.Instance), 40)
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
