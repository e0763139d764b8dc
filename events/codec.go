package events

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// TimeLayout is how instants are written: RFC 3339, UTC, milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Millis truncates an instant to the precision of TimeLayout, in UTC.
func Millis(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// A codec walks the fields of a value once, in one order, to write or to read them. Each type lists
// its fields in one method, so the two directions can't drift apart. Zero values are omitted. A
// reader ignores members that the type doesn't name, so older builds can read additive changes.
type codec struct {
	decoding bool
	// reusedPolicy is where the event's policy is decoded to; only an EventReader sets it. If it is set, texts of the
	// event may alias the record (borrowed).
	reusedPolicy *Policy
	aliasJSON    bool // raw JSON aliases the input (EventReader.AliasJSON)
	buf          []byte
	obj          object
	next         int // the probable index of the next member: one past the last one found
	err          error
	inOrder      inOrder
}

// fielded is a type that a codec can encode and decode.
type fielded interface{ fields(*codec) }

// codecs is a pool, since a codec escapes to the heap with its list of members.
var codecs = sync.Pool{New: func() any { return &codec{obj: object{members: make([]member, 0, 32)}} }}

// pooledMembersMax bounds the list of members that a pooled codec keeps.
const pooledMembersMax = 64

// release returns the codec to the pool without references to its input.
func (c *codec) release() {
	if cap(c.obj.members) > pooledMembersMax {
		return
	}
	c.obj.reset()
	c.obj.checkNames, c.obj.names = false, jsonscan.NameCheck{}
	*c = codec{obj: c.obj, buf: c.buf[:0]}
	codecs.Put(c)
}

// pooledBytesMax bounds the buffer that a pooled codec keeps.
const pooledBytesMax = 64 << 10

func encodeObject(v fielded) []byte { return encodeObjectIn(nil, v) }

// encodeObjectIn is encodeObject with the text in m.
func encodeObjectIn(m *Arena, v fielded) (text []byte) {
	withEncoded(v, func(room []byte) { text = append(m.newBytes(len(room)), room...) })
	return text
}

// hashObject returns the hash of what encodeObject returns.
func hashObject(v fielded) (sum string) {
	withEncoded(v, func(room []byte) {
		all := sha256.Sum256(room)
		sum = encodeHash(all[:])
	})
	return sum
}

// withEncoded encodes an object into the codec's buffer and calls use with it. The buffer is valid until use returns.
func withEncoded(v fielded, use func(room []byte)) {
	c := codecs.Get().(*codec)
	c.openObject()
	v.fields(c)
	c.closeObject()
	use(c.buf)
	if c.buf = c.buf[:0]; cap(c.buf) > pooledBytesMax {
		c.buf = nil
	}
	codecs.Put(c) // encoding sets only buf
}

func appendObject(dst []byte, v fielded) []byte { return append(dst, encodeObject(v)...) }

// openObject and closeObject enclose the members of an object.
func (c *codec) openObject()  { c.buf = append(c.buf, '{') }
func (c *codec) closeObject() { c.buf = append(c.buf, '}') }

func decodeObject(data []byte, v fielded) error { return codecs.Get().(*codec).decode(data, v, 0) }

// decodeUntrusted is decodeObject for a record from outside. around is added to the object's level of nesting. What it
// accepts passes CheckJSON.
func decodeUntrusted(data []byte, v fielded, around int) error {
	c := codecs.Get().(*codec)
	c.obj.checkNames = true
	return c.decode(data, v, untrustedLevel+around)
}

// decode reads an object, and releases the codec.
func (c *codec) decode(data []byte, v fielded, level int) error {
	c.decoding = true
	err := c.obj.scan(data, level)
	if err == nil {
		v.fields(c)
		if err = c.err; err == nil && c.obj.names.MaybeDuplicate {
			err = checkNames(data)
		}
	}
	c.release()
	return err
}

// find returns the value of a member; false if it is absent or null. The search begins after the member found last,
// since members mostly have the order of the fields.
func (c *codec) find(name string) ([]byte, bool) {
	if c.inOrder.active {
		return c.findInOrder(name)
	}
	if c.obj.seen&jsonscan.NameBit(name) == 0 {
		return nil, false // the usual case of an absent member
	}
	n := len(c.obj.members)
	for i := range n {
		at := c.next + i
		if at >= n {
			at -= n
		}
		if c.obj.hasName(at, name) {
			c.next = at + 1
			val := c.obj.value(at)
			return val, string(val) != "null"
		}
	}
	return nil, false
}

func (c *codec) fail(name, what string) {
	if c.err == nil {
		c.err = badValue(name, what)
	}
}

// name appends a member's name. Names need no escaping.
func (c *codec) name(name string) {
	if c.buf[len(c.buf)-1] != '{' {
		c.buf = append(c.buf, ',')
	}
	c.buf = append(c.buf, '"')
	c.buf = append(c.buf, name...)
	c.buf = append(c.buf, '"', ':')
}

func (c *codec) str(name string, v *string) {
	if !c.decoding {
		if *v != "" {
			c.name(name)
			c.buf = jsonscan.AppendString(c.buf, *v)
		}
		return
	}
	if s := c.text(name); len(s) > 0 {
		*v = string(s)
	}
}

// interned is str for texts that repeat, such as the names of steps.
func (c *codec) interned(name string, v *string) {
	if !c.decoding {
		c.str(name, v)
		return
	}
	if s := c.text(name); len(s) > 0 {
		*v = c.inOrder.interner.intern(s)
	}
}

// borrowed is str for a text that aliases the record if an EventReader reads it.
func (c *codec) borrowed(name string, v *string) {
	if !c.decoding || c.reusedPolicy == nil {
		c.str(name, v)
		return
	}
	if s := c.text(name); len(s) > 0 {
		*v = aliasString(s)
	}
}

// text returns the text of a member. It may alias the record. Empty: there is none.
func (c *codec) text(name string) []byte {
	val, ok := c.find(name)
	if !ok {
		return nil
	}
	if val[0] != '"' {
		c.fail(name, "not a string")
		return nil
	}
	if c.inOrder.active && c.inOrder.lastPlain {
		return val[1 : len(val)-1]
	}
	return jsonscan.UnquoteBytes(val)
}

// appendInstant appends an instant by TimeLayout. It takes a quarter of the time of the standard library.
func appendInstant(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, TimeLayout) // no reader accepts it, but it isn't misrepresented
	}
	hour, minute, second := t.Clock()
	dst = append(digits(digits(dst, year/100), year%100), '-')
	dst = append(digits(dst, int(month)), '-')
	dst = append(digits(dst, day), 'T')
	dst = append(digits(dst, hour), ':')
	dst = append(digits(dst, minute), ':')
	dst = append(digits(dst, second), '.')
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(digits(dst, ms/10), byte('0'+ms%10), 'Z')
}

// digits appends a number below 100 as two digits.
func digits(dst []byte, n int) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }

// knownText is str for the named string types. Values that this build knows aren't allocated.
func knownText[T ~string](c *codec, name string, v *T) {
	if !c.decoding {
		s := string(*v)
		c.str(name, &s)
		return
	}
	if s := c.text(name); len(s) > 0 {
		known, ok := knownTexts[string(s)]
		if !ok {
			known = string(s)
		}
		*v = T(known)
	}
}

// knownTexts holds the constants of the named string types.
var knownTexts = map[string]string{}

func init() {
	for _, w := range []string{
		string(StatePending), string(StateProcessing), string(StateProcessed), string(StateError), string(StateUndoing), string(StateUndone),
		string(StateCancelled), string(StepRunning), string(StepFailed), string(StepWaiting), string(StepCompleted), string(StepSkipped), string(StepCaught),
		string(Do), string(Undo), string(EffectNone), string(EffectUnknown), string(TimerTask), string(TimerAttempt), string(TimerFailed), string(TimerStep), string(ActionFire),
		string(ActionRetry), string(ActionWait), string(ActionHold),
	} {
		knownTexts[w] = w
	}
}

func (c *codec) int64(name string, v *int64) {
	if !c.decoding {
		if *v != 0 {
			c.name(name)
			c.buf = strconv.AppendInt(c.buf, *v, 10)
		}
		return
	}
	if val, ok := c.find(name); ok {
		if n, ok := parseNumber(val); ok {
			*v = n
			return
		}
		n, ok := wholeNumber(val)
		if !ok {
			c.fail(name, "not a whole number")
			return
		}
		*v = n
	}
}

func (c *codec) int(name string, v *int) {
	n := int64(*v)
	if c.int64(name, &n); c.decoding {
		*v = int(n)
	}
}

func (c *codec) seq(name string, v *uint64) {
	n := int64(*v)
	c.int64(name, &n)
	if n < 0 {
		c.fail(name, "negative")
	} else if c.decoding {
		*v = uint64(n)
	}
}

func (c *codec) float(name string, v *float64) {
	if !c.decoding {
		if *v != 0 {
			c.name(name)
			c.buf = strconv.AppendFloat(c.buf, *v, 'g', -1, 64)
		}
		return
	}
	if val, ok := c.find(name); ok {
		f, err := strconv.ParseFloat(string(val), 64)
		if err != nil {
			c.fail(name, "not a number")
			return
		}
		*v = f
	}
}

func (c *codec) bool(name string, v *bool) {
	if !c.decoding {
		if *v {
			c.name(name)
			c.buf = append(c.buf, "true"...)
		}
		return
	}
	if val, ok := c.find(name); ok {
		if s := string(val); s != "true" && s != "false" {
			c.fail(name, "neither true nor false")
			return
		}
		*v = val[0] == 't'
	}
}

// maxMillis is the longest time.Duration, in milliseconds.
const maxMillis = int64(math.MaxInt64 / time.Millisecond)

func (c *codec) millis(name string, v *time.Duration) {
	n := v.Milliseconds()
	c.int64(name, &n)
	if n > maxMillis || n < -maxMillis {
		c.fail(name, "longer than 292 years")
	} else if c.decoding {
		*v = time.Duration(n) * time.Millisecond
	}
}

func (c *codec) time(name string, v *time.Time) {
	if !c.decoding {
		if !v.IsZero() {
			c.name(name)
			c.buf = append(c.buf, '"')
			c.buf = appendInstant(c.buf, *v)
			c.buf = append(c.buf, '"')
		}
		return
	}
	s := c.text(name)
	if s == nil {
		return
	}
	t, err := readInstant(s)
	if err != nil {
		c.fail(name, err.Error())
		return
	}
	*v = t
}

// readInstant is ParseInstant, in milliseconds.
func readInstant(s []byte) (time.Time, error) {
	if t, ok := parseInstant(s); ok {
		return t, nil
	}
	t, err := ParseInstant(string(s))
	return Millis(t), err
}

// The years of valid instants, in UTC. The zero time.Time, of year 1, means that there is none.
const (
	firstYear = 1970
	lastYear  = 9999
)

// instantPattern is RFC 3339 with the ranges of its fields. The schemas have the same pattern.
const instantPattern = `^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`

var instants = regexp.MustCompile(instantPattern)

var errInstant = errors.New("not an instant as in RFC 3339 (2026-01-31T12:00:00Z)")

// ParseInstant reads an instant as in RFC 3339, of the years 1970 to 9999 in UTC. All instants from outside are read by
// this rule. It is stricter than time.Parse, which accepts 00,5Z and +24:00.
func ParseInstant(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !instants.MatchString(s) {
		return time.Time{}, errInstant
	}
	t = t.UTC()
	return t, checkInstant(t)
}

func checkInstant(t time.Time) error {
	if y := t.UTC().Year(); y < firstYear || y > lastYear {
		return fmt.Errorf("not within the years %d to %d in UTC", firstYear, lastYear)
	}
	return nil
}

// parseInstant reads what appendInstant writes, in a fifth of the time of the standard library. ok
// is false for anything else, which ParseInstant handles.
func parseInstant(s []byte) (time.Time, bool) {
	if len(s) != len(TimeLayout) || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[19] != '.' || s[23] != 'Z' {
		return time.Time{}, false
	}
	ok := true
	number := func(from, to int) (n int) {
		for _, c := range s[from:to] {
			ok = ok && '0' <= c && c <= '9'
			n = 10*n + int(c-'0')
		}
		return n
	}
	year, month, day := number(0, 4), number(5, 7), number(8, 10)
	hour, minute, second, ms := number(11, 13), number(14, 16), number(17, 19), number(20, 23)
	if !ok || year < firstYear || month < 1 || month > 12 || day < 1 || day > 28 && day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	seconds := int64(daysTo(year, month)+day-1)*secondsOfDay + int64(hour*3600+minute*60+second)
	return time.Unix(seconds, int64(ms)*int64(time.Millisecond)).UTC(), true
}

const (
	secondsOfDay = 86_400
	daysOfEra    = 146_097 // 400 years
	daysTo1970   = 719_468 // from 0000-03-01
)

// daysIn returns the number of days of a month.
func daysIn(year, month int) int { return daysTo(year, month+1) - daysTo(year, month) }

// daysTo returns the days from 1970-01-01 to the first of a month. It counts years from March to February, so that a
// leap day is the last of its year (days_from_civil, Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
func daysTo(year, month int) int {
	if month < 3 {
		year, month = year-1, month+12
	}
	era := year / 400 // of years from 0 on
	y := year - era*400
	return era*daysOfEra + y*365 + y/4 - y/100 + (153*(month-3)+2)/5 - daysTo1970
}

// raw is a member that is a JSON value, copied verbatim without the white space around it. It must be valid JSON. null
// is a value too. A value that was read is a copy: a slice would keep the whole batch of its record alive, and the
// memory of a store is valid only for a moment. (BenchmarkHeldMemory: with batches of 1 MB an open task took 1,050 KB
// with slices, and 1.6 KB with copies.)
func (c *codec) raw(name string, v *json.RawMessage) {
	if !c.decoding {
		if raw := jsonscan.TrimSpace(*v); len(raw) > 0 {
			c.name(name)
			c.buf = append(c.buf, raw...)
		}
		return
	}
	val, _ := c.find(name)
	switch {
	case val == nil:
	case c.aliasJSON:
		*v = val
	default:
		*v = append(make(json.RawMessage, 0, len(val)), val...)
	}
}

func (c *codec) labels(name string, v *map[string]string) {
	if !c.decoding {
		if len(*v) == 0 {
			return
		}
		c.name(name)
		c.buf = append(c.buf, '{')
		for i, k := range slices.Sorted(maps.Keys(*v)) {
			if i > 0 {
				c.buf = append(c.buf, ',')
			}
			c.buf = append(jsonscan.AppendString(c.buf, k), ':')
			c.buf = jsonscan.AppendString(c.buf, (*v)[k])
		}
		c.buf = append(c.buf, '}')
		return
	}
	if val, ok := c.find(name); ok {
		if err := json.Unmarshal(val, v); err != nil {
			c.fail(name, "not an object of strings")
		}
	}
}

// optional is a member that is an object, or absent.
func optional[T any](c *codec, name string, v **T, walk func(*codec, *T)) {
	if !c.decoding {
		if *v != nil {
			c.name(name)
			c.openObject()
			walk(c, *v)
			c.closeObject()
		}
		return
	}
	if val, ok := c.find(name); ok {
		*v = new(T)
		c.decodeNested(name, val, func(inner *codec) { walk(inner, *v) })
	}
}

func (c *codec) decodeNested(name string, val []byte, walk func(*codec)) {
	inner := codecs.Get().(*codec)
	inner.decoding = true
	err := inner.obj.scanPart(val, 0)
	if err == nil {
		walk(inner)
		err = inner.err
	}
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("field %q: %w", name, err)
	}
	inner.release()
}

// array is a member that is an array. An empty array is omitted. write appends an element to c.buf; read reads one.
func array[T any](c *codec, name string, v *[]T, write func(*T), read func(el []byte, v *T) error) {
	if !c.decoding {
		if len(*v) == 0 {
			return
		}
		c.name(name)
		c.buf = append(c.buf, '[')
		for i := range *v {
			if i > 0 {
				c.buf = append(c.buf, ',')
			}
			write(&(*v)[i])
		}
		c.buf = append(c.buf, ']')
		return
	}
	val, ok := c.find(name)
	if !ok {
		return
	}
	err := scanArray(val, func(el []byte) error {
		var t T
		err := read(el, &t)
		*v = append(*v, t)
		return err
	})
	if err != nil && c.err == nil {
		c.err = badValue(name, err.Error())
	}
}

// objects is a member that is an array of objects.
func objects[T any](c *codec, name string, v *[]T, walk func(*codec, *T)) {
	write := func(v *T) {
		c.openObject()
		walk(c, v)
		c.closeObject()
	}
	array(c, name, v, write, func(el []byte, v *T) error {
		c.decodeNested(name, el, func(inner *codec) { walk(inner, v) })
		return c.err
	})
}

// ints is a member that is an array of whole numbers.
func (c *codec) ints(name string, v *[]int) {
	write := func(v *int) { c.buf = strconv.AppendInt(c.buf, int64(*v), 10) }
	array(c, name, v, write, func(el []byte, v *int) (err error) {
		*v, err = strconv.Atoi(string(el))
		return err
	})
}

// texts is a member that is an array of texts.
func (c *codec) texts(name string, v *[]string) {
	write := func(v *string) { c.buf = jsonscan.AppendString(c.buf, *v) }
	array(c, name, v, write, func(el []byte, v *string) error {
		if el[0] != '"' {
			return errors.New("not a string")
		}
		*v = jsonscan.Unquote(el)
		return nil
	})
}

func (e *Error) fields(c *codec) {
	c.str("code", &e.Code)
	c.str("message", &e.Message)
	c.str("step", &e.Step)
	c.raw("details", &e.Details)
}

// errorField is a member that is the error of an event, a run or a task; nil: absent.
func (c *codec) errorField(name string, v **Error) {
	optional(c, name, v, func(c *codec, e *Error) { e.fields(c) })
}

// JSON returns the error as events hold it.
func (e *Error) JSON() json.RawMessage { return encodeObject(e) }
