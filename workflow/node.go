package workflow

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is what a node of a definition's source is.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
	kindRefused // not for use in a definition; the text says why and what to do
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "a list", "an object", "refused"}

func (k kind) String() string { return kindNames[k] }

// node is one value of the source, YAML and JSON alike, with its place.
type node struct {
	kind    kind
	at      position
	text    string // of a string or a number (in JSON's syntax), "true" or "false"
	items   []*node
	members []member
}

// member is one entry of an object, in the order of the source.
type member struct {
	key   string
	at    position
	value *node
}

// position is a place in the source: lines and columns count from 1, columns
// in characters. The zero position is unknown.
type position struct {
	line, column int
	// exact tells that the text of a string starts here and stands in the
	// source as it is, so that places within it can be counted.
	exact bool
}

// within is the place of text[offset:], for a text that starts at p.
func (p position) locate(text string, offset int) position {
	if !p.exact {
		return p
	}
	before := text[:offset]
	// Only a literal block spans lines and is exact; its lines share an indent.
	p.line += strings.Count(before, "\n")
	p.column += utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return p
}

// source remembers where the parts of a definition stood, by path.
type source struct {
	file        string
	positions   map[string]position
	expressions map[string]bool // the paths of strings that hold any
}

// find gives the place of a path, or of the nearest of its parents that has one.
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

// join is the path of a member.
func memberPath(path, key string) string {
	switch {
	case !simpleKey.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// index is the path of a list's element.
func indexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
