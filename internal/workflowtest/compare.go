package workflowtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// compare returns what isn't as the case expects it.
func (f *File) compare(c *Case, end *outcome) []string {
	if c.expect == nil {
		return []string{"the case expects nothing: add `expect`, for example by --update"}
	}
	var all []string
	differ := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	x, t := c.expect, end.task
	if got := stateName(t.State); x.state != nil && *x.state != got {
		what := got
		if t.Error != nil {
			what += " (" + fullError(t.Error) + ")"
		}
		differ("state: want %s, got %s", *x.state, what)
	}
	if x.err != nil && !x.err.matches(t.Error) {
		differ("error: want %s, got %s", x.err, fullError(t.Error))
	}
	if x.output != nil && !equalJSON(*x.output, outputOf(t)) {
		differ("output: want %s, got %s", compact(*x.output), compact(outputOf(t)))
	}
	for _, id := range slices.Sorted(maps.Keys(x.steps)) {
		if got := stepState(t, id); got != x.steps[id] {
			differ("step %s: want %s, got %s", id, x.steps[id], got)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(x.inputs)) {
		switch got, called := end.inputs[run]; {
		case !called:
			differ("input of %s: want %s, but it wasn't called", run, compact(x.inputs[run]))
		case !equalJSON(got, x.inputs[run]):
			differ("input of %s: want %s, got %s", run, compact(x.inputs[run]), compact(got))
		}
	}
	if x.timeline != nil {
		if want := linesOf(*x.timeline); !slices.Equal(want, end.lines) {
			differ("timeline (- expected, + happened):\n%s", diff(want, end.lines))
		}
	}
	return append(all, unusedOf(c)...)
}

// unusedOf returns what the case says and didn't happen.
func unusedOf(c *Case) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.replies)) {
		if s := c.replies[name]; s.each == nil && s.used < len(s.list) {
			all = append(all, fmt.Sprintf("line %d: %s of %s, but only %s: remove the others", s.line, text.Count(len(s.list), "reply"), name, text.Count(s.used, "attempt")))
		}
	}
	for _, a := range c.actions {
		if !a.planned {
			all = append(all, fmt.Sprintf("line %d: the task was never %s when this %s could come", a.line, stateName(a.when), a.what))
		}
	}
	return all
}

func outputOf(t *events.Task) json.RawMessage {
	if len(t.Output) == 0 {
		return json.RawMessage("null")
	}
	return t.Output
}

func stepState(t *events.Task, id string) string {
	i, ok := t.Plan.Step(id)
	if !ok {
		return "none"
	}
	return string(t.Steps[i].State)
}

func (x *expectedError) matches(e *events.Error) bool {
	if e == nil || *x == (expectedError{}) {
		return e == nil && *x == (expectedError{})
	}
	return (x.code == "" || x.code == e.Code) && (x.step == "" || x.step == e.Step) && (x.message == "" || x.message == e.Message)
}

func (x *expectedError) String() string {
	if *x == (expectedError{}) {
		return "none"
	}
	return fullError(&events.Error{Code: x.code, Step: x.step, Message: x.message})
}

// fullError prints an error with its step.
func fullError(e *events.Error) string {
	if e == nil {
		return "none"
	}
	text := e.Code
	if e.Step != "" {
		text += " at " + e.Step
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// equalJSON compares values. Numbers are equal if their values are: 1, 1.0 and 1e0.
func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	return decodeNumbers(a, &x) == nil && decodeNumbers(b, &y) == nil && equalValues(x, y)
}

func decodeNumbers(raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(v)
}

func equalValues(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equalValues)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equalValues)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || equalFractions(string(a), string(b)))
	}
	return a == b
}

// equalFractions compares two numbers, if one has a fraction or an exponent. Whole numbers of many digits
// would be equal as floats, though they differ.
func equalFractions(a, b string) bool {
	if !strings.ContainsAny(a+b, ".eE") {
		return false
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// linesOf splits a timeline. Spaces at the end of a line don't count.
func linesOf(text string) []string {
	text = strings.TrimRight(text, " \n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// diffContext is how many equal lines are shown around a difference.
const diffContext = 2

// maxDiffCells bounds the table of diff. Longer timelines are compared from their first difference on only.
const maxDiffCells = 4_000_000

// diff prints the lines of want that are missing with "-", and those of got that weren't expected with "+".
func diff(want, got []string) string {
	head := 0
	for head < min(len(want), len(got)) && want[head] == got[head] {
		head++
	}
	var out []string
	equal := func(lines ...string) {
		for _, l := range lines {
			out = append(out, "  "+l)
		}
	}
	equal(want[:head]...)
	w, g := want[head:], got[head:]
	if len(w)*len(g) <= maxDiffCells {
		common := commonLengths(w, g)
		for len(w) > 0 && len(g) > 0 {
			i, j := len(want)-head-len(w), len(got)-head-len(g)
			switch {
			case w[0] == g[0]:
				equal(w[0])
				w, g = w[1:], g[1:]
			case common[i+1][j] >= common[i][j+1]:
				out, w = append(out, "- "+w[0]), w[1:]
			default:
				out, g = append(out, "+ "+g[0]), g[1:]
			}
		}
	}
	for _, l := range w {
		out = append(out, "- "+l)
	}
	for _, l := range g {
		out = append(out, "+ "+l)
	}
	return strings.Join(withContext(out), "\n")
}

// commonLengths returns, for each pair of suffixes, how many lines they have in common.
func commonLengths(a, b []string) [][]int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if table[i][j] = max(table[i+1][j], table[i][j+1]); a[i] == b[j] {
				table[i][j] = table[i+1][j+1] + 1
			}
		}
	}
	return table
}

// withContext replaces equal lines that are far from a difference by one line.
func withContext(lines []string) []string {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if !strings.HasPrefix(l, "  ") {
			for j := max(0, i-diffContext); j <= min(len(lines)-1, i+diffContext); j++ {
				near[j] = true
			}
		}
	}
	var out []string
	for i, l := range lines {
		if near[i] {
			out = append(out, l)
		} else if i == 0 || near[i-1] {
			out = append(out, "  ...")
		}
	}
	return out
}
