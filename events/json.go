package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxJSONDepth is how deep arrays and objects may be nested in what comes from
// outside: a record of an inbox, the result of an expression.
const MaxJSONDepth = 64

// The bounds of what is read as JSON. What is stored holds others' values some
// levels down, the details of an undo's error in a stored task six; it must
// be read back whatever came in.
const (
	maxStoredDepth = MaxJSONDepth + 16
	maxJSONFields  = 512
)

// outside is the level at which a value from outside is read, so that as many
// are left as it may have.
const outside = maxStoredDepth - MaxJSONDepth

// field is one member of a JSON object: its name and its value as it stands.
type field struct {
	key []byte
	val []byte
}

var errNotObject = errors.New("not a JSON object")

func badValue(name, what string) error { return fmt.Errorf("field %q: %s", name, what) }

// scanObject checks that data is one JSON object in UTF-8 and appends its
// members to dst. Of two members of one name the last counts, as in the
// standard library. Names and values alias data.
func scanObject(data []byte, dst []field) ([]field, error) { return scanObjectAt(data, dst, 0) }

// scanObjectAt is scanObject for an object that has as many levels around it.
func scanObjectAt(data []byte, dst []field, level int) ([]field, error) {
	if !utf8.Valid(data) {
		return dst, errors.New("not UTF-8")
	}
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return dst, errNotObject
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == '}' {
		return dst, atEnd(data, i+1)
	}
	for {
		keyEnd, err := skipString(data, i)
		if err != nil {
			return dst, err
		}
		key, err := unquoteBytes(data[i:keyEnd])
		if err != nil {
			return dst, err
		}
		i = skipSpace(data, keyEnd)
		if i >= len(data) || data[i] != ':' {
			return dst, syntax(data, i)
		}
		i = skipSpace(data, i+1)
		end, err := skipValue(data, i, level+1)
		if err != nil {
			return dst, err
		}
		dst = setField(dst, key, data[i:end])
		if len(dst) > maxJSONFields {
			return dst, fmt.Errorf("more than %d members", maxJSONFields)
		}
		i = skipSpace(data, end)
		if i >= len(data) {
			return dst, syntax(data, i)
		}
		switch data[i] {
		case ',':
			i = skipSpace(data, i+1)
		case '}':
			return dst, atEnd(data, i+1)
		default:
			return dst, syntax(data, i)
		}
	}
}

func setField(dst []field, key, val []byte) []field {
	for i := range dst {
		if string(dst[i].key) == string(key) {
			dst[i].val = val
			return dst
		}
	}
	return append(dst, field{key, val})
}

// scanArray calls each with every element of a JSON array.
func scanArray(data []byte, each func([]byte) error) error {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '[' {
		return errors.New("not a JSON array")
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == ']' {
		return atEnd(data, i+1)
	}
	for {
		end, err := skipValue(data, i, 1)
		if err != nil {
			return err
		}
		if err := each(data[i:end]); err != nil {
			return err
		}
		i = skipSpace(data, end)
		if i >= len(data) {
			return syntax(data, i)
		}
		switch data[i] {
		case ',':
			i = skipSpace(data, i+1)
		case ']':
			return atEnd(data, i+1)
		default:
			return syntax(data, i)
		}
	}
}

// ValidJSON reports whether data is one JSON value in UTF-8, no deeper than
// MaxJSONDepth.
func ValidJSON(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	i := skipSpace(data, 0)
	end, err := skipValue(data, i, outside)
	return err == nil && atEnd(data, end) == nil
}

func atEnd(data []byte, i int) error {
	if i = skipSpace(data, i); i != len(data) {
		return fmt.Errorf("data after the JSON value at byte %d", i)
	}
	return nil
}

func syntax(data []byte, i int) error {
	if i >= len(data) {
		return errors.New("JSON ends too early")
	}
	return fmt.Errorf("JSON: unexpected %q at byte %d", data[i], i)
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// trimSpace takes the white space of JSON off both ends.
func trimSpace(data []byte) []byte {
	data = data[skipSpace(data, 0):]
	for n := len(data); n > 0 && skipSpace(data, n-1) == n; n-- {
		data = data[:n-1]
	}
	return data
}

// skipValue returns the end of the value that begins at i, at a depth of so many
// arrays and objects around it.
func skipValue(data []byte, i, depth int) (int, error) {
	if i >= len(data) {
		return i, syntax(data, i)
	}
	switch c := data[i]; {
	case c == '"':
		return skipString(data, i)
	case c == '{' || c == '[':
		return skipNested(data, i, depth)
	case c == '-' || c >= '0' && c <= '9':
		return skipNumber(data, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(data)-i >= len(word) && string(data[i:i+len(word)]) == word {
			return i + len(word), nil
		}
	}
	return i, syntax(data, i)
}

func skipNested(data []byte, i, depth int) (int, error) {
	if depth >= maxStoredDepth {
		return i, fmt.Errorf("JSON deeper than %d levels", MaxJSONDepth)
	}
	object := data[i] == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == closing {
		return i + 1, nil
	}
	for {
		var err error
		if object {
			if i, err = skipString(data, i); err != nil {
				return i, err
			}
			if i = skipSpace(data, i); i >= len(data) || data[i] != ':' {
				return i, syntax(data, i)
			}
			i = skipSpace(data, i+1)
		}
		if i, err = skipValue(data, i, depth+1); err != nil {
			return i, err
		}
		if i = skipSpace(data, i); i >= len(data) {
			return i, syntax(data, i)
		}
		if data[i] == closing {
			return i + 1, nil
		}
		if data[i] != ',' {
			return i, syntax(data, i)
		}
		i = skipSpace(data, i+1)
	}
}

func skipString(data []byte, i int) (int, error) {
	if i >= len(data) || data[i] != '"' {
		return i, syntax(data, i)
	}
	for i++; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			return i + 1, nil
		case c < 0x20:
			return i, syntax(data, i)
		case c == '\\':
			i++
			if i >= len(data) {
				return i, syntax(data, i)
			}
			switch data[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for n := 0; n < 4; n++ {
					if i++; i >= len(data) || !isHex(data[i]) {
						return i, syntax(data, i)
					}
				}
			default:
				return i, syntax(data, i)
			}
		}
	}
	return i, syntax(data, i)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipDigits(data []byte, i int) int {
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	return i
}

// skipNumber follows the grammar of RFC 8259, section 6.
func skipNumber(data []byte, i int) (int, error) {
	if data[i] == '-' {
		i++
	}
	start := i
	if i = skipDigits(data, i); i == start || i > start+1 && data[start] == '0' {
		return i, syntax(data, start)
	}
	if i < len(data) && data[i] == '.' {
		start = i + 1
		if i = skipDigits(data, start); i == start {
			return i, syntax(data, i)
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start = i
		if i = skipDigits(data, start); i == start {
			return i, syntax(data, i)
		}
	}
	return i, nil
}

// unquote returns the text of a JSON string that skipString has accepted.
func unquote(raw []byte) (string, error) {
	b, err := unquoteBytes(raw)
	return string(b), err
}

// unquoteBytes aliases raw where nothing in it is escaped.
func unquoteBytes(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return []byte(s), err
}

// appendQuoted appends s as a JSON string. Bytes that are no UTF-8 become
// U+FFFD, as in the standard library.
func appendQuoted(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(dst, s)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// appendEscaped writes the shortest escapes: a text that was read in within a
// bound mustn't be longer when it is written.
func appendEscaped(dst []byte, s string) []byte {
	const hex, short = "0123456789abcdef", "btn.fr" // 0x08 to 0x0d
	dst = append(dst, '"')
	for _, r := range s { // an invalid byte ranges as U+FFFD
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r >= '\b' && r <= '\r' && r != '\v':
			dst = append(dst, '\\', short[r-'\b'])
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
