package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/events"
)

// The output formats: a table for people, one JSON value, or one JSON object
// a line.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatJSONL = "jsonl"
)

// output is the -o flag.
type output struct{ format string }

// flags adds the flag. It is checked before the command runs.
func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", formatTable, "output format: table, json or jsonl")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
}

func (o *output) check() error {
	switch o.format {
	case formatTable, formatJSON, formatJSONL:
		return nil
	}
	return usage("-o %q: must be table, json or jsonl", o.format)
}

// printObject prints a value as JSON, or by its table function.
func (o *output) printObject(out io.Writer, v any, table func(io.Writer) error) error {
	switch o.format {
	case formatJSON:
		return encode(out, v, "  ")
	case formatJSONL:
		return encode(out, v, "")
	}
	return table(out)
}

// printList prints a list as a table with a row for each entry, as one JSON array, or as one JSON object per
// line.
func printList[T any](o *output, out io.Writer, head string, list []T, row func(T) []string) error {
	switch o.format {
	case formatJSON:
		if list == nil {
			list = []T{}
		}
		return encode(out, list, "  ")
	case formatJSONL:
		for i := range list {
			if err := encode(out, list[i], ""); err != nil {
				return err
			}
		}
		return nil
	}
	w := newTable(out, head)
	for i := range list {
		w.row(row(list[i])...)
	}
	return w.Flush()
}

// printFields prints what has a value: each on a line, after its name.
func printFields(out io.Writer, fields [][2]string) {
	for _, f := range fields {
		if f[1] != "" {
			fmt.Fprintf(out, "%s: %s\n", f[0], printable(f[1]))
		}
	}
}

// encode writes v as JSON, without HTML escapes.
func encode(out io.Writer, v any, indent string) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// table aligns columns. It replaces control characters, so that a record can't write to the operator's
// terminal. On a terminal a table with a head is fitted to the width, and states have colours.
type table struct {
	*tabwriter.Writer
	out    io.Writer
	screen [][]string // rows of a table with a head on a terminal
}

func newTable(out io.Writer, head string) *table {
	t := &table{Writer: tabwriter.NewWriter(out, 0, 4, 2, ' ', 0), out: out}
	if head == "" {
		return t
	}
	if isTerminal(out) {
		t.screen = [][]string{strings.Fields(head)}
		return t
	}
	t.row(strings.Fields(head)...)
	return t
}

// row adds a row. Flush returns write errors.
func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	if t.screen != nil {
		t.screen = append(t.screen, cells)
		return
	}
	if len(cells) == 2 && cells[0] == "State" && isTerminal(t.out) && coloured() {
		cells[1] = stateColour("STATE", cells[1], cells[1])
	}
	fmt.Fprintln(t.Writer, strings.Join(cells, "\t"))
}

// Flush writes the table.
func (t *table) Flush() error {
	if t.screen == nil {
		return t.Writer.Flush()
	}
	rows := t.screen
	if width := terminalWidth(t.out); width > 0 {
		rows = fitTable(rows, width, time.Now())
	}
	_, err := io.WriteString(t.out, layOut(rows, coloured()))
	return err
}

// printable returns s on one line. It replaces control characters and those that change the direction of text,
// with which one id could look like another.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, s)
}

// idTextMax bounds the characters of an id in a table. Ids have up to 256 bytes.
const idTextMax = 64

// idText shortens a long id for a table: it keeps the beginning and the end. JSON output has the whole id.
func idText(id string) string {
	const end = idTextMax / 3
	if r := []rune(id); len(r) > idTextMax {
		return string(r[:idTextMax-end-1]) + "…" + string(r[len(r)-end:])
	}
	return id
}

// dash returns "-" for an empty text.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// tableTimeLayout is the layout of instants in tables: UTC, to the second.
const tableTimeLayout = "2006-01-02 15:04:05Z"

// tableTime formats an instant of JSON for tables.
func tableTime(s *string) string {
	if s == nil {
		return "-"
	}
	t, err := time.Parse(events.TimeLayout, *s)
	if err != nil {
		return *s
	}
	return t.Format(tableTimeLayout)
}

// stateText is a task's or a step's state for people. Tables say held for the state that JSON calls error.
func stateText[S ~string](state S) string {
	if string(state) == string(events.StateError) {
		return "held"
	}
	return string(state)
}

// stepStateText is the state of a step of a task for people. A step in error is held only while the task is.
func stepStateText(task events.TaskState, state events.StepState) string {
	if state == events.StepError && task != events.StateError {
		return "in error"
	}
	return stateText(state)
}

// errorText formats an error as "code: message".
func errorText(e *events.Error) string {
	switch {
	case e == nil:
		return ""
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// hideDefault hides the defaults of flags whose help states them in words.
func hideDefault(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f.Lookup(name).DefValue = "0" // pflag hides a zero default
	}
}
