package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
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

// object is the members of a JSON object, as they stand in its text.
type object struct {
	data    []byte
	members []member
	// seen has a bit for each name that may be there, by nameBit: most names
	// needn't be compared with all before them.
	seen uint64
}

// member says where in the text a member's name stands, without its quotes, and
// its value. There are no pointers in it: there are many, and short-lived.
type member struct {
	nameStart, nameEnd int32
	start, end         int32
	escaped            bool // the name is written with escapes
}

// name is the name of member i.
func (o *object) name(i int) []byte {
	m := &o.members[i]
	if !m.escaped {
		return o.data[m.nameStart:m.nameEnd]
	}
	name, err := unquoteBytes(o.data[m.nameStart-1 : m.nameEnd+1])
	if err != nil {
		panic("events: " + err.Error()) // skipString has accepted it
	}
	return name
}

// value is the value of member i, as it stands.
func (o *object) value(i int) []byte { return o.data[o.members[i].start:o.members[i].end] }

// is reports whether member i has a name.
func (o *object) is(i int, name string) bool {
	m := &o.members[i]
	if m.escaped {
		return string(o.name(i)) == name
	}
	return string(o.data[m.nameStart:m.nameEnd]) == name
}

// reset lets go of the text.
func (o *object) reset() { o.data, o.members, o.seen = nil, o.members[:0], 0 }

var errNotObject = errors.New("not a JSON object")

func badValue(name, what string) error { return fmt.Errorf("field %q: %s", name, what) }

// scan checks that data is one JSON object in UTF-8, with as many levels around
// it, and finds its members. Of two members of one name the last counts, as in the
// standard library.
func (o *object) scan(data []byte, level int) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	if len(data) > math.MaxInt32 {
		return errors.New("longer than 2 GiB")
	}
	return o.scanPart(data, level)
}

// scanPart is scan for a part of what was scanned before.
func (o *object) scanPart(data []byte, level int) error {
	o.reset()
	o.data = data
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return errNotObject
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == '}' {
		return atEnd(data, i+1)
	}
	for {
		var err error
		if i, err = o.scanMember(i, level); err != nil {
			return err
		}
		if len(o.members) > maxJSONFields {
			return fmt.Errorf("more than %d members", maxJSONFields)
		}
		if i = skipSpace(data, i); i >= len(data) {
			return syntax(data, i)
		}
		switch data[i] {
		case ',':
			i = skipSpace(data, i+1)
		case '}':
			return atEnd(data, i+1)
		default:
			return syntax(data, i)
		}
	}
}

// scanMember takes in the member at i and returns where it ends.
func (o *object) scanMember(i, level int) (int, error) {
	m, nameEnd, err := scanName(o.data, i)
	if err != nil {
		return i, err
	}
	if i = skipSpace(o.data, nameEnd); i >= len(o.data) || o.data[i] != ':' {
		return i, syntax(o.data, i)
	}
	i = skipSpace(o.data, i+1)
	end, err := skipValue(o.data, i, level+1)
	if err != nil {
		return end, err
	}
	m.start, m.end = int32(i), int32(end)
	o.put(m)
	return end, nil
}

// scanName reads the name at i; most have no escapes.
func scanName(data []byte, i int) (m member, end int, err error) {
	if i >= len(data) || data[i] != '"' {
		return m, i, syntax(data, i)
	}
	if end = skipPlain(data, i+1); end < len(data) && data[end] == '"' {
		return member{nameStart: int32(i + 1), nameEnd: int32(end)}, end + 1, nil
	}
	end, err = skipString(data, i)
	return member{nameStart: int32(i + 1), nameEnd: int32(end - 1), escaped: true}, end, err
}

// put adds a member, or gives the one of its name another value.
func (o *object) put(m member) {
	o.members = append(o.members, m)
	last := len(o.members) - 1
	name := o.name(last)
	bit := nameBit(name)
	if o.seen&bit == 0 {
		o.seen |= bit
		return
	}
	for i := range last {
		if o.is(i, string(name)) {
			o.members[i].start, o.members[i].end = m.start, m.end
			o.members = o.members[:last]
			return
		}
	}
}

// nameBit is one of 64 bits, by the length and two bytes of a name.
func nameBit[T string | []byte](name T) uint64 {
	n := len(name)
	if n == 0 {
		return 1
	}
	return 1 << ((uint(n) + 5*uint(name[0]) + 11*uint(name[n-1])) & 63)
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
	if i < len(data) && data[i] > ' ' {
		return i // as mostly: what Waybill writes has none
	}
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
	for i = skipPlain(data, i+1); i < len(data); i = skipPlain(data, i+1) {
		switch data[i] {
		case '"':
			return i + 1, nil
		case '\\':
			var err error
			if i, err = skipEscape(data, i+1); err != nil {
				return i, err
			}
		default:
			return i, syntax(data, i)
		}
	}
	return i, syntax(data, i)
}

// skipPlain returns where the next byte is that means something in a string: a
// quote, a backslash, or a control character, which may not stand there. It looks
// at eight bytes at a time: of a word, minus what is sought in each byte, the high
// bit shows where it fell below zero (Bit Twiddling Hacks, "determine if a word has
// a byte less than n"). A byte after the first that is found may be found wrongly, the
// first is not.
func skipPlain(data []byte, i int) int {
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

// skipEscape returns the last byte of an escape whose backslash stands before i.
func skipEscape(data []byte, i int) (int, error) {
	if i >= len(data) {
		return i, syntax(data, i)
	}
	switch data[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		for range 4 {
			if i++; i >= len(data) || !isHex(data[i]) {
				return i, syntax(data, i)
			}
		}
	default:
		return i, syntax(data, i)
	}
	return i, nil
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
