package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// byteOrderMark is the prefix that some editors write before UTF-8 text.
const byteOrderMark = "\xef\xbb\xbf"

// maxNesting bounds the nesting of the parser's input. The parser is recursive and its time is quadratic in the depth:
// 1,000 levels take 10 ms.
const maxNesting = 500

// ParseYAML parses, checks and type-checks a definition. file only names the source in errors. ParseYAML returns a
// definition that Compile accepts, or Errors with all faults that were found.
//
// CRLF line ends and a byte order mark are allowed.
func ParseYAML(file string, src []byte) (*Definition, error) {
	src = bytes.TrimPrefix(src, []byte(byteOrderMark))
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n")) // the parser only folds these within quotes
	s := source{file: file, positions: map[string]position{"": {line: 1, column: 1}}}
	f := &faults{src: &s}
	root := readYAML(src, f)
	if root == nil {
		return nil, f.err()
	}
	d := decodeDefinition(root, f, false)
	check(d, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return d, nil
}

// readYAML returns the tree of the only document. If there is a fault, it reports it and returns nil.
func readYAML(src []byte, f *faults) *node {
	top := position{line: 1, column: 1}
	switch {
	case len(src) > MaxDefinitionBytes:
		f.addAt(top, "", fmt.Sprintf("the definition has %d bytes, the limit is %d", len(src), MaxDefinitionBytes), "split the workflow")
		return nil
	case !utf8.Valid(src):
		f.addAt(top, "", "the file is not UTF-8 text", "save it as UTF-8")
		return nil
	case nesting(src) > maxNesting:
		f.addAt(top, "", fmt.Sprintf("lists and objects are nested more than %d deep", maxNesting), "flatten them")
		return nil
	}
	file, err := parseBytes(src)
	if err != nil {
		f.list = append(f.list, syntaxError(f.src.file, err))
		return nil
	}
	r := &yamlReader{lines: strings.Split(string(src), "\n"), f: f}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if doc.Body.Type() == ast.DirectiveType {
			f.addAt(r.positionOf(doc.Body), "", "YAML directives are not supported", "remove the line that begins with %")
			return nil
		}
		bodies = append(bodies, doc.Body)
	}
	switch len(bodies) {
	case 0:
		f.addAt(top, "", "the file is empty", "write at least workflow, version, complete_within and steps")
		return nil
	case 1:
		return r.read(bodies[0], 0)
	}
	f.addAt(r.positionOf(bodies[1]), "", "the file holds more than one document", "write one definition a file, without a --- between")
	return nil
}

// parseBytes converts a panic of the parser to an error. A user's input must not end the process.
func parseBytes(src []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the YAML parser failed: %v", r)
		}
	}()
	return parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
}

func syntaxError(file string, err error) *Error {
	e := &Error{File: file, Line: 1, Column: 1, What: err.Error(), Fix: "fix the YAML there"}
	if syntax := (*yaml.SyntaxError)(nil); errors.As(err, &syntax) {
		e.What = syntax.Message
		if t := syntax.Token; t != nil && t.Position != nil {
			e.Line, e.Column = t.Position.Line, t.Position.Column
		}
	}
	return e
}

// nesting returns an upper bound of the depth of collections that need only one or two bytes each: open brackets, and
// dashes or question marks in one line. Other blocks need an indent in each line, so the size of the file bounds them.
func nesting(src []byte) int {
	depth, deepest, run := 0, 0, 0
	for i, b := range src {
		switch b {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '-', '?':
			if i+1 < len(src) && src[i+1] == ' ' {
				run++
			}
		case '\n':
			run = 0
		}
		deepest = max(deepest, depth, run)
	}
	return deepest
}

// yamlReader converts the parser's tree to nodes. It refuses YAML that is not allowed in definitions.
type yamlReader struct {
	lines []string
	f     *faults
}

func (r *yamlReader) positionOf(n ast.Node) position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return r.positionOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return r.positionOf(n.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return position{line: t.Position.Line, column: t.Position.Column}
	}
	return position{line: 1, column: 1}
}

// read returns a node for each YAML node. For a node with a fault it returns a null or refused node, so that the rest
// is still checked.
func (r *yamlReader) read(n ast.Node, depth int) *node {
	if n == nil {
		return &node{}
	}
	out := &node{at: r.positionOf(n)}
	if depth > 2*MaxDepth {
		out.kind, out.text = kindRefused, fmt.Sprintf("nested more than %d deep; flatten it", 2*MaxDepth)
		return out
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.kind = kindObject
		for _, v := range n.Values {
			r.member(out, v, depth)
		}
	case *ast.MappingValueNode:
		out.kind = kindObject
		r.member(out, n, depth)
	case *ast.SequenceNode:
		out.kind = kindList
		for _, v := range n.Values {
			out.items = append(out.items, r.read(v, depth+1))
		}
	case *ast.NullNode:
	case *ast.BoolNode:
		out.kind, out.text = kindBool, strconv.FormatBool(n.Value)
	case *ast.IntegerNode, *ast.FloatNode:
		numberOf(out, n.GetToken().Value)
	case *ast.StringNode:
		r.text(out, n)
	case *ast.LiteralNode:
		out.kind, out.text, out.at = kindString, n.Value.Value, r.blockPosition(n)
	default:
		out.kind, out.text = kindRefused, refusal(n)
	}
	return out
}

// numberOf converts a plain scalar that some YAML parser reads as a number. It accepts only JSON's numbers. YAML 1.1
// and 1.2 read others differently (010 is 8 or 10). Some are not meant as numbers, such as the postal code 01234.
func numberOf(out *node, text string) {
	if isNumber(text) {
		out.kind, out.text = kindNumber, text
		return
	}
	out.kind, out.text = kindRefused, text+" is no number in JSON, and YAML readers disagree about it; write the number in decimal digits, or "+strconv.Quote(text)+" as a string"
}

// likeNumber matches plain scalars that this parser reads as strings, and other YAML parsers as numbers.
var likeNumber = regexp.MustCompile(`^[-+]?(0[xXoObB][0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?)$`)

// text converts a plain or quoted string. A plain scalar in JSON's number syntax is a number. The parser doesn't
// recognize 1e3 and large integers as numbers.
func (r *yamlReader) text(out *node, n *ast.StringNode) {
	out.kind, out.text = kindString, n.Value
	quoted := n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
	switch {
	case !quoted && likeNumber.MatchString(n.Value):
		numberOf(out, n.Value)
		return
	case r.replaced(n):
		out.kind, out.text = kindRefused, notCharacter
		return
	}
	if quoted {
		out.at.column++
	}
	out.at.exact = r.isVerbatim(out.at, n.Value)
}

// notCharacter is the fault, and its fix, of an escape that isn't a character.
const notCharacter = "an escape in this text stands for no character (half of a surrogate pair, or past U+10FFFF); write the character itself"

var writtenReplacement = regexp.MustCompile(`(?i)\x{FFFD}|\\u(0000)?fffd`)

// replaced reports whether a parser replaced invalid escapes by U+FFFD. Such a replacement would make different texts
// equal.
func replaced(text, source string) bool {
	n := strings.Count(text, "\ufffd")
	return n > 0 && n > len(writtenReplacement.FindAllString(source, -1))
}

func (r *yamlReader) replaced(n *ast.StringNode) bool {
	if n.Token.Type != token.DoubleQuoteType || !strings.Contains(n.Value, "\ufffd") {
		return false
	}
	at := r.positionOf(n)
	source := strings.Join(r.lines[at.line-1:], "\n")
	for range at.column { // the quote too
		_, size := utf8.DecodeRuneInString(source)
		source = source[size:]
	}
	end := 0
	for end < len(source) && source[end] != '"' {
		if source[end] == '\\' {
			end++
		}
		end++
	}
	return replaced(n.Value, source[:min(end, len(source))])
}

// blockPosition returns the position of the first line of a block scalar's text.
func (r *yamlReader) blockPosition(n *ast.LiteralNode) position {
	at := position{line: n.Start.Position.Line, column: n.Start.Position.Column}
	first, _, _ := strings.Cut(n.Value.Value, "\n")
	if at.line >= len(r.lines) || first == "" {
		return at
	}
	line := r.lines[at.line]
	p := position{line: at.line + 1, column: 1 + len(line) - len(strings.TrimLeft(line, " "))}
	folded := strings.HasPrefix(n.Start.Value, ">") && strings.Contains(strings.TrimSuffix(n.Value.Value, "\n"), "\n")
	p.exact = !folded && r.isVerbatim(p, first)
	return p
}

// isVerbatim reports whether the source has the text at p, character for character.
func (r *yamlReader) isVerbatim(p position, text string) bool {
	if p.line < 1 || p.line > len(r.lines) {
		return false
	}
	rest := r.lines[p.line-1]
	for range p.column - 1 {
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	return strings.HasPrefix(rest, text)
}

func (r *yamlReader) member(out *node, n *ast.MappingValueNode, depth int) {
	m := member{at: r.positionOf(n.Key)}
	var key ast.Node = n.Key
	if k, ok := key.(*ast.MappingKeyNode); ok {
		key = k.Value
	}
	switch k := key.(type) {
	case *ast.StringNode:
		if m.key = k.Value; r.replaced(k) {
			what, fix, _ := strings.Cut(notCharacter, "; ")
			r.f.addAt(m.at, "", what, fix)
			return
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		// A JSON object's keys are strings; other scalars are used as written.
		m.key = k.GetToken().Value
	default:
		what, fix, _ := strings.Cut(refusal(key), "; ")
		r.f.addAt(m.at, "", what, fix)
		return
	}
	m.value = r.read(n.Value, depth+1)
	out.members = append(out.members, m)
}

// refusal returns why a definition may not contain the node, and the fix.
func refusal(n ast.Node) string {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "anchors, aliases and merge keys are not supported; write the value out, or use defaults"
	case *ast.TagNode:
		return "tags are not supported; remove the tag, quote the value if it is a string"
	case *ast.InfinityNode, *ast.NanNode:
		return "infinity and NaN are not JSON numbers; write a number or a string"
	}
	return "this YAML is not supported in a definition; write plain values"
}
