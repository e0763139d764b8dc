package workflow

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// rawPath is an expression that has only selections, such as input.items, task.id or
// steps.ship.output.parcels[0].tracking.
type rawPath struct {
	from  variable
	links []link
}

// rawPath returns the expression as a rawPath, or nil if it isn't a plain path.
func (c *compiler) rawPath(e ast.Expr) *rawPath {
	s, ok := selectionOf(e)
	if !ok {
		return nil
	}
	name, rest := s.root, s.links
	for n := min(len(s.links), 2); n >= 0; n-- {
		qualified := s.root
		for _, l := range s.links[:n] {
			qualified += variableSeparator + l.name
		}
		if _, ok := c.vars[qualified]; ok {
			name, rest = qualified, s.links[n:]
			break
		}
	}
	from, ok := c.vars[name]
	if !ok {
		return nil
	}
	for i, l := range rest {
		if l.testOnly {
			return nil
		}
		rest[i].expr = nil // release the syntax tree
	}
	return &rawPath{from: from, links: rest}
}

// append appends the JSON of the value, or its form inside a JSON string if text is set. If it returns false, the
// caller must run the program, which returns the value or the error.
func (p *rawPath) append(out []byte, s *Scope, text bool) ([]byte, bool) {
	var raw []byte
	ok := false
	switch p.from.kind {
	case scopeInput:
		raw, ok = p.follow(s.Input, s.Work)
	case stepOutput:
		raw, ok = p.follow(s.step(p.from.step).Output, s.Work)
	case stepError:
		raw, ok = p.follow(s.step(p.from.step).Error, nil)
	case scopeItem:
		raw, ok = p.follow(s.Item, nil)
	case callOutput:
		raw, ok = p.follow(s.CallOutput, nil)
	case namedValue:
		return p.appendNamed(out, s, text)
	default:
		return p.appendScope(out, s, text)
	}
	switch {
	case !ok:
		return out, false
	case text:
		return appendRawText(out, raw)
	}
	return append(out, raw...), true
}

// appendScope appends a value that the scope has as a Go value.
func (p *rawPath) appendScope(out []byte, s *Scope, text bool) ([]byte, bool) {
	var v string
	ok := len(p.links) == 0
	switch p.from.kind {
	case taskID:
		v = s.TaskID
	case taskWorkflow:
		v = s.Workflow
	case stepState:
		v = s.step(p.from.step).State
	case taskVersion:
		return strconv.AppendInt(out, int64(s.Version), 10), ok
	case taskPriority:
		return strconv.AppendInt(out, int64(s.Priority), 10), ok
	case scopeIndex:
		return strconv.AppendInt(out, int64(s.Index), 10), ok
	case taskLabels:
		if len(p.links) != 1 || p.links[0].isIndex {
			return out, false
		}
		v, ok = s.Labels[p.links[0].name]
	case scopeInput, stepOutput, stepError, callOutput, scopeItem, namedValue: // JSON values, which aren't text
	}
	switch {
	case !ok:
		return out, false
	case text:
		return jsonscan.AppendInner(out, v), true
	}
	return jsonscan.AppendString(out, v), true
}

var null = []byte("null")

func (p *rawPath) follow(document []byte, work *Work) ([]byte, bool) {
	if len(document) == 0 {
		return null, len(p.links) == 0
	}
	raw := document
	if len(p.links) == 0 {
		raw = trim(raw)
	} else {
		raw = raw[jsonscan.SkipSpace(raw, 0):]
	}
	for i, l := range p.links {
		var end int
		if i == 0 && !l.isIndex {
			if d := work.sharedDocument(p.from); d != nil {
				if raw = d.member(document, l.name); raw == nil {
					return nil, false
				}
				continue
			}
		}
		whole := raw
		if l.isIndex {
			raw, end = elementOf(raw, l.index)
		} else {
			raw, end = memberOf(raw, l.name)
		}
		if raw == nil || i == 0 && jsonscan.SkipSpace(whole, end) != len(whole) {
			return nil, false // the document has trailing data
		}
	}
	if raw == nil || !representable(raw) || !utf8.Valid(raw) {
		return nil, false
	}
	return raw, true
}

// representable reports false for a number outside a double's range. The program reports an error for it.
func representable(raw []byte) bool {
	const certain = 300 // so many digits don't exceed a double's range
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return true
	}
	if len(raw) <= certain && !bytes.ContainsAny(raw, "eE") {
		return true
	}
	return !types.IsError(number(raw))
}

// appendRawText appends a raw string, boolean or number inside a JSON string.
func appendRawText(b, raw []byte) ([]byte, bool) {
	switch c := raw[0]; {
	case c == '"':
		return append(b, raw[1:len(raw)-1]...), true
	case c == 't', c == 'f', c == '-', '0' <= c && c <= '9':
		return append(b, raw...), true
	}
	return b, false
}
