package jsonscan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxUntrustedDepth bounds the nesting of arrays and objects in JSON from outside: a record of an inbox, the result of an
// expression. Stored JSON contains JSON from outside: the details of an undo's error are six levels deep in a stored
// task. So MaxDepth, its bound, is higher.
const (
	MaxUntrustedDepth = 64
	MaxDepth          = MaxUntrustedDepth + 16
)

// Name is the position of a member's name in a text, without its quotes. It has no pointers, since there are many
// short-lived names.
type Name struct {
	Start, End int32
	Escaped    bool // it is written with escapes
}

// NameCheck is the result of one pass over a JSON value for the names in its objects.
type NameCheck struct {
	// MaybeDuplicate is true if two names in one object may be equal. Then the names must be compared. It is usually false,
	// since each name differs from those before it in one of two bits.
	MaybeDuplicate bool
}

// objectNames are hashes of the names in one object so far.
type objectNames struct{ ends, middles uint64 }

// add adds a name, without its quotes.
func (o *objectNames) add(c *NameCheck, name []byte) {
	end, middle := NameBit(name), uint64(1)
	if n := uint(len(name)); n > 1 {
		middle <<= (uint(name[n/2]) + 7*uint(name[1]) + 13*n) & 63
	}
	if o.ends&end != 0 && o.middles&middle != 0 {
		c.MaybeDuplicate = true
	}
	o.ends, o.middles = o.ends|end, o.middles|middle
}

// ScanName reads the name of a member at i.
func ScanName(data []byte, i int) (n Name, end int, err error) {
	if i >= len(data) || data[i] != '"' {
		return n, i, SyntaxError(data, i)
	}
	if end = SkipPlain(data, i+1); end < len(data) && data[end] == '"' {
		return Name{Start: int32(i + 1), End: int32(end)}, end + 1, nil
	}
	end, err = SkipString(data, i)
	return Name{Start: int32(i + 1), End: int32(end - 1), Escaped: true}, end, err
}

// NameBit hashes a name to one of 64 bits, by its length and two of its bytes.
func NameBit[T string | []byte](name T) uint64 {
	n := len(name)
	if n == 0 {
		return 1
	}
	return 1 << ((uint(n) + 5*uint(name[0]) + 11*uint(name[n-1])) & 63)
}

// AtEnd returns an error unless only white space follows.
func AtEnd(data []byte, i int) error {
	if i = SkipSpace(data, i); i != len(data) {
		return fmt.Errorf("data after the JSON value at byte %d", i)
	}
	return nil
}

// SyntaxError says that data isn't JSON at byte i.
func SyntaxError(data []byte, i int) error {
	if i >= len(data) {
		return fmt.Errorf("JSON ends too early, at byte %d", len(data))
	}
	return fmt.Errorf("JSON: unexpected %q at byte %d", data[i], i)
}

// SkipSpace returns the index of the next byte that isn't white space.
func SkipSpace(data []byte, i int) int {
	if i < len(data) && data[i] > ' ' {
		return i // the usual case: Waybill writes no white space
	}
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// TrimSpace removes JSON's white space from both ends.
func TrimSpace(data []byte) []byte {
	data = data[SkipSpace(data, 0):]
	for n := len(data); n > 0 && SkipSpace(data, n-1) == n; n-- {
		data = data[:n-1]
	}
	return data
}

// SkipValue returns the end of the value that begins at i. depth is the nesting around it, at most MaxDepth. names
// collects whether two members of an object may have the same name; nil: that isn't checked.
func SkipValue(data []byte, i, depth int, names *NameCheck) (int, error) {
	if i >= len(data) {
		return i, SyntaxError(data, i)
	}
	switch c := data[i]; {
	case c == '"':
		return SkipString(data, i)
	case c == '{' || c == '[':
		return skipNested(data, i, depth, names)
	case c == '-' || c >= '0' && c <= '9':
		return SkipNumber(data, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(data)-i >= len(word) && string(data[i:i+len(word)]) == word {
			return i + len(word), nil
		}
	}
	return i, SyntaxError(data, i)
}

func skipNested(data []byte, i, depth int, names *NameCheck) (int, error) {
	if depth >= MaxDepth {
		return i, fmt.Errorf("JSON deeper than %d levels", MaxUntrustedDepth)
	}
	object := data[i] == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	i = SkipSpace(data, i+1)
	if i < len(data) && data[i] == closing {
		return i + 1, nil
	}
	var own objectNames
	for {
		var err error
		if object {
			if i, err = own.skip(data, i, names); err != nil {
				return i, err
			}
			if i = SkipSpace(data, i); i >= len(data) || data[i] != ':' {
				return i, SyntaxError(data, i)
			}
			i = SkipSpace(data, i+1)
		}
		if i, err = SkipValue(data, i, depth+1, names); err != nil {
			return i, err
		}
		if i = SkipSpace(data, i); i >= len(data) {
			return i, SyntaxError(data, i)
		}
		if data[i] == closing {
			return i + 1, nil
		}
		if data[i] != ',' {
			return i, SyntaxError(data, i)
		}
		i = SkipSpace(data, i+1)
	}
}

// skip returns the end of the name at i, and adds the name if names are checked.
func (o *objectNames) skip(data []byte, i int, names *NameCheck) (int, error) {
	if names == nil {
		return SkipString(data, i)
	}
	n, end, err := ScanName(data, i)
	switch {
	case err != nil:
	case n.Escaped: // it may equal a name with other escapes
		names.MaybeDuplicate = true
	default:
		o.add(names, data[n.Start:n.End])
	}
	return end, err
}

// SkipString returns the end of the string at i.
func SkipString(data []byte, i int) (int, error) {
	if i >= len(data) || data[i] != '"' {
		return i, SyntaxError(data, i)
	}
	for i = SkipPlain(data, i+1); i < len(data); i = SkipPlain(data, i+1) {
		switch data[i] {
		case '"':
			return i + 1, nil
		case '\\':
			var err error
			if i, err = skipEscape(data, i+1); err != nil {
				return i, err
			}
		default:
			return i, SyntaxError(data, i)
		}
	}
	return i, SyntaxError(data, i)
}

// SkipPlain returns the index of the next byte that has a meaning in a string: a quote, a
// backslash, or a control character, which is an error there. It checks eight bytes at a time with
// the high bits of a subtraction (Bit Twiddling Hacks, "determine if a word has a byte less than
// n"). The first byte found is right; those after it may not be.
func SkipPlain(data []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		quote, escape := w^(ones*'"'), w^(ones*'\\')
		if found := ((w-ones*0x20)&^w | (quote-ones)&^quote | (escape-ones)&^escape) & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(data) && data[i] != '"' && data[i] != '\\' && data[i] >= 0x20 {
		i++
	}
	return i
}

// skipEscape returns the index of the last byte of an escape. Its backslash is before i.
func skipEscape(data []byte, i int) (int, error) {
	if i >= len(data) {
		return i, SyntaxError(data, i)
	}
	switch data[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		return skipCodeUnit(data, i)
	default:
		return i, SyntaxError(data, i)
	}
	return i, nil
}

// skipCodeUnit returns the index of the last byte of an escape whose u is at i. A character past
// U+FFFF is two escapes, a surrogate pair. Half of one is refused (RFC 8259, section 8.2): decoders
// replace it by U+FFFD, so different texts would become equal.
func skipCodeUnit(data []byte, i int) (int, error) {
	start := i - 1
	r, i, err := scanHex(data, i)
	switch {
	case err != nil || !utf16.IsSurrogate(r):
		return i, err
	case len(data)-i > 2 && data[i+1] == '\\' && data[i+2] == 'u':
		low, end, err := scanHex(data, i+2)
		if err != nil {
			return end, err
		}
		if utf16.DecodeRune(r, low) != utf8.RuneError {
			return end, nil
		}
	}
	return i, fmt.Errorf("JSON: %s at byte %d is half of a surrogate pair and stands for no character", data[start:i+1], start)
}

// scanHex reads the four digits after the u at i, and returns the index of the last.
func scanHex(data []byte, i int) (rune, int, error) {
	for range 4 {
		if i++; i >= len(data) || !isHex(data[i]) {
			return 0, i, SyntaxError(data, i)
		}
	}
	return hexRune(data[i-3:]), i, nil
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

// SkipNumber returns the end of the number at i, by the grammar of RFC 8259, section 6.
func SkipNumber(data []byte, i int) (int, error) {
	if data[i] == '-' {
		i++
	}
	start := i
	if i = skipDigits(data, i); i == start || i > start+1 && data[start] == '0' {
		return i, SyntaxError(data, start)
	}
	if i < len(data) && data[i] == '.' {
		start = i + 1
		if i = skipDigits(data, start); i == start {
			return i, SyntaxError(data, i)
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start = i
		if i = skipDigits(data, start); i == start {
			return i, SyntaxError(data, i)
		}
	}
	return i, nil
}

// Unquote returns the text of a JSON string that SkipString has accepted.
func Unquote(raw []byte) string { return string(UnquoteBytes(raw)) }

// UnquoteBytes is Unquote. The result aliases raw if raw has no escapes.
func UnquoteBytes(raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return Unescape(raw)
}

// Unescape returns the text of a JSON string, without its quotes, that SkipString has accepted.
func Unescape(raw []byte) []byte {
	text := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			continue
		}
		i++
		if raw[i] == 'u' {
			r := hexRune(raw[i+1:])
			if i += 4; utf16.IsSurrogate(r) { // the other half follows: skipCodeUnit has checked it
				r = utf16.DecodeRune(r, hexRune(raw[i+3:]))
				i += 6
			}
			text = utf8.AppendRune(text, r)
			continue
		}
		text = append(text, unescaped(raw[i]))
	}
	return text
}

// unescaped returns the character that a letter after a backslash stands for.
func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // a quote, a backslash or a slash
}

// hexRune returns the code unit of four hexadecimal digits.
func hexRune(digits []byte) (r rune) {
	for _, c := range digits[:4] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// AppendString appends s as a JSON string with the shortest escapes, so that a text that was read within a bound isn't
// longer when it is written. Bytes that aren't UTF-8 become U+FFFD, as in the standard library.
func AppendString(dst []byte, s string) []byte { return append(AppendInner(append(dst, '"'), s), '"') }

// AppendInner is AppendString without the quotes.
func AppendInner(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(dst, s)
		}
	}
	return append(dst, s...)
}

func appendEscaped(dst []byte, s string) []byte {
	const hex, short = "0123456789abcdef", "btn.fr" // 0x08 to 0x0d
	for _, r := range s {                           // an invalid byte ranges as U+FFFD
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
	return dst
}

// Member is a member of an object, as slices of the text.
type Member struct {
	Name  []byte // in quotes
	Value []byte
	Text  []byte // both
}

// EachMember calls each with the members of the object at i, and returns its end. depth is the nesting around it.
func EachMember(data []byte, i, depth int, each func(Member)) (int, error) {
	if i >= len(data) || data[i] != '{' {
		return i, ErrNotObject
	}
	return eachItem(data, i, '}', func(i int) (int, error) {
		nameEnd, err := SkipString(data, i)
		if err != nil {
			return i, err
		}
		colon := SkipSpace(data, nameEnd)
		if colon >= len(data) || data[colon] != ':' {
			return colon, SyntaxError(data, colon)
		}
		start := SkipSpace(data, colon+1)
		end, err := SkipValue(data, start, depth+1, nil)
		if err == nil {
			each(Member{data[i:nameEnd], data[start:end], data[i:end]})
		}
		return end, err
	})
}

// EachElement calls each with the elements of the array at i, and returns its end. depth is the nesting around it.
func EachElement(data []byte, i, depth int, each func([]byte) error) (int, error) {
	if i >= len(data) || data[i] != '[' {
		return i, ErrNotArray
	}
	return eachItem(data, i, ']', func(i int) (int, error) {
		end, err := SkipValue(data, i, depth+1, nil)
		if err == nil {
			err = each(data[i:end])
		}
		return end, err
	})
}

// The errors of EachMember and EachElement for another value.
var (
	ErrNotObject = errors.New("not a JSON object")
	ErrNotArray  = errors.New("not a JSON array")
)

// eachItem calls item with the index of each member or element of what begins at i. item returns its end.
func eachItem(data []byte, i int, closing byte, item func(i int) (end int, err error)) (int, error) {
	if i = SkipSpace(data, i+1); i < len(data) && data[i] == closing {
		return i + 1, nil
	}
	for {
		end, err := item(i)
		if err != nil {
			return end, err
		}
		i = SkipSpace(data, end)
		switch {
		case i >= len(data):
			return i, SyntaxError(data, i)
		case data[i] == closing:
			return i + 1, nil
		case data[i] != ',':
			return i, SyntaxError(data, i)
		}
		i = SkipSpace(data, i+1)
	}
}
