package main

import (
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// On a terminal a table is fitted to its width: times lose their date, the widest texts are cut, and optional columns are
// left out. A table that is piped or redirected is never changed.

const (
	columnGap = 2
	// Characters that the cells of a column keep: before and after columns are left out.
	cellKept, cellMinimum = 20, 8
)

// optionalColumns may be left out of a table that is too wide, the first one first. JSON output has them.
var optionalColumns = []string{"INSTANCE", "FAILURES", "OFFSET", "UPDATED", "OPERATION", "LEFT", "+", "ENDED", "WAIT", "STARTED", "SIZE", "ORIGIN"}

// fitTable returns rows that fit a width. The first one is the head. now tells which dates are those of today.
func fitTable(rows [][]string, width int, now time.Time) [][]string {
	if tableWidth(rows) <= width {
		return rows
	}
	fitted := make([][]string, len(rows))
	for i := range rows {
		fitted[i] = slices.Clone(rows[i])
	}
	for c := range fitted[0] {
		shortenTimes(fitted, c, now)
	}
	cutCells(fitted, width, cellKept)
	for _, name := range optionalColumns {
		if c := slices.Index(fitted[0], name); c >= 0 && tableWidth(fitted) > width {
			for i := range fitted {
				fitted[i] = slices.Delete(fitted[i], c, c+1)
			}
		}
	}
	cutCells(fitted, width, cellMinimum)
	return fitted
}

// columnWidths returns the width of each column.
func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for c := range r {
			widths[c] = max(widths[c], utf8.RuneCountInString(r[c]))
		}
	}
	return widths
}

func tableWidth(rows [][]string) int {
	width := -columnGap
	for _, w := range columnWidths(rows) {
		width += w + columnGap
	}
	return width
}

// shortenTimes shortens the times of a column: to the time of day if all are of today, else to the minute.
func shortenTimes(rows [][]string, c int, now time.Time) {
	layout := "15:04:05Z"
	for _, r := range rows[1:] {
		t, err := time.Parse(tableTimeLayout, r[c])
		switch {
		case r[c] == "-":
		case err != nil:
			return
		case t.Format(time.DateOnly) != now.UTC().Format(time.DateOnly):
			layout = "01-02 15:04Z"
		}
	}
	for _, r := range rows[1:] {
		if t, err := time.Parse(tableTimeLayout, r[c]); err == nil {
			r[c] = t.Format(layout)
		}
	}
}

// cutCells cuts the widest column, again and again, until the table fits or columns have their minimum.
func cutCells(rows [][]string, width, minimum int) {
	over := tableWidth(rows) - width
	widths := columnWidths(rows)
	for ; over > 0; over-- {
		widest := 0
		for c := range widths {
			if widths[c] > widths[widest] {
				widest = c
			}
		}
		if widths[widest] <= max(minimum, utf8.RuneCountInString(rows[0][widest])) {
			break
		}
		widths[widest]--
	}
	for _, r := range rows[1:] {
		for c := range r {
			r[c] = cutText(r[c], widths[c])
		}
	}
}

// cutText keeps the beginning of a text; of one without spaces, such as an id, also the end.
func cutText(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	end := 0
	if !strings.Contains(s, " ") {
		end = most / 3
	}
	return string(r[:most-end-1]) + "…" + string(r[len(r)-end:])
}

// coloured reports whether states are coloured on a terminal: NO_COLOR (https://no-color.org) turns it off.
func coloured() bool { return os.Getenv("NO_COLOR") == "" }

// The colours of states and of the events that tell them, as parameters of SGR. Other states have none.
var stateColours = map[string]string{
	"held": "1;31", "failed": "31", "in error": "31", "undoing": "33", "undone": "33", "waiting": "33",
	string(events.StateProcessing): "36", string(events.StepRunning): "36",
	string(events.StateProcessed): "32", string(events.StepCompleted): "32",
	string(events.StateCancelled): "90", string(events.StepSkipped): "90",
}

// colouredColumns are the columns whose cells are states, or types of events.
var colouredColumns = []string{"STATE", "ENDED", "EVENT"}

// stateColour returns a cell with the escape sequences of its colour.
func stateColour(head, cell, padded string) string {
	if head == "EVENT" {
		_, cell, _ = strings.Cut(cell, ".")
	}
	colour := stateColours[cell]
	if colour == "" || !slices.Contains(colouredColumns, head) {
		return padded
	}
	return "\x1b[" + colour + "m" + padded + "\x1b[0m"
}

// layOut writes rows in aligned columns, with states in colour if asked.
func layOut(rows [][]string, colour bool) string {
	var b strings.Builder
	widths := columnWidths(rows)
	for i, r := range rows {
		line := ""
		for c, cell := range r {
			padded := cell
			if c < len(r)-1 {
				padded += strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell)+columnGap)
			}
			if colour && i > 0 {
				padded = stateColour(rows[0][c], cell, padded)
			}
			line += padded
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
