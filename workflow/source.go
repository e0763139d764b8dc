package workflow

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The member source of a stored definition:
//
//	{"file": "order.yaml", "at": {"steps.charge.when": [18, 12], ...}}
//
// at has the line and column of each string with an expression. A third element, 0, means that the text is not verbatim
// in the file, because it is escaped or folded: columns can't be counted within it.

func (w *writer) source(s *source) {
	var paths []string
	for path, p := range s.positions {
		if p.line > 0 && s.expressions[path] {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return
	}
	slices.Sort(paths)
	w.field("source")
	w.openObject()
	w.text("file", s.file)
	w.field("at")
	w.openObject()
	for _, path := range paths {
		w.field(path)
		p := s.positions[path]
		w.b = strconv.AppendInt(append(w.b, '['), int64(p.line), 10)
		w.b = strconv.AppendInt(append(w.b, ','), int64(p.column), 10)
		if !p.exact {
			w.b = append(w.b, ",0"...)
		}
		w.b = append(w.b, ']')
	}
	w.closeObject()
	w.closeObject()
}

// source decodes the member source.
func (c *decoder) source(n *node) source {
	stored := source{positions: map[string]position{}}
	c.object(n, "source", []string{"file", "at"}, func(m member, path string) {
		switch m.key {
		case "file":
			stored.file = c.text(m.value, path)
		case "at":
			c.object(m.value, path, nil, func(m member, path string) {
				if p, ok := storedPosition(m.value); ok {
					stored.positions[m.key] = p
					return
				}
				c.f.addAt(m.at, path, "this is no position", "store the definition again with waybill workflow apply")
			})
		}
	})
	return stored
}

func storedPosition(n *node) (position, bool) {
	const fields = 2
	if n.kind != kindList || len(n.items) < fields || len(n.items) > fields+1 {
		return position{}, false
	}
	var at [fields]int
	for i := range at {
		v, err := strconv.ParseInt(n.items[i].text, 10, 32)
		if err != nil || v < 1 {
			return position{}, false
		}
		at[i] = int(v)
	}
	return position{line: at[0], column: at[1], exact: len(n.items) == fields}, true
}

// markExpressions records the paths of strings with expressions. Only their positions are stored.
func (s *source) markExpressions(d *Definition) {
	s.expressions = map[string]bool{}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case string:
			if strings.Contains(v, "${") {
				s.expressions[path] = true
			}
		case []any:
			for i, e := range v {
				walk(e, indexPath(path, i))
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(v[k], memberPath(path, k))
			}
		}
	}
	for i := range d.Steps {
		step := &d.Steps[i]
		path := stepPath(step.ID)
		for _, t := range step.kind().texts(step) {
			walk(*t.value, path+"."+t.name)
		}
		walk(step.When, path+".when")
		walk(step.ForEach, path+".for_each")
		walk(step.Input, path+".input")
		if step.Repeat != nil {
			walk(step.Repeat.Until, path+".repeat.until")
		}
		if step.Undo != nil {
			walk(step.Undo.Input, path+".undo.input")
		}
	}
	for name, value := range d.Labels {
		walk(value, memberPath("labels", name))
	}
	walk(d.Output, "output")
}

func stepPath(id string) string { return memberPath("steps", id) }

// normalize fills in the defaults of single fields and converts trees to the types of Definition.Output. It replaces
// trees; it doesn't change them in place.
func normalize(d *Definition, f *faults) {
	if d.OnError == "" {
		d.OnError = OnErrorUndo
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		path := stepPath(s.ID)
		if k := s.kind(); k.normalize != nil {
			k.normalize(s)
		}
		s.Input = normalTree(s.Input, path+".input", f)
		if s.Check != nil && s.Check.Agent == "" {
			s.Check.Agent = s.Agent
		}
		if s.Undo == nil {
			continue
		}
		if s.Undo.Agent == "" {
			s.Undo.Agent = s.Agent
		}
		s.Undo.Input = normalTree(s.Undo.Input, path+".undo.input", f)
	}
	d.Output = normalTree(d.Output, "output", f)
	d.source.markExpressions(d)
}
