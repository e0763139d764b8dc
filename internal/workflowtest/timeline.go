package workflowtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// timeline prints the events of a task, one in a line: when, what, the step with its attempt, and what else matters. The
// columns depend on the definition alone, so that a change of one event changes one line.
type timeline struct {
	start     time.Time
	stepWidth int
	lines     []string
	events    int
}

func newTimeline(d *workflow.Definition, start time.Time) timeline {
	t := timeline{start: start}
	for i := range d.Steps {
		t.stepWidth = max(t.stepWidth, len(d.Steps[i].ID)+len(" (1)"))
		if d.Steps[i].ForEach != "" {
			t.stepWidth = max(t.stepWidth, len(d.Steps[i].ID)+len("[0]/undo (1)"))
		}
	}
	return t
}

// The widths of the first two columns.
const (
	timeWidth  = 11
	eventWidth = 16
)

func (t *timeline) add(at time.Time, event, step, detail string) {
	line := fmt.Sprintf("%-*s  %-*s  %-*s  %s", timeWidth, "+"+durationText(at.Sub(t.start)), eventWidth, event, t.stepWidth, step, detail)
	t.lines = append(t.lines, printable(strings.TrimRight(line, " ")))
}

// note adds what happened without an event.
func (t *timeline) note(at time.Time, what string) { t.add(at, "-", "", what) }

func (t *timeline) last() string {
	if len(t.lines) == 0 {
		return ""
	}
	_, text, _ := strings.Cut(t.lines[len(t.lines)-1], "  ")
	return strings.TrimLeft(text, " -")
}

// event adds an event.
func (t *timeline) event(e *events.Event, r *events.Record) {
	t.events++
	about := e.Fact.About()
	step := about.Step
	if about.Attempt > 0 {
		step += " (" + strconv.Itoa(about.Attempt) + ")"
	}
	name := strings.TrimSuffix(strings.TrimPrefix(e.Fact.Type(), "waybill."), ".v1")
	t.add(e.At, name, step, t.detail(e, &about, r.Value))
}

// request adds what an agent is asked to the line of the attempt, which was added in the same decision.
func (t *timeline) request(ref events.RequestRef, what string) {
	step := fmt.Sprintf("%s (%d)", ref.Step, ref.Attempt)
	for i, line := range slices.Backward(t.lines) {
		if strings.HasSuffix(line, step) {
			t.lines[i] = printable(line + strings.Repeat(" ", max(0, t.stepWidth-len(step))) + "  " + what)
			return
		}
	}
}

// leftOut are the members of an event that the timeline doesn't show, or shows in another way.
var leftOut = []string{"at", "cause", "epoch", "prev", "sum", "due", "policy", "queued", "step", "kind", "attempt", "agent", "operation", "idempotency_key",
	"child", "token_hash", "token", "input", "task_input", "output", "error", "by_claimed", "why", "request_id", "instance", "plan", "digest", "workflow", "version",
	"traceparent", "reply_to", "labels", "priority", "complete_by", "until", "wait_ms", "processed", "data"}

// detail says what else an event holds: its error, its value, who asked for it, when its timer is due, and further
// members by name.
func (t *timeline) detail(e *events.Event, about *events.About, value []byte) string {
	var parts []string
	if err := about.Error(); err != nil {
		parts = append(parts, errorText(err))
	}
	if raw := about.Raw; raw != nil && len(*raw) > 0 && string(*raw) != "null" && showsValue(about) {
		parts = append(parts, compact(*raw))
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) == nil {
		maps.DeleteFunc(members, func(name string, value json.RawMessage) bool {
			shown := about.Raw != nil && string(value) == string(*about.Raw) || name == "by" && about.By != nil
			return shown || slices.Contains(leftOut, name)
		})
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if text := memberText(members[name]); name+text != "effect"+string(events.EffectUnknown) {
				parts = append(parts, name+"="+text)
			}
		}
	}
	if (about.Arms == events.TimerWaiting || about.Arms == events.TimerStep) && !e.Due.IsZero() {
		parts = append(parts, "until +"+durationText(e.Due.Sub(t.start)))
	}
	if by := about.By; by != nil && by.Who != "" {
		text := "by " + by.Who
		if by.Why != "" && (about.Error() == nil || about.Error().Message != by.Why) {
			text += ": " + by.Why
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// showsValue reports whether the JSON value of a fact is shown: an output, and not what the case itself says or an agent
// is asked.
func showsValue(about *events.About) bool {
	return about.Phase != events.PhaseStarted && (about.Phase != events.PhaseBegan || about.StepKind != events.WorkflowStep) && about.Verb != events.VerbReceived && about.Verb != events.VerbUndoing
}

// memberText prints a member's value: a word without quotes.
func memberText(raw json.RawMessage) string {
	var word string
	if json.Unmarshal(raw, &word) == nil && word != "" && !strings.ContainsAny(word, " \"") {
		return word
	}
	return compact(raw)
}

// errorText prints an error in one line.
func errorText(e *events.Error) string {
	text := e.Code
	if e.Message != "" {
		text += ": " + e.Message
	}
	if len(e.Details) > 0 {
		text += " " + compact(e.Details)
	}
	return text
}

// compact returns JSON on one line, with a space after each colon and comma, as people write it in YAML.
func compact(raw json.RawMessage) string {
	var b strings.Builder
	quoted, escaped := false, false
	for _, c := range raw {
		space := c == ' ' || c == '\n' || c == '\t' || c == '\r'
		switch {
		case quoted:
			b.WriteByte(c)
			quoted, escaped = c != '"' || escaped, c == '\\' && !escaped
			continue
		case space:
			continue
		}
		b.WriteByte(c)
		quoted = c == '"'
		if c == ':' || c == ',' {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// durationText returns a duration without trailing zero units.
func durationText(d time.Duration) string { return workflow.Duration(d).String() }

// printable replaces control characters, which a literal block of YAML can't hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, s)
}
