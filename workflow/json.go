package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// ParseJSON parses a definition written by JSON or Stored. It checks everything except the expressions, which Compile
// checks. It keeps stored positions of the YAML. Without them, errors have lines and columns of the JSON while it is
// parsed, and only paths later. It returns Errors with all faults.
func ParseJSON(src []byte) (*Definition, error) {
	s := source{file: "definition", positions: map[string]position{"": {line: 1, column: 1}}}
	f := &faults{src: &s}
	root := readJSON(src, f)
	if root == nil {
		return nil, f.err()
	}
	d := decodeDefinition(root, f, true)
	checkStructure(d, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return d, nil
}

func readJSON(src []byte, f *faults) *node {
	top := position{line: 1, column: 1}
	switch {
	case len(src) > 2*MaxDefinitionBytes: // twice, for the stored positions
		f.addAt(top, "", fmt.Sprintf("the definition has %d bytes, the limit is %d", len(src), 2*MaxDefinitionBytes), "split the workflow")
		return nil
	case !utf8.Valid(src):
		f.addAt(top, "", "the definition is not UTF-8 text", "store it again with waybill workflow apply")
		return nil
	}
	r := &jsonReader{src: src, dec: json.NewDecoder(bytes.NewReader(src)), at: position{line: 1, column: 1}}
	r.dec.UseNumber()
	root, err := r.read(0)
	if err == nil {
		if _, err = r.dec.Token(); err == nil {
			err = errors.New("there is more after the object")
		} else if errors.Is(err, io.EOF) {
			return root
		}
	}
	f.addAt(r.nextPosition(), "", "not a JSON object: "+err.Error(), "store it again with waybill workflow apply")
	return nil
}

// jsonReader converts tokens to nodes, and counts lines and columns.
type jsonReader struct {
	src    []byte
	dec    *json.Decoder
	offset int // counted up to here
	at     position
}

// nextPosition returns the position of the next token, or of the end.
func (r *jsonReader) nextPosition() position {
	end := int(r.dec.InputOffset())
	for end < len(r.src) && bytes.IndexByte([]byte(" \t\r\n,:"), r.src[end]) >= 0 {
		end++
	}
	for ; r.offset < end; r.offset++ {
		switch b := r.src[r.offset]; {
		case b == '\n':
			r.at = position{line: r.at.line + 1, column: 1}
		case utf8.RuneStart(b):
			r.at.column++
		}
	}
	return r.at
}

func (r *jsonReader) read(depth int) (*node, error) {
	if depth > 2*MaxDepth {
		return nil, fmt.Errorf("nested more than %d deep", 2*MaxDepth)
	}
	n := &node{at: r.nextPosition()}
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
	case bool:
		n.kind, n.text = kindBool, fmt.Sprint(t)
	case json.Number:
		n.kind, n.text = kindNumber, t.String()
	case string:
		n.kind, n.text = kindString, t
		n.at.column++
		n.at.exact = bytes.HasPrefix(r.src[r.offset+1:], []byte(t))
	case json.Delim:
		if t == '[' {
			n.kind = kindList
			return n, r.items(n, depth)
		}
		n.kind = kindObject
		return n, r.members(n, depth)
	}
	return n, nil
}

// token returns the next token. It refuses a string if the decoder had to change it.
func (r *jsonReader) token() (json.Token, error) {
	start := r.dec.InputOffset()
	t, err := r.dec.Token()
	if text, ok := t.(string); ok && replaced(text, string(r.src[start:r.dec.InputOffset()])) {
		what, _, _ := strings.Cut(notCharacter, "; ")
		return nil, errors.New(what)
	}
	return t, err
}

func (r *jsonReader) items(n *node, depth int) error {
	for r.dec.More() {
		v, err := r.read(depth + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, v)
	}
	_, err := r.dec.Token()
	return err
}

func (r *jsonReader) members(n *node, depth int) error {
	for r.dec.More() {
		m := member{at: r.nextPosition()}
		t, err := r.token()
		if err != nil {
			return err
		}
		m.key = t.(string) // the decoder accepts nothing else as a key
		if m.value, err = r.read(depth + 1); err != nil {
			return err
		}
		n.members = append(n.members, m)
	}
	_, err := r.dec.Token()
	return err
}
