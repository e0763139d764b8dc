package workflow

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the type of a node.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
	kindRefused // not allowed in a definition; the text says why, and the fix
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "a list", "an object", "refused"}

func (k kind) String() string { return kindNames[k] }

// node is a value of the source, YAML or JSON, with its position.
type node struct {
	kind    kind
	at      position
	text    string // of a string or a number (in JSON's syntax), "true" or "false"
	items   []*node
	members []member
}

// member is an entry of an object. Members are in the order of the source.
type member struct {
	key   string
	at    position
	value *node
}

// position is a line and a column of the source. Both count from 1, columns in characters. The zero position is
// unknown.
type position struct {
	line, column int
	// exact: the text of a string is in the source verbatim from here, so positions within it can be computed.
	exact bool
}

// locate returns the position of text[offset:], if the text starts at p.
func (p position) locate(text string, offset int) position {
	if !p.exact {
		return p
	}
	before := text[:offset]
	// Only literal blocks are exact among the texts with several lines. Their lines have the same indent.
	p.line += strings.Count(before, "\n")
	p.column += utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return p
}

// source has the positions of the parts of a definition, by path.
type source struct {
	file        string
	positions   map[string]position
	expressions map[string]bool // the paths of strings with expressions
}

// find returns the position of a path, or of its nearest parent that has one.
func (s *source) find(path string) position {
	for {
		if p, ok := s.positions[path]; ok {
			return p
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return s.positions[""]
		}
		path = path[:cut]
	}
}

var simpleKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// memberPath returns the path of a member.
func memberPath(path, key string) string {
	switch {
	case !simpleKey.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// indexPath returns the path of a list's element.
func indexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
