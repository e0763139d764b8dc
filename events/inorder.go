package events

import (
	"math"
	"unicode/utf8"
	"unsafe"
)

// Waybill writes the members of an object in the order in which fields names them,
// with no white space between. So of what Waybill wrote, the member that is asked for
// stands next, or it isn't there: it can be read straight on, without a list of the
// members. A codec that finds anything else is lost. Then the object is read again by
// the list, which takes members in any order, and says what is wrong: nothing is
// accepted that it wouldn't accept, and what is read is the same.

// straight is where a codec is that reads straight on.
type inOrder struct {
	active bool
	failed bool
	// at is the mark before the next member, { or a comma, or the } after the last.
	at        int
	depth     int  // of arrays and objects around a member's value
	lastPlain bool // the value that was found last is a text without escapes
	// Of a reader of many; nil: none.
	interner *interner
	lastPlan *Plan       // of the first event before
	lastRule *cachedRule // of the event before of this kind
}

// readInOrder reads an object, and reports whether it could. If not, v may hold some of it.
func (c *codec) readInOrder(data []byte, v fielded) bool {
	if len(data) == 0 || data[0] != '{' || len(data) > math.MaxInt32 || !utf8.Valid(data) {
		return false
	}
	c.decoding, c.err, c.obj.data = true, nil, data
	s := &c.inOrder
	s.active, s.failed, s.at, s.depth = true, false, 0, 1
	v.fields(c)
	s.active, c.obj.data = false, nil
	return !s.failed && c.err == nil && s.at == len(data)-1 && data[s.at] == '}'
}

// follows reports whether the next member has a name, and where its value stands.
func (c *codec) nextMember(name string) (start int, ok bool) {
	d, at, n := c.obj.data, c.inOrder.at, len(name)
	// Where it isn't there, mostly one letter tells.
	if at+n+4 >= len(d) || d[at+2] != name[0] || d[at+n+2] != '"' || d[at+1] != '"' || d[at+n+3] != ':' || d[at] == '}' || string(d[at+2:at+2+n]) != name {
		return 0, false
	}
	return at + n + 4, true
}

// pass goes on after a value that ends before end.
func (c *codec) advance(end int) bool {
	d, s := c.obj.data, &c.inOrder
	if end >= len(d) || d[end] != ',' && d[end] != '}' {
		s.failed = true
		return false
	}
	s.at = end
	return true
}

// findInOrder is find.
func (c *codec) findInOrder(name string) ([]byte, bool) {
	start, ok := c.nextMember(name)
	if !ok {
		return nil, false
	}
	d := c.obj.data
	if d[start] == '"' { // mostly a text without escapes
		if end := skipPlain(d, start+1); end < len(d) && d[end] == '"' && c.advance(end+1) {
			c.inOrder.lastPlain = true
			return d[start : end+1], true
		}
	}
	c.inOrder.lastPlain = false
	end, err := skipValue(d, start, c.inOrder.depth)
	if err != nil || !c.advance(end) {
		c.inOrder.failed = true
		return nil, false
	}
	return d[start:end], d[start] != 'n' // null
}

// enter begins to read a member that is an object; leave ends it.
func (c *codec) enterObject(name string) bool {
	start, ok := c.nextMember(name)
	if !ok {
		return false
	}
	if c.obj.data[start] != '{' {
		c.inOrder.failed = true // null, or no object
		return false
	}
	c.inOrder.at = start
	c.inOrder.depth++
	return true
}

func (c *codec) leaveObject() {
	c.inOrder.depth--
	if c.obj.data[c.inOrder.at] != '}' {
		c.inOrder.failed = true
		return
	}
	c.advance(c.inOrder.at + 1)
}

// reuseLastPlan reads a plan that is the one of the first event before, as most are: it
// needn't be looked at again.
func (c *codec) reuseLastPlan(name string) *Plan {
	p := c.inOrder.lastPlan
	if p == nil {
		return nil
	}
	start, ok := c.nextMember(name)
	if !ok {
		return nil
	}
	end := start + len(p.raw)
	if end > len(c.obj.data) || string(c.obj.data[start:end]) != string(p.raw) || !c.advance(end) {
		return nil
	}
	return p
}

// rule is the first part of a policy, which most events of a kind have alike.
type cachedRule struct {
	text   []byte // as it stands, from { on
	policy Policy
}

// cachedRuleMaxBytes is the longest that is kept, in bytes.
const cachedRuleMaxBytes = 512

// readRule reads the first part of a policy: that of the event before, or what is there.
func (c *codec) readRule(p *Policy) {
	d, from, was := c.obj.data, c.inOrder.at, c.inOrder.lastRule
	if was != nil && len(was.text) > 0 {
		// What follows is another member, or the end: else it isn't all of the rule.
		if end := from + len(was.text); end < len(d) && string(d[from:end]) == string(was.text) && c.advance(end) {
			*p = was.policy
			return
		}
	}
	p.ruleFields(c)
	if was != nil && !c.inOrder.failed && c.err == nil && c.inOrder.at-from <= cachedRuleMaxBytes {
		was.text, was.policy = append(was.text[:0], d[from:c.inOrder.at]...), *p
	}
}

// kinds are those of the types that were read before, by where a type's name has its place.
// Two with the same place take turns.
type kindCache [kindSlots]*factKind

const kindSlots = 64

// of is factKindOf.
func (k *kindCache) get(r *Record) (*factKind, error) {
	name := r.header(HeaderType)
	n := len(name)
	if n < kindNameMinBytes {
		return factKindOf(r)
	}
	// waybill.step.started.v1: a letter of the entity, two of the verb.
	place := &k[(uint(n)+5*uint(name[9])+3*uint(name[14])+7*uint(name[kindNameMinBytes-1]))%kindSlots]
	if *place == nil || (*place).name != string(name) {
		kind, err := factKindOf(r)
		if err != nil {
			return nil, err
		}
		*place = kind
	}
	return *place, nil
}

// kindNameMinBytes is how long the name of a type is at least, in bytes.
const kindNameMinBytes = 16

// names are texts that were read before: those of steps, agents and operations are
// few, and aren't made anew for each event. Two with the same place take turns.
type interner [internSlots]string

const (
	internSlots    = 256
	internMaxBytes = 64 // bytes: a longer text isn't kept
	internStride   = 31
)

// of is a text that outlives b.
func (n *interner) intern(b []byte) string {
	if n == nil || len(b) == 0 || len(b) > internMaxBytes {
		return string(b)
	}
	last := len(b) - 1
	s := &n[(uint(last)+5*uint(b[0])+internStride*uint(b[last])+3*uint(b[last/2]))%internSlots]
	if *s != string(b) {
		*s = string(b)
	}
	return *s
}

// aliased is a text that shares its bytes.
func aliasString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// parseCause reads what Cause.String writes; what is written in another way, or is
// none, is left to ParseCause.
func parseCause(s []byte) (c Cause, ok bool) {
	for i, name := range inboxNames {
		if len(s) > len(name) && s[len(name)] == '/' && string(s[:len(name)]) == name {
			c.Inbox, s, ok = Inbox(i), s[len(name)+1:], true
			break
		}
	}
	if !ok {
		return c, false
	}
	i := 0
	for i < len(s) && s[i] != '/' {
		i++
	}
	if i == len(s) {
		return c, false
	}
	p, ok1 := parseNumber(s[:i])
	offset, ok2 := parseNumber(s[i+1:])
	c.Partition, c.Offset = int32(p), offset
	return c, ok1 && ok2 && p <= math.MaxInt32
}

// numberDigits are as many as any int64 has room for.
const numberDigits = 18

// parseNumber reads a number of some digits and no sign. Any other is left to the
// standard library.
func parseNumber(s []byte) (n int64, ok bool) {
	if len(s) == 0 || len(s) > numberDigits {
		return 0, false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}
