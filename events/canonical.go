package events

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"
	"sync"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// A canonicalizer writes JSON in one form, so that equal values have equal bytes. The form is that
// of RFC 8785 (JCS): no white space, members sorted by name, the shortest escapes. Numbers differ
// from RFC 8785, which rounds them to float64: here they keep every digit.
type canonicalizer struct {
	buf     []byte
	members []written // of the enclosing objects, the innermost object's last
	sorted  []byte    // scratch space of sort
}

// written is a member in buf. Its name is buf[start:name], its value ends at end.
type written struct{ start, name, end int }

var canonicalizers = sync.Pool{New: func() any { return &canonicalizer{} }}

// withCanonical calls use with the canonical form of a JSON value. The form is valid until use returns. Input that is
// no JSON value is passed unchanged.
func withCanonical(raw []byte, use func([]byte)) {
	c := canonicalizers.Get().(*canonicalizer)
	c.buf, c.members = c.buf[:0], c.members[:0]
	end, ok := c.value(raw, jsonscan.SkipSpace(raw, 0))
	if ok = ok && jsonscan.AtEnd(raw, end) == nil; ok {
		raw = c.buf
	}
	use(raw)
	if cap(c.buf)+cap(c.sorted) <= pooledBytesMax && cap(c.members) <= pooledMembersMax {
		canonicalizers.Put(c)
	}
}

// value appends the value at i and returns its end.
func (c *canonicalizer) value(data []byte, i int) (end int, ok bool) {
	if i >= len(data) {
		return i, false
	}
	switch b := data[i]; {
	case b == '"':
		return c.text(data, i)
	case b == '{':
		return c.object(data, i)
	case b == '[':
		return c.array(data, i)
	case b == '-' || b >= '0' && b <= '9':
		end, err := jsonscan.SkipNumber(data, i)
		if err == nil {
			c.buf = appendCanonicalNumber(c.buf, data[i:end])
		}
		return end, err == nil
	}
	end, err := jsonscan.SkipValue(data, i, 0, nil)
	if err == nil {
		c.buf = append(c.buf, data[i:end]...)
	}
	return end, err == nil
}

func (c *canonicalizer) text(data []byte, i int) (end int, ok bool) {
	end, err := jsonscan.SkipString(data, i)
	if err != nil {
		return end, false
	}
	if raw := data[i:end]; bytes.IndexByte(raw, '\\') < 0 {
		c.buf = append(c.buf, raw...)
	} else {
		c.buf = jsonscan.AppendString(c.buf, aliasString(jsonscan.Unescape(raw[1:len(raw)-1])))
	}
	return end, true
}

func (c *canonicalizer) array(data []byte, i int) (end int, ok bool) {
	return c.elements(data, i, ']', func(i int) (int, bool) { return c.value(data, i) })
}

func (c *canonicalizer) object(data []byte, i int) (end int, ok bool) {
	first, inOrder := len(c.members), true
	end, ok = c.elements(data, i, '}', func(i int) (int, bool) {
		m := written{start: len(c.buf)}
		i, ok := c.text(data, i)
		if i = jsonscan.SkipSpace(data, i); !ok || i >= len(data) || data[i] != ':' {
			return i, false
		}
		m.name = len(c.buf)
		c.buf = append(c.buf, ':')
		i, ok = c.value(data, jsonscan.SkipSpace(data, i+1))
		m.end = len(c.buf)
		inOrder = inOrder && (len(c.members) == first || c.compare(c.members[len(c.members)-1], m) <= 0)
		c.members = append(c.members, m)
		return i, ok
	})
	if ok && !inOrder {
		c.sort(c.members[first:])
	}
	c.members = c.members[:first]
	return end, ok
}

// elements appends the text from the bracket at i to its closing bracket.
func (c *canonicalizer) elements(data []byte, i int, closing byte, each func(int) (int, bool)) (end int, ok bool) {
	c.buf = append(c.buf, data[i])
	if i = jsonscan.SkipSpace(data, i+1); i < len(data) && data[i] == closing {
		c.buf = append(c.buf, closing)
		return i + 1, true
	}
	for {
		if i, ok = each(i); !ok {
			return i, false
		}
		if i = jsonscan.SkipSpace(data, i); i >= len(data) || data[i] != ',' && data[i] != closing {
			return i, false
		}
		c.buf = append(c.buf, data[i])
		if data[i] == closing {
			return i + 1, true
		}
		i = jsonscan.SkipSpace(data, i+1)
	}
}

func (c *canonicalizer) compare(a, b written) int {
	return bytes.Compare(c.buf[a.start:a.name], c.buf[b.start:b.name])
}

// sort sorts the members of the last object by name. They are adjacent in buf, separated by commas.
func (c *canonicalizer) sort(members []written) {
	begin := members[0].start
	slices.SortStableFunc(members, c.compare)
	c.sorted = c.sorted[:0]
	for i, m := range members {
		if i > 0 {
			c.sorted = append(c.sorted, ',')
		}
		c.sorted = append(c.sorted, c.buf[m.start:m.end]...)
	}
	copy(c.buf[begin:], c.sorted)
}

// appendCanonicalNumber appends a JSON number as its sign, its digits without zeros at either end,
// and a power of ten: 1200, 1.2e3 and 12e2 are all 12e2. No digit is lost. Zero has no sign.
func appendCanonicalNumber(dst, text []byte) []byte {
	n := number(text)
	if len(n.digits) == 0 {
		return append(dst, '0')
	}
	if n.negative {
		dst = append(dst, '-')
	}
	dst = append(dst, n.digits...)
	if n.exponent != nil {
		if n.exponent.Sign() == 0 {
			return dst
		}
		return n.exponent.Append(append(dst, 'e'), 10)
	}
	if n.power == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, 'e'), n.power, 10)
}

// wholeNumber reads a JSON value as a whole number of 64 bits. 1.0 and 1e0 are 1, as in JSON
// Schema, since some serializers write all numbers so.
func wholeNumber(value []byte) (int64, bool) {
	if n, err := strconv.ParseInt(aliasString(value), 10, 64); err == nil {
		return n, true
	}
	if end, err := jsonscan.SkipNumber(value, 0); err != nil || end != len(value) {
		return 0, false
	}
	n := number(value)
	switch {
	case len(n.digits) == 0:
		return 0, true
	case n.exponent != nil || n.power < 0 || n.power > numberBytes:
		return 0, false
	}
	text := append(bytes.Clone(n.digits), bytes.Repeat([]byte{'0'}, int(n.power))...)
	if n.negative {
		text = append([]byte{'-'}, text...)
	}
	whole, err := strconv.ParseInt(string(text), 10, 64)
	return whole, err == nil
}

// decimal is a number: digits times ten to the power.
type decimal struct {
	negative bool
	digits   []byte   // without zeros at either end; empty: zero
	power    int64    // unless exponent is set
	exponent *big.Int // the power, where it has more than maxExponentDigits
}

// maxExponentDigits is the longest exponent that fits 64 bits after the number of digits was added.
const maxExponentDigits = 17

// number reads a JSON number that jsonscan.SkipNumber has accepted.
func number(text []byte) (n decimal) {
	if n.negative = text[0] == '-'; n.negative {
		text = text[1:]
	}
	var exponent []byte
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		text, exponent = text[:i], text[i+1:]
	}
	if i := bytes.IndexByte(text, '.'); i >= 0 {
		n.power = -int64(len(text) - i - 1)
		text = append(bytes.Clone(text[:i]), text[i+1:]...)
	}
	whole := len(text)
	text = bytes.TrimRight(text, "0")
	n.power += int64(whole - len(text))
	n.digits = bytes.TrimLeft(text, "0")
	if len(exponent) == 0 {
		return n
	}
	if len(exponent) <= maxExponentDigits {
		e, _ := strconv.ParseInt(string(exponent), 10, 64)
		n.power += e
		return n
	}
	if e, ok := new(big.Int).SetString(string(exponent), 10); ok {
		n.exponent = e.Add(e, big.NewInt(n.power))
	}
	return n
}
