package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/jsonscan"
)

// labelProgram is the compiled value of a label.
type labelProgram struct {
	name  string
	value *template
}

func (c *decoder) labels(n *node, path string) map[string]string {
	labels := map[string]string{}
	c.object(n, path, nil, func(m member, path string) { labels[m.key] = c.text(m.value, path) })
	return labels
}

func (w *writer) labels(labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	w.field("labels")
	w.openObject()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		w.field(name)
		w.b = jsonscan.AppendString(w.b, labels[name])
	}
	w.closeObject()
}

func checkLabels(f *faults, labels map[string]string) {
	if n := len(labels); n > events.MaxLabels {
		f.add("labels", fmt.Sprintf("%d labels, the limit is %d", n, events.MaxLabels), "remove some")
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name == "" || len(name) > events.MaxNameBytes {
			f.add(memberPath("labels", name), fmt.Sprintf("the name of a label has %d bytes", len(name)), fmt.Sprintf("write 1 to %d bytes", events.MaxNameBytes))
		}
	}
}

// labels compiles the labels in the order of their names. No step has run when they are computed.
func (c *compiler) labels(labels map[string]string) (programs []labelProgram) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		programs = append(programs, labelProgram{name, c.template(labels[name], memberPath("labels", name), scope{step: -1})})
	}
	return programs
}

// Labels returns the labels that the definition adds to those of a submission, nil if there are none. A label whose
// expression gives null is left out. It returns an *Error if an expression fails, or gives a list or an object, or a
// text of more than events.MaxNameBytes.
func (p *Program) Labels(s Scope) (map[string]string, error) {
	var labels map[string]string
	for _, l := range p.labels {
		raw, err := l.value.render(p, &s)
		if err != nil {
			return nil, err
		}
		text, given, err := labelText(raw)
		if err != nil {
			return nil, &Error{File: p.d.source.file, Path: l.value.path, What: err.Error()}
		}
		if !given {
			continue
		}
		if labels == nil {
			labels = make(map[string]string, len(p.labels))
		}
		labels[l.name] = text
	}
	return labels, nil
}

// labelText returns the text of a label's value. given is false for null.
func labelText(raw []byte) (text string, given bool, err error) {
	switch raw[0] {
	case 'n':
		return "", false, nil
	case '{', '[':
		return "", false, fmt.Errorf("a label is text, a number or a boolean; this gives a list or an object")
	case '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", false, err
		}
	default:
		text = string(raw)
	}
	if len(text) > events.MaxNameBytes {
		return "", false, fmt.Errorf("the label has %d bytes; at most %d", len(text), events.MaxNameBytes)
	}
	return text, true, nil
}
