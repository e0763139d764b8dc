package workflow

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// JSON returns the canonical body: the same bytes for the same meaning, independent of the layout of the YAML. A
// changed body needs a new version.
func (d *Definition) JSON() []byte { return d.encode(false) }

// Stored returns the canonical body with one more member, source. It has the file and the positions of the expressions,
// for errors at run time. Stored is the value on the definitions topic. ParseJSON(Stored()).JSON() equals JSON().
func (d *Definition) Stored() []byte { return d.encode(true) }

// MarshalJSON returns JSON, so that a definition within other data is canonical too.
func (d *Definition) MarshalJSON() ([]byte, error) { return d.JSON(), nil }

// writer appends JSON. openObject and field write the commas.
type writer struct {
	b     []byte
	first bool
}

func (w *writer) openObject() { w.b, w.first = append(w.b, '{'), true }

func (w *writer) closeObject() { w.b, w.first = append(w.b, '}'), false }

func (w *writer) field(name string) {
	if !w.first {
		w.b = append(w.b, ',')
	}
	w.first = false
	w.b = append(jsonscan.AppendString(w.b, name), ':')
}

func (w *writer) text(name, s string) {
	if s != "" {
		w.field(name)
		w.b = jsonscan.AppendString(w.b, s)
	}
}

func (w *writer) integer(name string, v int) {
	if v != 0 {
		w.field(name)
		w.b = strconv.AppendInt(w.b, int64(v), 10)
	}
}

func (w *writer) duration(name string, v Duration) {
	if v != 0 {
		w.text(name, v.String())
	}
}

func (w *writer) optionalDuration(name string, v *Duration) {
	if v != nil {
		w.duration(name, *v)
	}
}

func (w *writer) tree(name string, v any) {
	if v != nil {
		w.field(name)
		w.b = appendTree(w.b, v)
	}
}

func (w *writer) retry(r *Retry) {
	if r == nil {
		return
	}
	w.field("retry")
	w.openObject()
	w.integer("max_attempts", r.MaxAttempts)
	w.duration("backoff", r.Backoff)
	if r.Factor != 0 {
		w.field("factor")
		w.b = appendDouble(w.b, r.Factor)
	}
	w.duration("max", r.Max)
	w.duration("cool_down", r.CoolDown)
	w.texts("only", r.Only)
	w.texts("except", r.Except)
	w.closeObject()
}

func (d *Definition) encode(stored bool) []byte {
	w := &writer{}
	w.openObject()
	w.text("workflow", d.Name)
	w.integer("version", d.Version)
	w.duration("complete_within", d.CompleteWithin)
	w.text("on_error", d.OnError)
	w.duration("dedupe_for", d.DedupeFor)
	if d.Defaults != (Defaults{}) {
		w.field("defaults")
		w.openObject()
		w.duration("complete_within", d.Defaults.CompleteWithin)
		w.retry(d.Defaults.Retry)
		w.closeObject()
	}
	w.labels(d.Labels)
	w.field("steps")
	w.openObject()
	for i := range d.Steps {
		w.step(&d.Steps[i])
	}
	w.closeObject()
	w.tree("output", d.Output)
	if stored {
		w.source(&d.source)
	}
	w.closeObject()
	return w.b
}

func (w *writer) step(s *Step) {
	w.field(s.ID)
	w.openObject()
	for _, t := range s.kind().texts(s) {
		w.text(t.name, *t.value)
	}
	w.integer("version", s.Version)
	w.texts("needs", s.Needs)
	w.text("when", s.When)
	w.text("for_each", s.ForEach)
	w.integer("max_parallel", s.MaxParallel)
	w.text("on_item_error", s.OnItemError)
	w.text("outputs", s.Outputs)
	w.tree("input", s.Input)
	w.optionalDuration("complete_within", s.CompleteWithin)
	w.optionalDuration("heartbeat", s.Heartbeat)
	w.retry(s.Retry)
	w.texts("catch", s.Catch)
	w.repeat(s.Repeat)
	w.check(s.Check)
	w.boolean("pivot", s.Pivot)
	if u := s.Undo; u != nil {
		w.field("undo")
		w.openObject()
		w.text("operation", u.Operation)
		w.text("agent", u.Agent)
		w.tree("input", u.Input)
		w.optionalDuration("complete_within", u.CompleteWithin)
		w.optionalDuration("heartbeat", u.Heartbeat)
		w.retry(u.Retry)
		w.closeObject()
	}
	w.closeObject()
}

// appendTree appends a normalized tree, the keys of its objects sorted.
func appendTree(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return jsonscan.AppendString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendTree(b, e)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(jsonscan.AppendString(b, k), ':')
			b = appendTree(b, v[k])
		}
		return append(b, '}')
	}
	return append(b, "null"...)
}

// appendDouble appends a finite double as encoding/json and JavaScript do: the shortest text that parses to it,
// without an exponent from 1e-6 up to 1e21.
func appendDouble(b []byte, v float64) []byte {
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		s := strconv.FormatFloat(v, 'e', -1, 64)
		return append(b, strings.Replace(s, "e-0", "e-", 1)...)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
