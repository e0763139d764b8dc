package events

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Event is one fact about a task or a partition, as the partition's owner recorded it.
type Event struct {
	Task  string    // empty: about the partition
	Seq   uint64    // numbers the task's events from 1 without a gap; of a claim it is the epoch, of PartitionForgot its Until
	At    time.Time // of the decision, in broker time, in whole milliseconds; never decreases in a partition
	Cause Cause     // the record that led to it
	Epoch uint64    // of the claim of the owner that wrote it
	Prev  string    // Hash of the task's previous event; empty in the first
	// Queued is true if a step had to wait for its agent. The cause may then be about another task, which freed the
	// slot.
	Queued bool
	Due    time.Time // zero: the event arms no timer
	Policy *Policy   // set if and only if Due is: what a supervisor needs
	Fact   Fact
	// Sum, in an event that may be the last (MayBeLast), is the Hash of its type and of its value without Sum. Seal
	// sets it.
	Sum string
}

// Fact is the content of an event. The set of facts is closed. Its methods are documented here, not at each fact.
//
//sumtype:decl
type Fact interface {
	Type() string              // the ce_type
	About() About              // what it means for attempts and timers
	apply(*Task, *Event) error // folds it into its task
	fields(*codec)
}

// Cause is the record that led to an event.
type Cause struct {
	Inbox     Inbox
	Partition int32
	Offset    int64
}

// String returns a cause as events hold it: "inbox/partition/offset".
func (c Cause) String() string { return string(c.appendTo(nil)) }

func (c Cause) appendTo(dst []byte) []byte {
	dst = append(append(dst, c.Inbox.String()...), '/')
	dst = append(strconv.AppendInt(dst, int64(c.Partition), 10), '/')
	return strconv.AppendInt(dst, c.Offset, 10)
}

// ParseCause is the inverse of Cause.String.
func ParseCause(s string) (Cause, error) {
	rest, offset, _ := cutLast(s)
	name, partition, _ := cutLast(rest)
	inbox, ok := ParseInbox(name)
	p, err := strconv.ParseInt(partition, 10, 32)
	off, err2 := strconv.ParseInt(offset, 10, 64)
	if !ok || err != nil || err2 != nil || p < 0 || off < 0 {
		// A copy, so that s itself stays on its caller's stack.
		return Cause{}, fmt.Errorf("cause %q: not inbox/partition/offset", strings.Clone(s))
	}
	return Cause{inbox, int32(p), off}, nil
}

// The headers of a CloudEvent in binary mode.
const (
	HeaderSpecVersion = "ce_specversion"
	HeaderType        = "ce_type"
	HeaderSource      = "ce_source"
	HeaderID          = "ce_id"
	HeaderContentType = "content-type"
	HeaderTraceparent = "traceparent"
	SpecVersion       = "1.0"
	ContentType       = "application/json"
)

// These begin the ce_id of an event about a partition: of a claim, and of PartitionForgot.
const (
	partitionID = "waybill.partition"
	forgotID    = "waybill.partition.forgot"
)

// ID returns the event's ce_id: "<task>/<seq>".
func (e *Event) ID(partition int32) string {
	if e.Task == "" {
		id := partitionID
		if _, forgot := e.Fact.(*PartitionForgot); forgot {
			id = forgotID
		}
		return id + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatUint(e.Seq, 10)
	}
	return TaskEventID(e.Task, e.Seq)
}

// idIn is ID with its text in m.
func (e *Event) idIn(m *Arena, partition int32) []byte {
	if e.Task == "" || m == nil {
		return bytesOf(e.ID(partition))
	}
	dst := append(append(m.newBytes(len(e.Task)+1+numberBytes), e.Task...), '/')
	return strconv.AppendUint(dst, e.Seq, 10)
}

// numberBytes is the longest decimal number of 64 bits, with its sign.
const numberBytes = 20

// TaskEventID is the ce_id of a task's event.
func TaskEventID(task string, seq uint64) string {
	return task + "/" + strconv.FormatUint(seq, 10)
}

func (e *Event) fields(c *codec) {
	c.time("at", &e.At)
	c.cause(&e.Cause, e.Fact)
	c.seq("epoch", &e.Epoch)
	c.borrowed("prev", &e.Prev)
	c.bool("queued", &e.Queued)
	c.time("due", &e.Due)
	c.policy("policy", &e.Policy)
	e.Fact.fields(c)
	c.borrowed("sum", &e.Sum)
}

// policy is a member that is a policy, or absent.
func (c *codec) policy(name string, v **Policy) {
	if c.inOrder.active {
		if c.enterObject(name) {
			p := c.reusedPolicy
			if p == nil {
				p = &Policy{}
			}
			*p, *v = Policy{}, p
			c.readRule(p)
			p.restFields(c)
			c.leaveObject()
		}
		return
	}
	if c.reusedPolicy == nil {
		optional(c, name, v, func(c *codec, p *Policy) { p.fields(c) })
		return
	}
	if val, ok := c.find(name); ok {
		p := c.reusedPolicy
		*p, *v = Policy{}, p
		c.decodeNested(name, val, p.fields)
	}
}

func (c *codec) cause(v *Cause, fact Fact) {
	if !c.decoding {
		c.name("cause")
		c.buf = append(v.appendTo(append(c.buf, '"')), '"')
		return
	}
	s := c.text("cause")
	cause, ok := parseCause(s)
	if !ok {
		var err error
		if cause, err = ParseCause(string(s)); err != nil {
			c.fail("cause", err.Error())
		}
	}
	*v = cause
}

// Value encodes the event's record value. Seal makes the value of a new event.
func (e *Event) Value() []byte { return encodeObject(e) }

// Record makes the event's record. value is the result of Seal or Value. source is the ce_source of the writer.
func (e *Event) Record(ns Namespace, source string, partition int32, value []byte) Record {
	return e.RecordIn(nil, ns, source, partition, value)
}

// RecordIn is Record with its headers in m.
func (e *Event) RecordIn(m *Arena, ns Namespace, source string, partition int32, value []byte) Record {
	r := Record{Topic: m.eventsTopic(ns), Partition: partition, Value: value,
		Headers: cloudHeaders(m.newHeaders(cloudHeaderCount), e.Fact.Type(), source, e.idIn(m, partition))}
	if e.Task != "" {
		r.Key = bytesOf(e.Task)
	}
	return r
}

// CloudHeaders returns the five headers that every record of Waybill has.
func CloudHeaders(ceType, source, id string) []Header {
	return cloudHeaders(make([]Header, 0, cloudHeaderCount), ceType, source, bytesOf(id))
}

const cloudHeaderCount = 5

// cloudHeaders appends CloudHeaders to dst.
func cloudHeaders(dst []Header, ceType, source string, id []byte) []Header {
	return append(dst,
		Header{HeaderSpecVersion, bytesOf(SpecVersion)},
		Header{HeaderType, bytesOf(ceType)},
		Header{HeaderSource, bytesOf(source)},
		Header{HeaderID, id},
		Header{HeaderContentType, bytesOf(ContentType)})
}

// bytesOf returns the bytes of s without a copy, as the value of a header or a key. They must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// opaque is a fact of a type that this build doesn't know.
type opaque string

func (o opaque) Type() string              { return string(o) }
func (opaque) About() About                { return About{} }
func (o opaque) apply(*Task, *Event) error { return fmt.Errorf("no rule for %s", string(o)) }
func (opaque) fields(c *codec)             {}

// cutLast cuts s at its last slash, since ids may contain slashes and numbers don't.
func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// factKind is a type of event that this build can read.
type factKind struct {
	name    string
	number  int         // from 0 on; differs between builds
	newFact func() Fact // makes an empty fact
	reset   func(Fact)  // empties a fact
}

// facts holds all types by name. A type must stay here if it was ever written.
var facts = map[string]*factKind{}

func init() {
	kinds := []*factKind{
		newFactKind(PartitionClaimed{}), newFactKind(TaskReceived{}), newFactKind(TaskStarted{}), newFactKind(TaskProcessed{}), newFactKind(TaskUndoing{}),
		newFactKind(TaskUndone{}), newFactKind(TaskCancelled{}), newFactKind(TaskHeld{}), newFactKind(TaskResumed{}), newFactKind(RunSkipped{}), newFactKind(RunReleased{}), newFactKind(RunCaught{}),
		newFactKind(PartitionForgot{}),
		newFactKind(TaskMigrated{}),
	}
	for _, k := range []Kind{Do, Undo} {
		kinds = append(kinds, newFactKind(AttemptStarted{Kind: k}), newFactKind(AttemptCompleted{Kind: k}), newFactKind(AttemptFailed{Kind: k}),
			newFactKind(AttemptRejected{Kind: k}), newFactKind(AttemptExpired{Kind: k}), newFactKind(AttemptWaiting{Kind: k}), newFactKind(RunErrored{Kind: k}),
			newFactKind(AttemptProgressed{Kind: k}))
	}
	kinds = append(kinds, stepKindFacts...)
	for i, k := range kinds {
		k.number = i
		facts[k.name] = k
	}
}

// newFactKind makes the factKind of an empty fact.
func newFactKind[T any, F interface {
	*T
	Fact
}](empty T) *factKind {
	made := func() Fact {
		f := empty
		return F(&f)
	}
	return &factKind{name: made().Type(), newFact: made, reset: func(f Fact) { *f.(F) = empty }}
}

// Types lists every event type that this build can read, in order.
func Types() []string { return slices.Sorted(maps.Keys(facts)) }
