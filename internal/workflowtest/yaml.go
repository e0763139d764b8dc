package workflowtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-run/waybill/events"
)

// MaxFileBytes bounds a test file. maxDepth bounds the nesting of its values.
const (
	MaxFileBytes = 4 << 20
	maxDepth     = 100
)

// Fault is a mistake in a test file.
type Fault struct {
	File string
	Line int // from 1
	What string
	Fix  string // what to do about it
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %s; %s", f.File, f.Line, f.What, f.Fix) }

// Faults are the mistakes of a file, in the order of its lines.
type Faults []*Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// reader reads the values of a file and collects its faults.
type reader struct {
	file   string
	faults Faults
}

func (r *reader) fault(n ast.Node, what, fix string) { r.faultAt(lineOf(n), what, fix) }

func (r *reader) faultAt(line int, what, fix string) {
	r.faults = append(r.faults, &Fault{File: r.file, Line: line, What: what, Fix: fix})
}

// err returns the faults, or nil.
func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b *Fault) int { return cmp.Compare(a.Line, b.Line) })
	return r.faults
}

// lineOf returns the line at which a value begins.
func lineOf(n ast.Node) int {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return lineOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return lineOf(n.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// columnOf returns the column, from 1, of a key.
func columnOf(n ast.Node) int { return n.GetToken().Position.Column }

// root parses a file with one document; nil: it has a fault.
func (r *reader) root(src []byte) ast.Node {
	if len(src) > MaxFileBytes {
		r.faultAt(1, fmt.Sprintf("the file has %d bytes, the limit is %d", len(src), MaxFileBytes), "split it")
		return nil
	}
	parsed, err := parse(src)
	if err != nil {
		line := 1
		what := err.Error()
		if syntax := (*yaml.SyntaxError)(nil); errors.As(err, &syntax) {
			what = syntax.Message
			if t := syntax.Token; t != nil && t.Position != nil {
				line = t.Position.Line
			}
		}
		r.faultAt(line, what, "fix the YAML there")
		return nil
	}
	var root ast.Node
	for _, d := range parsed.Docs {
		switch {
		case d.Body == nil:
		case root == nil:
			root = d.Body
		default:
			r.fault(d.Body, "a second document", "write all cases under one `cases`")
			return nil
		}
	}
	if root == nil {
		r.faultAt(1, "the file is empty", "write at least one case under `cases`")
	}
	return root
}

// parse converts a panic of the parser to an error.
func parse(src []byte) (file *ast.File, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("the YAML parser failed: %v", why)
		}
	}()
	return parser.ParseBytes(src, 0)
}

// member is an entry of an object.
type member struct {
	name  string
	key   ast.Node
	value ast.Node
}

// members returns the entries of an object. Other values are faults. fields are the names that it may have; nil: any.
func (r *reader) members(n ast.Node, what string, fields ...string) []member {
	var entries []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		fix := "write names and values"
		if len(fields) > 0 {
			fix = "write an object with fields of " + strings.Join(fields, ", ")
		}
		r.fault(n, what+" isn't an object", fix)
		return nil
	}
	var all []member
	for _, e := range entries {
		name, ok := keyText(e.Key)
		if !ok {
			r.fault(e.Key, "this key isn't plain text", "write text; anchors, aliases and merge keys aren't supported")
			continue
		}
		if len(fields) > 0 && !slices.Contains(fields, name) {
			r.fault(e.Key, what+" has no field "+strconv.Quote(name), "use one of "+strings.Join(fields, ", "))
			continue
		}
		all = append(all, member{name, e.Key, e.Value})
	}
	return all
}

func keyText(k ast.Node) (string, bool) {
	if m, ok := k.(*ast.MappingKeyNode); ok {
		k = m.Value
	}
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// textOf returns the text of a string; "" after a fault.
func (r *reader) textOf(n ast.Node, what string) string {
	switch n := n.(type) {
	case *ast.StringNode:
		if n.Value != "" {
			return n.Value
		}
	case *ast.LiteralNode:
		return n.Value.Value
	}
	r.fault(n, what+" isn't text", "write text, in quotes")
	return ""
}

// boolOf returns a boolean; false after a fault.
func (r *reader) boolOf(n ast.Node, what string) bool {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.fault(n, what+" isn't a boolean", "write true or false")
		return false
	}
	return b.Value
}

// numberOf returns a whole number from least to most; 0 after a fault.
func (r *reader) numberOf(n ast.Node, what string, least, most int) int {
	v, err := strconv.Atoi(n.GetToken().Value)
	if _, ok := n.(*ast.IntegerNode); !ok || err != nil || v < least || v > most {
		r.fault(n, what+" isn't a whole number that fits", fmt.Sprintf("write one from %d to %d", least, most))
		return 0
	}
	return v
}

// jsonOf returns a value as compact JSON; null after a fault. Numbers keep their digits.
func (r *reader) jsonOf(n ast.Node) json.RawMessage {
	var b bytes.Buffer
	r.writeJSON(&b, n, 0)
	return b.Bytes()
}

func (r *reader) writeJSON(b *bytes.Buffer, n ast.Node, depth int) {
	if depth > maxDepth {
		r.fault(n, fmt.Sprintf("nested more than %d deep", maxDepth), "flatten it")
		b.WriteString("null")
		return
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		b.WriteString("null")
	case *ast.BoolNode:
		b.WriteString(strconv.FormatBool(n.Value))
	case *ast.IntegerNode, *ast.FloatNode:
		r.writeNumber(b, n, n.GetToken().Value)
	case *ast.StringNode:
		quoted := n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
		if !quoted && json.Valid([]byte(n.Value)) { // a number such as 1e3, which the parser takes for text
			b.WriteString(n.Value)
			return
		}
		b.WriteString(quoteJSON(n.Value))
	case *ast.LiteralNode:
		b.WriteString(quoteJSON(n.Value.Value))
	case *ast.SequenceNode:
		b.WriteByte('[')
		for i, v := range n.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			r.writeJSON(b, v, depth+1)
		}
		b.WriteByte(']')
	case *ast.MappingNode, *ast.MappingValueNode:
		b.WriteByte('{')
		for i, m := range r.members(n, "the value") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quoteJSON(m.name) + ":")
			r.writeJSON(b, m.value, depth+1)
		}
		b.WriteByte('}')
	default:
		r.fault(n, "this YAML has no JSON value", "write plain values; anchors, aliases, tags, infinity and NaN aren't supported")
		b.WriteString("null")
	}
}

// writeNumber accepts only JSON's numbers, as definitions do: YAML readers disagree about others.
func (r *reader) writeNumber(b *bytes.Buffer, n ast.Node, text string) {
	if !json.Valid([]byte(text)) {
		r.fault(n, text+" is no number in JSON", "write it in decimal digits, or as a string: "+strconv.Quote(text))
		text = "null"
	}
	b.WriteString(text)
}

func quoteJSON(s string) string {
	text, _ := events.EncodeJSON(s) // a string has a JSON form
	return string(text)
}
