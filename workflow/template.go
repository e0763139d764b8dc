package workflow

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// template is a compiled tree: literal JSON and expressions, alternating. It is immutable and safe for concurrent
// use.
type template struct {
	path  string
	parts []templatePart
	size  int // of the literals, in bytes
}

// templatePart is literal JSON, followed by an expression.
type templatePart struct {
	literal []byte
	x       *expression // nil in the last one
	text    bool        // x is inside a JSON string
}

// template compiles a tree, or reports its faults.
func (c *compiler) template(tree any, path string, sc scope) *template {
	b := &templateBuilder{c: c, scope: sc}
	b.tree(tree, path)
	t := &template{path: path, parts: append(b.parts, templatePart{literal: b.literal})}
	for _, p := range t.parts {
		t.size += len(p.literal)
	}
	return t
}

type templateBuilder struct {
	c       *compiler
	scope   scope
	parts   []templatePart
	literal []byte
}

func (b *templateBuilder) tree(v any, path string) {
	switch v := v.(type) {
	case string:
		b.text(v, path)
	case []any:
		b.literal = append(b.literal, '[')
		for i, e := range v {
			if i > 0 {
				b.literal = append(b.literal, ',')
			}
			b.tree(e, indexPath(path, i))
		}
		b.literal = append(b.literal, ']')
	case map[string]any:
		b.literal = append(b.literal, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			at := memberPath(path, k)
			if strings.Contains(k, "${") {
				b.c.f.add(at, "expressions are not evaluated in keys", "write ${ {expression: value} } for an object with such keys")
			}
			if i > 0 {
				b.literal = append(b.literal, ',')
			}
			b.literal = append(jsonscan.AppendString(b.literal, k), ':')
			b.tree(v[k], at)
		}
		b.literal = append(b.literal, '}')
	default: // nil, bool and json.Number, by normalize
		b.literal = appendTree(b.literal, v)
	}
}

func (b *templateBuilder) text(s, path string) {
	pl := b.c.place(path, s)
	parts, at, ok := splitText(s)
	if !ok {
		b.c.unclosed(pl, at)
		return
	}
	if len(parts) == 1 && parts[0].expression {
		b.expression(pl, parts[0], false)
		return
	}
	b.literal = append(b.literal, '"')
	for _, p := range parts {
		if p.expression {
			b.expression(pl, p, true)
		} else {
			b.literal = jsonscan.AppendInner(b.literal, p.text)
		}
	}
	b.literal = append(b.literal, '"')
}

func (b *templateBuilder) expression(pl location, p part, text bool) {
	pl.textOffset = p.offset
	if x := b.c.expression(pl, p.text, b.scope, nil); x != nil {
		b.parts = append(b.parts, templatePart{literal: b.literal, x: x, text: text})
		b.literal = nil
	}
}

// render evaluates the template. The caller owns the result.
func (t *template) render(p *Program, s *Scope) (json.RawMessage, error) {
	const guess = 96 // bytes of a value
	out := make([]byte, 0, t.size+guess*len(t.parts))
	var a *activation // created for the first expression that needs it
	for i := range t.parts {
		part := &t.parts[i]
		out = append(out, part.literal...)
		if part.x == nil {
			continue
		}
		ok := false
		if part.x.raw != nil {
			out, ok = part.x.raw.append(out, s, part.text)
		}
		if !ok {
			if a == nil {
				a = newActivation(p, s)
			}
			var err error
			if out, err = part.append(out, a); err != nil {
				return nil, err
			}
		}
		if len(out) > MaxResultBytes {
			return nil, part.x.errorOf(errTooLarge)
		}
	}
	return out, nil
}

// append evaluates the part's expression and appends its value.
func (p *templatePart) append(out []byte, a *activation) ([]byte, error) {
	v, err := p.x.eval(a)
	if err != nil {
		return nil, err
	}
	if p.text {
		out, err = appendText(out, v)
	} else {
		out, err = appendValue(out, v, maxJSONDepth)
	}
	if err != nil {
		return nil, p.x.errorOf(err)
	}
	return out, nil
}
