package workflow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder converts nodes to a Definition. It records the position of each field, and a fault for each field that is
// unknown, repeated or of the wrong kind. checkStructure checks the values later.
type decoder struct {
	f *faults
}

func decodeDefinition(root *node, f *faults, stored bool) *Definition {
	c := &decoder{f: f}
	d := &Definition{}
	var given *node
	known := fieldsOf[Definition]()
	if stored {
		known = append(known, "source")
	}
	c.object(root, "", known, func(m member, path string) {
		switch v := m.value; m.key {
		case "workflow":
			d.Name = c.text(v, path)
		case "version":
			d.Version = c.integer(v, path, fmt.Sprintf("write a whole number from 1 to %d", MaxVersion))
		case "complete_within":
			d.CompleteWithin = c.duration(v, path)
		case "on_error":
			d.OnError = c.text(v, path)
		case "dedupe_for":
			d.DedupeFor = c.duration(v, path)
		case "defaults":
			d.Defaults = c.defaults(v, path)
		case "labels":
			d.Labels = c.labels(v, path)
		case "steps":
			d.Steps = c.steps(v, path)
		case "output":
			d.Output = c.tree(v, path, 0)
		case "source":
			given = v
		}
	})
	switch {
	case given != nil:
		d.source = c.source(given)
	case !stored: // positions in stored JSON, a single line, are useless later
		d.source = *f.src
	}
	normalize(d, f)
	return d
}

// fieldsOf lists the names of a struct's fields in the source.
func fieldsOf[T any]() []string {
	var names []string
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("json"); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// object calls set for each known member, after it recorded the member's position. That is the position of the value if
// the value is a string, otherwise the position of the key.
func (c *decoder) object(n *node, path string, known []string, set func(member, string)) {
	if n.kind != kindObject {
		fix := ""
		if len(known) > 0 {
			fix = "write its fields, of " + strings.Join(known, ", ")
		}
		c.kindFault(n, path, kindObject, fix)
		return
	}
	seen := make(map[string]position, len(n.members))
	for _, m := range n.members {
		at := memberPath(path, m.key)
		if first, twice := seen[m.key]; twice {
			c.f.addAt(m.at, at, fmt.Sprintf("given twice, first on line %d", first.line), "remove one of them")
			continue
		}
		seen[m.key] = m.at
		if known != nil && !slices.Contains(known, m.key) {
			c.f.addAt(m.at, at, "no such field", suggest(m.key, known))
			continue
		}
		c.recordPosition(at, m)
		set(m, at)
	}
}

func (c *decoder) recordPosition(path string, m member) {
	p := m.at
	if m.value.kind == kindString {
		p = m.value.at
	}
	c.f.src.positions[path] = p
}

// kindFault reports a value of the wrong kind. fix says what to write instead.
func (c *decoder) kindFault(n *node, path string, want kind, fix string) {
	if c.f.unusable == nil {
		c.f.unusable = map[string]bool{}
	}
	c.f.unusable[path] = true
	if n.kind == kindRefused {
		c.reportRefused(n, path)
		return
	}
	if n.kind == kindNull {
		c.f.addAt(n.at, path, "empty, want "+want.String(), "write it or remove the field")
		return
	}
	c.f.addAt(n.at, path, "this is "+n.kind.String()+", want "+want.String(), fix)
}

func (c *decoder) reportRefused(n *node, path string) {
	what, fix, _ := strings.Cut(n.text, "; ")
	c.f.addAt(n.at, path, what, fix)
}

// textFix says what to write instead of a value that isn't text.
const textFix = "write text, in quotes"

func (c *decoder) text(n *node, path string) string {
	if n.kind != kindString {
		c.kindFault(n, path, kindString, textFix)
		return ""
	}
	if n.text == "" {
		c.f.addAt(n.at, path, "empty", "write it or remove the field")
	}
	return n.text
}

// integer decodes a whole number of at least 1. fix says what to write instead of another value.
func (c *decoder) integer(n *node, path, fix string) int {
	if n.kind != kindNumber {
		c.kindFault(n, path, kindNumber, fix)
		return 0
	}
	i, err := strconv.ParseInt(n.text, 10, 32)
	if err != nil {
		c.f.addAt(n.at, path, n.text+" is out of range", "write a whole number")
		return 0
	}
	if i == 0 { // zero would mean "absent" later
		c.f.addAt(n.at, path, "0 is out of range", fix)
	}
	return int(i)
}

func (c *decoder) float(n *node, path string) float64 {
	if n.kind != kindNumber {
		c.kindFault(n, path, kindNumber, fmt.Sprintf("write a number from 1 to %d", MaxFactor))
		return 0
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if err != nil || v == 0 {
		c.f.addAt(n.at, path, n.text+" is out of range", fmt.Sprintf("write a number from 1 to %d", MaxFactor))
		return 0
	}
	return v
}

func (c *decoder) duration(n *node, path string) Duration {
	if n.kind == kindNumber {
		c.f.addAt(n.at, path, n.text+" is a number without a unit", "write "+n.text+"s for seconds, or ms, m, h")
		return 0
	}
	if n.kind != kindString {
		c.kindFault(n, path, kindString, "write a duration such as 30m")
		return 0
	}
	v, err := ParseDuration(n.text)
	if err != nil {
		what, fix, _ := strings.Cut(err.Error(), "; ")
		c.f.addAt(n.at, path, what, fix)
		return 0
	}
	if v == 0 {
		c.f.addAt(n.at, path, "a duration of zero", "write one of at least "+MinDuration.String()+", or remove the field")
	}
	return v
}

func (c *decoder) optionalDuration(n *node, path string) *Duration {
	v := c.duration(n, path)
	if v == 0 {
		return nil
	}
	return &v
}

func (c *decoder) defaults(n *node, path string) Defaults {
	var d Defaults
	c.object(n, path, fieldsOf[Defaults](), func(m member, path string) {
		switch m.key {
		case "complete_within":
			d.CompleteWithin = c.duration(m.value, path)
		case "retry":
			d.Retry = c.retry(m.value, path)
		}
	})
	return d
}

func (c *decoder) retry(n *node, path string) *Retry {
	r := &Retry{}
	c.object(n, path, fieldsOf[Retry](), func(m member, path string) {
		switch v := m.value; m.key {
		case "max_attempts":
			r.MaxAttempts = c.integer(v, path, "write 1 or more, or remove the field")
		case "backoff":
			r.Backoff = c.duration(v, path)
		case "factor":
			r.Factor = c.float(v, path)
		case "max":
			r.Max = c.duration(v, path)
		case "cool_down":
			r.CoolDown = c.duration(v, path)
		case "only":
			r.Only = c.codes(v, path)
		case "except":
			r.Except = c.codes(v, path)
		}
	})
	if reflect.ValueOf(r).Elem().IsZero() {
		return nil
	}
	return r
}

func (c *decoder) steps(n *node, path string) []Step {
	var steps []Step
	if n.kind == kindList {
		c.f.addAt(n.at, path, "this is a list, want an object", "write each step as a member: its id, then its fields")
		return nil
	}
	c.object(n, path, nil, func(m member, path string) {
		s := Step{ID: m.key}
		c.object(m.value, path, fieldsOf[Step](), func(m member, path string) { c.stepField(&s, m, path) })
		steps = append(steps, s)
	})
	return steps
}

func (c *decoder) stepField(s *Step, m member, path string) {
	switch v := m.value; m.key {
	case "needs":
		s.Needs = c.needs(v, path)
	case "when":
		if v.kind == kindBool {
			c.f.addAt(v.at, path, "this is a boolean, want an expression", `write "${ `+v.text+` }"`)
			return
		}
		s.When = c.text(v, path)
	case "for_each":
		s.ForEach = c.text(v, path)
	case "max_parallel":
		s.MaxParallel = c.integer(v, path, fmt.Sprintf("write a whole number from 1 to %d", MaxParallel))
	case "on_item_error":
		s.OnItemError = c.text(v, path)
	case "outputs":
		s.Outputs = c.text(v, path)
	case "input":
		s.Input = c.tree(v, path, 0)
	case "complete_within":
		s.CompleteWithin = c.optionalDuration(v, path)
	case "heartbeat":
		s.Heartbeat = c.optionalDuration(v, path)
	case "retry":
		s.Retry = c.retry(v, path)
	case "catch":
		s.Catch = c.codes(v, path)
	case "repeat":
		s.Repeat = c.repeat(v, path)
	case "check":
		s.Check = c.check(v, path)
	case "version":
		s.Version = c.integer(v, path, "write 1 or more, or remove the field")
	case "pivot":
		s.Pivot = c.boolean(v, path)
	case "undo":
		s.Undo = &Undo{}
		c.object(v, path, fieldsOf[Undo](), func(m member, path string) { c.undoField(s.Undo, m, path) })
	default:
		c.stepText(s, m, path)
	}
}

func (c *decoder) undoField(u *Undo, m member, path string) {
	switch v := m.value; m.key {
	case "operation":
		u.Operation = c.text(v, path)
	case "agent":
		u.Agent = c.text(v, path)
	case "input":
		u.Input = c.tree(v, path, 0)
	case "complete_within":
		u.CompleteWithin = c.optionalDuration(v, path)
	case "heartbeat":
		u.Heartbeat = c.optionalDuration(v, path)
	case "retry":
		u.Retry = c.retry(v, path)
	}
}

func (c *decoder) needs(n *node, path string) []string {
	return c.texts(n, path, "a list of step ids", "write the ids of steps, as in [a, b]")
}

// texts decodes a list of texts. what names it, and fix says what to write instead of another value.
func (c *decoder) texts(n *node, path, what, fix string) []string {
	if n.kind == kindString {
		c.f.addAt(n.at, path, "this is a string, want "+what, "write ["+n.text+"]")
		return nil
	}
	if n.kind != kindList {
		c.kindFault(n, path, kindList, fix)
		return nil
	}
	var list []string
	for i, v := range n.items {
		at := indexPath(path, i)
		c.f.src.positions[at] = v.at
		if text := c.text(v, at); text != "" {
			list = append(list, text)
		}
	}
	return list
}

// tree decodes a value that may contain expressions.
func (c *decoder) tree(n *node, path string, depth int) any {
	if depth > MaxDepth {
		c.f.addAt(n.at, path, fmt.Sprintf("nested more than %d deep", MaxDepth), "flatten it")
		return nil
	}
	switch n.kind {
	case kindBool:
		return n.text == "true"
	case kindNumber:
		return json.Number(n.text)
	case kindString:
		return n.text
	case kindList:
		list := make([]any, len(n.items))
		for i, v := range n.items {
			at := indexPath(path, i)
			c.f.src.positions[at] = v.at
			list[i] = c.tree(v, at, depth+1)
		}
		return list
	case kindObject:
		object := make(map[string]any, len(n.members))
		c.object(n, path, nil, func(m member, path string) { object[m.key] = c.tree(m.value, path, depth+1) })
		return object
	case kindRefused:
		c.reportRefused(n, path)
	case kindNull:
	}
	return nil
}
