package events

import (
	"math"
	"unicode/utf8"
	"unsafe"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// The in-order fast path. Waybill writes the members of an object in the order in which fields names them, without
// white space. So a member either comes next or is absent, and no list of members is needed. If the codec finds
// anything else the fast path fails, and the object is read again with a list of members. The list accepts any order
// and reports errors. Whatever the fast path accepts, the list reads alike.

// inOrder is the state of a codec on the fast path.
type inOrder struct {
	active bool
	failed bool
	// at is the index of the byte before the next member: {, a comma, or the } after the last member.
	at        int
	depth     int  // levels of nesting around a member's value
	lastPlain bool // the value found last is a string without escapes
	// An EventReader sets these; nil: none.
	interner *interner
	lastPlan *Plan       // of the last task's first event
	lastRule *cachedRule // of the last event of this type
}

// readInOrder reads an object, and reports whether the fast path could. If not, v may hold some of it.
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

// nextMember reports whether the next member has a name, and where its value begins.
func (c *codec) nextMember(name string) (start int, ok bool) {
	d, at, n := c.obj.data, c.inOrder.at, len(name)
	// The first letter is compared first, since it usually differs if the member is absent.
	if at+n+4 >= len(d) || d[at+2] != name[0] || d[at+n+2] != '"' || d[at+1] != '"' || d[at+n+3] != ':' || d[at] == '}' || string(d[at+2:at+2+n]) != name {
		return 0, false
	}
	return at + n + 4, true
}

// advance moves past a value that ends before end.
func (c *codec) advance(end int) bool {
	d, s := c.obj.data, &c.inOrder
	if end >= len(d) || d[end] != ',' && d[end] != '}' {
		s.failed = true
		return false
	}
	s.at = end
	return true
}

// findInOrder is find on the fast path.
func (c *codec) findInOrder(name string) ([]byte, bool) {
	start, ok := c.nextMember(name)
	if !ok {
		return nil, false
	}
	d := c.obj.data
	if d[start] == '"' { // usually a text without escapes
		if end := jsonscan.SkipPlain(d, start+1); end < len(d) && d[end] == '"' && c.advance(end+1) {
			c.inOrder.lastPlain = true
			return d[start : end+1], true
		}
	}
	c.inOrder.lastPlain = false
	end, err := jsonscan.SkipValue(d, start, c.inOrder.depth, nil)
	if err != nil || !c.advance(end) {
		c.inOrder.failed = true
		return nil, false
	}
	return d[start:end], d[start] != 'n' // null
}

// enterObject moves into a member that is an object. leaveObject moves out of it.
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

// reuseLastPlan returns the plan of the last task if this plan has the same bytes, as most have. That saves decoding
// it. nil: the bytes differ.
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

// cachedRule is the first part of a policy. Most events of a type have the same one.
type cachedRule struct {
	text   []byte // as it was written, from { on
	policy Policy
}

// cachedRuleMaxBytes is the longest text that is cached.
const cachedRuleMaxBytes = 512

// readRule reads the first part of a policy. If its bytes are those of the last event, it copies the decoded value.
func (c *codec) readRule(p *Policy) {
	d, from, was := c.obj.data, c.inOrder.at, c.inOrder.lastRule
	if was != nil && len(was.text) > 0 {
		// advance checks that another member or the end follows. Otherwise the bytes are only a prefix of the rule.
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

// kindCache caches the types of events by a hash of their names. On a collision the newer type replaces the older.
type kindCache [kindSlots]*factKind

const kindSlots = 64

// get is factKindOf with the cache.
func (k *kindCache) get(r *Record) (*factKind, error) {
	name := r.header(HeaderType)
	n := len(name)
	if n < kindNameMinBytes {
		return factKindOf(r)
	}
	// The hash is of the length, a letter of the entity and two of the verb (waybill.step.started.v1).
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

// kindNameMinBytes is the length of the shortest name of a type.
const kindNameMinBytes = 16

// interner caches short strings by a hash, since the names of steps, agents and operations repeat. Cached strings
// aren't allocated. On a collision the newer string replaces the older.
type interner [internSlots]string

const (
	internSlots    = 256
	internMaxBytes = 64 // longer strings aren't cached
	internStride   = 31
)

// intern returns b as a string that doesn't alias b.
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

// aliasString returns a string that shares the bytes of b.
func aliasString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// parseCause reads what Cause.String writes. ok is false for anything else, which ParseCause handles.
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

// numberDigits is the number of decimal digits that always fit an int64.
const numberDigits = 18

// parseNumber reads decimal digits without a sign. ok is false for anything else, which the standard library handles.
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
