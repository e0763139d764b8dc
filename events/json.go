package events

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxJSONDepth bounds the nesting of arrays and objects in JSON from outside: a record of an inbox, the result of an
// expression.
const MaxJSONDepth = 64

// The bounds of JSON that is read. Stored JSON contains JSON from outside: the details of an undo's error are six
// levels deep in a stored task. So the bound of stored JSON is higher.
const (
	maxStoredDepth = MaxJSONDepth + 16
	maxJSONFields  = 512
)

// untrustedLevel is the level at which JSON from outside is read, so that MaxJSONDepth levels are left.
const untrustedLevel = maxStoredDepth - MaxJSONDepth

// object holds the members of a JSON object as slices of its text.
type object struct {
	data    []byte
	members []member
	// seen has a bit for each name that is there, by nameBit. With it most names needn't be compared with those before
	// them.
	seen uint64
	// checkNames is true if the names within the values are checked too. The result is in names.
	checkNames bool
	names      nameCheck
}

// nameCheck is the result of one pass over a JSON value for the names in its objects.
type nameCheck struct {
	// maybeDuplicate is true if two names in one object may be equal. Then checkNames must decide. It is usually false,
	// since each name differs from those before it in one of two bits.
	maybeDuplicate bool
}

// objectNames are hashes of the names in one object so far.
type objectNames struct{ ends, middles uint64 }

// add adds a name, without its quotes.
func (o *objectNames) add(c *nameCheck, name []byte) {
	end, middle := nameBit(name), uint64(1)
	if n := uint(len(name)); n > 1 {
		middle <<= (uint(name[n/2]) + 7*uint(name[1]) + 13*n) & 63
	}
	if o.ends&end != 0 && o.middles&middle != 0 {
		c.maybeDuplicate = true
	}
	o.ends, o.middles = o.ends|end, o.middles|middle
}

// member is the position of a member's name, without its quotes, and of its value. It has no
// pointers, since there are many short-lived members.
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
	return unescape(o.data[m.nameStart:m.nameEnd])
}

// value is the value of member i, verbatim.
func (o *object) value(i int) []byte { return o.data[o.members[i].start:o.members[i].end] }

// hasName reports whether member i has this name.
func (o *object) hasName(i int, name string) bool {
	m := &o.members[i]
	if m.escaped {
		return string(o.name(i)) == name
	}
	return string(o.data[m.nameStart:m.nameEnd]) == name
}

// reset drops the reference to the text.
func (o *object) reset() { o.data, o.members, o.seen = nil, o.members[:0], 0 }

var (
	errNotObject = errors.New("not a JSON object")
	errNotUTF8   = errors.New("not UTF-8")
)

func badValue(name, what string) error { return fmt.Errorf("field %q: %s", name, what) }

// scan checks that data is one JSON object in UTF-8, and finds its members. level is the nesting around it. Members
// must have distinct names.
func (o *object) scan(data []byte, level int) error {
	if !utf8.Valid(data) {
		return errNotUTF8
	}
	if len(data) > math.MaxInt32 {
		return errors.New("longer than 2 GiB")
	}
	return o.scanPart(data, level)
}

// scanPart is scan for a part of a value that was scanned already.
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

// scanMember adds the member at i and returns its end.
func (o *object) scanMember(i, level int) (int, error) {
	m, nameEnd, err := scanName(o.data, i)
	if err != nil {
		return i, err
	}
	if i = skipSpace(o.data, nameEnd); i >= len(o.data) || o.data[i] != ':' {
		return i, syntax(o.data, i)
	}
	i = skipSpace(o.data, i+1)
	var names *nameCheck
	if o.checkNames {
		names = &o.names
	}
	end, err := skipCheckingNames(o.data, i, level+1, names)
	if err != nil {
		return end, err
	}
	m.start, m.end = int32(i), int32(end)
	return end, o.addMember(m)
}

// scanName reads the name at i. Most names have no escapes.
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

// addMember adds a member. A name that is there already is an error.
func (o *object) addMember(m member) error {
	o.members = append(o.members, m)
	last := len(o.members) - 1
	name := o.name(last)
	bit := nameBit(name)
	if o.seen&bit == 0 {
		o.seen |= bit
		return nil
	}
	for i := range last {
		if o.hasName(i, string(name)) {
			return duplicateNameError(name)
		}
	}
	return nil
}

// nameBit hashes a name to one of 64 bits, by its length and two of its bytes.
func nameBit[T string | []byte](name T) uint64 {
	n := len(name)
	if n == 0 {
		return 1
	}
	return 1 << ((uint(n) + 5*uint(name[0]) + 11*uint(name[n-1])) & 63)
}

// eachMember calls each with the name and the text of every member of a JSON object. It has no bound on their number.
func eachMember(data []byte, each func(name, member []byte)) error {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return errNotObject
	}
	if i = skipSpace(data, i+1); i < len(data) && data[i] == '}' {
		return atEnd(data, i+1)
	}
	for {
		nameEnd, err := skipString(data, i)
		if err != nil {
			return err
		}
		colon := skipSpace(data, nameEnd)
		if colon >= len(data) || data[colon] != ':' {
			return syntax(data, colon)
		}
		end, err := skipValue(data, skipSpace(data, colon+1), 1)
		if err != nil {
			return err
		}
		each(unquoteBytes(data[i:nameEnd]), data[i:end])
		if i = skipSpace(data, end); i >= len(data) || data[i] != ',' {
			break
		}
		i = skipSpace(data, i+1)
	}
	if i >= len(data) || data[i] != '}' {
		return syntax(data, i)
	}
	return atEnd(data, i+1)
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

// ValidJSON reports whether data passes CheckJSON.
func ValidJSON(data []byte) bool { return CheckJSON(data) == nil }

// CheckJSON returns why data isn't one JSON value that all decoders read alike: in UTF-8, no deeper than MaxJSONDepth,
// without half a surrogate pair, and without two members of one name in an object.
func CheckJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errNotUTF8
	}
	var names nameCheck
	end, err := skipCheckingNames(data, skipSpace(data, 0), untrustedLevel, &names)
	if err != nil {
		return err
	}
	if err := atEnd(data, end); err != nil || !names.maybeDuplicate {
		return err
	}
	return checkNames(data)
}

// checkNames refuses two members of one name in an object, at any depth of a valid JSON value.
// Decoders differ in which of them they use.
func checkNames(data []byte) error {
	type level struct {
		first int    // index in names of its first member
		seen  uint64 // a bit for each name, by nameBit
		check bool   // two names have the same bit
	}
	var fewNames [16][]byte
	var fewLevels [4]level
	names, levels := fewNames[:0], fewLevels[:1]
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			levels = append(levels, level{first: len(names)})
		case '}', ']':
			l := levels[len(levels)-1]
			if l.check {
				if err := checkDistinct(names[l.first:]); err != nil {
					return err
				}
			}
			names, levels = names[:l.first], levels[:len(levels)-1]
		case '"':
			end, err := skipString(data, i)
			if err != nil {
				return err
			}
			if next := skipSpace(data, end); next < len(data) && data[next] == ':' {
				name := unquoteBytes(data[i:end])
				l, bit := &levels[len(levels)-1], nameBit(name)
				l.check = l.check || l.seen&bit != 0
				l.seen |= bit
				names = append(names, name)
			}
			i = end - 1
		}
	}
	return nil
}

// checkDistinct refuses two equal names. It sorts names.
func checkDistinct(names [][]byte) error {
	slices.SortFunc(names, bytes.Compare)
	for i := range names[1:] {
		if bytes.Equal(names[i], names[i+1]) {
			return duplicateNameError(names[i])
		}
	}
	return nil
}

func duplicateNameError(name []byte) error {
	return fmt.Errorf("JSON: two members are named %q", cut(name, MaxNameBytes))
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
		return i // the usual case: Waybill writes no white space
	}
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// trimSpace removes JSON's white space from both ends.
func trimSpace(data []byte) []byte {
	data = data[skipSpace(data, 0):]
	for n := len(data); n > 0 && skipSpace(data, n-1) == n; n-- {
		data = data[:n-1]
	}
	return data
}

// skipValue returns the end of the value that begins at i. depth is the nesting around it.
func skipValue(data []byte, i, depth int) (int, error) { return skipCheckingNames(data, i, depth, nil) }

// skipCheckingNames is skipValue. It checks the names of members unless names is nil.
func skipCheckingNames(data []byte, i, depth int, names *nameCheck) (int, error) {
	if i >= len(data) {
		return i, syntax(data, i)
	}
	switch c := data[i]; {
	case c == '"':
		return skipString(data, i)
	case c == '{' || c == '[':
		return skipNested(data, i, depth, names)
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

func skipNested(data []byte, i, depth int, names *nameCheck) (int, error) {
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
	var own objectNames
	for {
		var err error
		if object {
			if i, err = own.skip(data, i, names); err != nil {
				return i, err
			}
			if i = skipSpace(data, i); i >= len(data) || data[i] != ':' {
				return i, syntax(data, i)
			}
			i = skipSpace(data, i+1)
		}
		if i, err = skipCheckingNames(data, i, depth+1, names); err != nil {
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

// skip returns the end of the name at i, and adds the name if names are checked.
func (o *objectNames) skip(data []byte, i int, names *nameCheck) (int, error) {
	if names == nil {
		return skipString(data, i)
	}
	m, end, err := scanName(data, i)
	switch {
	case err != nil:
	case m.escaped: // it may equal a name with other escapes
		names.maybeDuplicate = true
	default:
		o.add(names, data[m.nameStart:m.nameEnd])
	}
	return end, err
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

// skipPlain returns the index of the next byte that has a meaning in a string: a quote, a
// backslash, or a control character, which is an error there. It checks eight bytes at a time with
// the high bits of a subtraction (Bit Twiddling Hacks, "determine if a word has a byte less than
// n"). The first byte found is right; those after it may not be.
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

// skipEscape returns the index of the last byte of an escape. Its backslash is before i.
func skipEscape(data []byte, i int) (int, error) {
	if i >= len(data) {
		return i, syntax(data, i)
	}
	switch data[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		return skipCodeUnit(data, i)
	default:
		return i, syntax(data, i)
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
			return 0, i, syntax(data, i)
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

// skipNumber returns the end of the number at i, by the grammar of RFC 8259, section 6.
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
func unquote(raw []byte) string { return string(unquoteBytes(raw)) }

// unquoteBytes is unquote. The result aliases raw if raw has no escapes.
func unquoteBytes(raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unescape(raw)
}

// unescape returns the text of a JSON string, without its quotes, that skipString has accepted.
func unescape(raw []byte) []byte {
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

// appendQuoted appends s as a JSON string. Bytes that aren't UTF-8 become U+FFFD, as in the standard library.
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

// appendEscaped appends s as a JSON string with the shortest escapes, so that a text that was read within a bound isn't
// longer when it is written.
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
