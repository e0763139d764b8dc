package workflow

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of a task's input, outputs and errors. An expression that reads deeper JSON fails.
const maxJSONDepth = 200

// skipValue returns the index after the JSON value that begins at b[i], or -1 if there is none. It accepts the same
// JSON as encoding/json, nested up to depth levels. b[i] must not be white space.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) || depth < 0 {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipObject(b, i, depth-1)
	case c == '[':
		return skipList(b, i, depth-1)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// plain is true for bytes that need no escape in a JSON string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		if plain[b[i]] {
			continue
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			if i = skipEscape(b, i); i < 0 {
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}

// skipEscape returns the index of the last byte of an escape, or -1.
func skipEscape(b []byte, i int) int {
	if i++; i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
		for range 4 {
			if i++; i >= len(b) || !isHex(b[i]) {
				return -1
			}
		}
		return i
	}
	return -1
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		if i = skipDigits(b, i); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

func skipDigits(b []byte, i int) int {
	first := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	if i == first {
		return -1
	}
	return i
}

// isNumber reports whether s is a number in JSON's syntax.
func isNumber(s string) bool { return s != "" && skipNumber([]byte(s), 0) == len(s) }

func skipObject(b []byte, i, depth int) int {
	end := -1
	if !walkObject(b, i, depth, func(_, _ []byte) {}, &end) {
		return -1
	}
	return end
}

func skipList(b []byte, i, depth int) int {
	end := -1
	if !walkList(b, i, depth, func([]byte) {}, &end) {
		return -1
	}
	return end
}

// walkObject calls each with every key, in quotes, and value of the object at b[i]. It sets end to the index after the
// object. It returns false if the object isn't well formed.
func walkObject(b []byte, i, depth int, each func(key, value []byte), end *int) bool {
	if depth < 0 || i >= len(b) || b[i] != '{' {
		return false
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		*end = i + 1
		return true
	}
	for {
		k := i
		if i = skipString(b, i); i < 0 {
			return false
		}
		key := b[k:i]
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return false
		}
		v := skipSpace(b, i+1)
		if i = skipValue(b, v, depth); i < 0 {
			return false
		}
		each(key, b[v:i])
		if i = skipSpace(b, i); i >= len(b) {
			return false
		}
		switch b[i] {
		case '}':
			*end = i + 1
			return true
		case ',':
			i = skipSpace(b, i+1)
		default:
			return false
		}
	}
}

// walkList is walkObject for a list.
func walkList(b []byte, i, depth int, each func(value []byte), end *int) bool {
	if depth < 0 || i >= len(b) || b[i] != '[' {
		return false
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		*end = i + 1
		return true
	}
	for {
		v := i
		if i = skipValue(b, i, depth); i < 0 {
			return false
		}
		each(b[v:i])
		if i = skipSpace(b, i); i >= len(b) {
			return false
		}
		switch b[i] {
		case ']':
			*end = i + 1
			return true
		case ',':
			i = skipSpace(b, i+1)
		default:
			return false
		}
	}
}

// trim returns the single value in b without the white space around it. It returns nil if b isn't a single valid value.
func trim(b []byte) []byte {
	i := skipSpace(b, 0)
	end := skipValue(b, i, maxJSONDepth)
	if end < 0 || skipSpace(b, end) != len(b) {
		return nil
	}
	return b[i:end]
}

// memberOf returns the value of an object's member and the index after the object. The last of repeated keys counts.
// value is nil if b isn't an object or has no such member.
func memberOf(b []byte, name string) (value []byte, end int) {
	ok := walkObject(b, 0, maxJSONDepth, func(key, v []byte) {
		if keyIs(key, name) {
			value = v
		}
	}, &end)
	if !ok {
		return nil, 0
	}
	return value, end
}

// elementOf returns an element of a list and the index after the list. value is nil if b isn't a list or has no such
// element.
func elementOf(b []byte, n int64) (value []byte, end int) {
	i := int64(0)
	ok := walkList(b, 0, maxJSONDepth, func(v []byte) {
		if i == n {
			value = v
		}
		i++
	}, &end)
	if !ok {
		return nil, 0
	}
	return value, end
}

// keyIs reports whether a key, in quotes, equals a name.
func keyIs(key []byte, name string) bool {
	inner := key[1 : len(key)-1]
	if string(inner) == name {
		// Equal bytes are equal names, unless they contain an escape.
		return !strings.Contains(name, `\`)
	}
	for _, c := range inner {
		if c == '\\' || c >= utf8.RuneSelf {
			return unquote(key) == name
		}
	}
	return false
}

// unquote decodes a well-formed JSON string as encoding/json does. Invalid UTF-8 becomes U+FFFD.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	for _, c := range inner {
		if c == '\\' || c >= utf8.RuneSelf {
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				panic("workflow: a string that was scanned does not decode: " + string(raw))
			}
			return s
		}
	}
	return string(inner)
}
