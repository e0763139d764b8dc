package events

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Event is one fact about a task (or a partition), as its owner recorded it.
type Event struct {
	Task  string    // empty: about the partition
	Seq   uint64    // counts the task's events from 1 without a gap; for a partition's, the epoch
	At    time.Time // of the decision, in broker time and whole milliseconds; never falls in a partition
	Cause Cause     // the record that led to it
	Epoch uint64    // of the claim of the owner who wrote it
	Prev  string    // Hash of the task's event before; empty in the first
	// Queued: a step had to wait for its agent, and the cause, which may be about
	// another task, freed the slot that it took.
	Queued bool
	Due    time.Time // zero: the event arms no timer
	Policy *Policy   // with Due: what a supervisor needs
	Fact   Fact
	// Sum, in an event that may be the last (MayBeLast), is the Hash of its own type
	// and value, as that is without it. Seal sets it; older builds wrote none.
	Sum string
}

// Fact is what an event says. It is sealed: the vocabulary is this package's.
type Fact interface {
	Type() string // the ce_type
	fields(*codec)
}

// Cause is the record that led to an event.
type Cause struct {
	Inbox     Inbox
	Partition int32
	Offset    int64
}

// String writes a cause as events hold it: "inbox/partition/offset".
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

// partitionID is the first part of the ce_id of an event about a partition.
const partitionID = "waybill.partition"

// ID is the event's ce_id: "<task>/<seq>".
func (e *Event) ID(partition int32) string {
	if e.Task == "" {
		return partitionID + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatUint(e.Seq, 10)
	}
	return TaskEventID(e.Task, e.Seq)
}

// idIn is ID in m.
func (e *Event) idIn(m *Room, partition int32) []byte {
	if e.Task == "" || m == nil {
		return bytesOf(e.ID(partition))
	}
	dst := append(append(m.bytes(len(e.Task)+1+numberBytes), e.Task...), '/')
	return strconv.AppendUint(dst, e.Seq, 10)
}

// numberBytes is the most that a number of 64 bits has.
const numberBytes = 20

// TaskEventID is the ce_id of a task's event.
func TaskEventID(task string, seq uint64) string {
	return task + "/" + strconv.FormatUint(seq, 10)
}

func (e *Event) fields(c *codec) {
	c.time("at", &e.At)
	c.cause(&e.Cause, e.Fact)
	c.seq("epoch", &e.Epoch)
	c.lent("prev", &e.Prev)
	c.bool("queued", &e.Queued)
	c.time("due", &e.Due)
	c.policy("policy", &e.Policy)
	e.Fact.fields(c)
	c.lent("sum", &e.Sum)
}

// policy is a member that is a policy, or absent. A reader's room takes it.
func (c *codec) policy(name string, v **Policy) {
	if c.straight.on {
		if c.enter(name) {
			p := c.room
			if p == nil {
				p = &Policy{}
			}
			*p, *v = Policy{}, p
			c.ruleStraight(p)
			p.rest(c)
			c.leave()
		}
		return
	}
	if c.room == nil {
		optional(c, name, v, func(c *codec, p *Policy) { p.fields(c) })
		return
	}
	if val, ok := c.find(name); ok {
		p := c.room
		*p, *v = Policy{}, p
		c.into(name, val, p.fields)
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

// Value is the event's record value, as it was written or read; Seal makes that of a new
// one.
func (e *Event) Value() []byte { return encodeObject(e) }

// Record makes the event's record. value is what Value returned; source is the
// ce_source of the writer.
func (e *Event) Record(ns Namespace, source string, partition int32, value []byte) Record {
	return e.RecordIn(nil, ns, source, partition, value)
}

// RecordIn is Record with the headers in m.
func (e *Event) RecordIn(m *Room, ns Namespace, source string, partition int32, value []byte) Record {
	r := Record{Topic: m.eventsOf(ns), Partition: partition, Value: value,
		Headers: cloudHeaders(m.list(cloudHeaderCount), e.Fact.Type(), source, e.idIn(m, partition))}
	if e.Task != "" {
		r.Key = bytesOf(e.Task)
	}
	return r
}

// CloudHeaders are the five headers that every record of Waybill carries.
func CloudHeaders(ceType, source, id string) []Header {
	return cloudHeaders(make([]Header, 0, cloudHeaderCount), ceType, source, bytesOf(id))
}

const cloudHeaderCount = 5

// cloudHeaders appends them to dst.
func cloudHeaders(dst []Header, ceType, source string, id []byte) []Header {
	return append(dst,
		Header{HeaderSpecVersion, bytesOf(SpecVersion)},
		Header{HeaderType, bytesOf(ceType)},
		Header{HeaderSource, bytesOf(source)},
		Header{HeaderID, id},
		Header{HeaderContentType, bytesOf(ContentType)})
}

// bytesOf is a text as the value of a header or a key, without a copy: nobody may
// change those of a Record.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// opaque is a fact that this build doesn't know, by its type.
type opaque string

func (o opaque) Type() string  { return string(o) }
func (opaque) fields(c *codec) {}

// cutLast cuts s at its last slash: ids may hold slashes, numbers don't.
func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// factKind is a type of event that this build can read.
type factKind struct {
	name   string
	number int         // of them, from 0 on, in this process
	make   func() Fact // an empty one
	blank  func(Fact)  // makes one empty again
}

// facts are all of them, by name. A type that was ever written stays here.
var facts = map[string]*factKind{}

func init() {
	kinds := []*factKind{
		kindOf(PartitionClaimed{}), kindOf(TaskReceived{}), kindOf(TaskStarted{}), kindOf(TaskProcessed{}), kindOf(TaskUndoing{}),
		kindOf(TaskUndone{}), kindOf(TaskCancelled{}), kindOf(TaskHeld{}), kindOf(TaskResumed{}), kindOf(RunSkipped{}), kindOf(RunReleased{}),
	}
	for _, k := range []Kind{Do, Undo} {
		kinds = append(kinds, kindOf(AttemptStarted{Kind: k}), kindOf(AttemptCompleted{Kind: k}), kindOf(AttemptFailed{Kind: k}),
			kindOf(AttemptRejected{Kind: k}), kindOf(AttemptExpired{Kind: k}), kindOf(AttemptWaiting{Kind: k}), kindOf(RunErrored{Kind: k}))
	}
	for i, k := range kinds {
		k.number = i
		facts[k.name] = k
	}
}

// kindOf is the type of an empty fact.
func kindOf[T any, F interface {
	*T
	Fact
}](empty T) *factKind {
	made := func() Fact {
		f := empty
		return F(&f)
	}
	return &factKind{name: made().Type(), make: made, blank: func(f Fact) { *f.(F) = empty }}
}

// Types lists every event type that this build can read, in order.
func Types() []string { return slices.Sorted(maps.Keys(facts)) }

// By says who asked for what an operator asked, and why.
type By struct {
	Who       string // at most MaxNameBytes
	Why       string // at most MaxWhyBytes
	RequestID string // the same again has the same answer and no second effect; empty: of no request
}

func (b *By) fields(c *codec) {
	c.str("by", &b.Who)
	c.str("why", &b.Why)
	c.str("request_id", &b.RequestID)
}

// PartitionClaimed begins an owner's first transaction in a partition.
type PartitionClaimed struct {
	Owner string // "<scheduler>/<lane>"
	// TopicIDs are those of the inboxes that the owner reads. Offsets of causes, from this
	// event on, are positions in the topics with these ids.
	TopicIDs TopicIDs
}

// Type is the ce_type.
func (*PartitionClaimed) Type() string { return "waybill.partition.claimed.v1" }
func (f *PartitionClaimed) fields(c *codec) {
	c.str("owner", &f.Owner)
	f.TopicIDs.fields(c)
}

// TopicIDs are the ids of the inboxes' topics, as Kafka's tools print them: 16 bytes in base64url.
// A topic that was deleted and created again has another id. Empty: not known.
type TopicIDs [Inboxes]string

func (ids *TopicIDs) fields(c *codec) {
	v := ids
	if !c.decoding && *ids == (TopicIDs{}) {
		v = nil
	}
	optional(c, "topic_ids", &v, func(c *codec, ids *TopicIDs) {
		for i := range ids {
			c.str(Inbox(i).String(), &ids[i])
		}
	})
	if c.decoding && v != nil {
		*ids = *v
	}
}

// TaskReceived is a task's first event: the submission as it was accepted, and
// the plan.
type TaskReceived struct {
	Workflow    string
	Version     int
	Input       json.RawMessage
	ReplyTo     string
	Priority    int
	Labels      map[string]string
	CompleteBy  time.Time // asked for by the submitter; zero: by the plan
	Digest      string
	Traceparent string
	Plan        *Plan
}

// Type is the ce_type.
func (*TaskReceived) Type() string { return "waybill.task.received.v1" }
func (f *TaskReceived) fields(c *codec) {
	c.few("workflow", &f.Workflow)
	c.int("version", &f.Version)
	c.raw("input", &f.Input)
	c.str("reply_to", &f.ReplyTo)
	c.int("priority", &f.Priority)
	c.labels("labels", &f.Labels)
	c.time("complete_by", &f.CompleteBy)
	c.str("digest", &f.Digest)
	c.str("traceparent", &f.Traceparent)
	c.plan("plan", &f.Plan)
}

func (c *codec) plan(name string, v **Plan) {
	if c.planIfAny(name, v); c.decoding && *v == nil {
		c.fail(name, "missing")
	}
}

func (c *codec) planIfAny(name string, v **Plan) {
	if !c.decoding {
		if *v != nil {
			c.raw(name, &(*v).raw)
		}
		return
	}
	if c.straight.on {
		if *v = c.planStraight(name); *v != nil {
			return
		}
	}
	val, ok := c.find(name)
	if !ok {
		return
	}
	p, err := decodePlan(val)
	if err != nil {
		c.fail(name, err.Error())
		return
	}
	*v = p
}

// TaskStarted begins the processing of a task. Its due is the task's
// complete-by.
type TaskStarted struct{}

// Type is the ce_type.
func (*TaskStarted) Type() string    { return "waybill.task.started.v1" }
func (*TaskStarted) fields(c *codec) {}

// TaskProcessed ends a task as it should end.
type TaskProcessed struct {
	Output json.RawMessage
}

// Type is the ce_type.
func (*TaskProcessed) Type() string      { return "waybill.task.processed.v1" }
func (f *TaskProcessed) fields(c *codec) { c.raw("output", &f.Output) }

// TaskUndoing is the decision to undo: nothing new starts, what waits ends.
type TaskUndoing struct {
	By
	Ending TaskState // undone or cancelled
	Keep   bool      // what completed stays
	Error  *Error
}

// Type is the ce_type.
func (*TaskUndoing) Type() string { return "waybill.task.undoing.v1" }
func (f *TaskUndoing) fields(c *codec) {
	text(c, "ending", &f.Ending)
	c.bool("keep", &f.Keep)
	c.errorField("error", &f.Error)
	f.By.fields(c)
}

// TaskUndone ends a task of which nothing remains.
type TaskUndone struct{}

// Type is the ce_type.
func (*TaskUndone) Type() string    { return "waybill.task.undone.v1" }
func (*TaskUndone) fields(c *codec) {}

// TaskCancelled ends a task that an operator cancelled.
type TaskCancelled struct{ By }

// Type is the ce_type.
func (*TaskCancelled) Type() string      { return "waybill.task.cancelled.v1" }
func (f *TaskCancelled) fields(c *codec) { f.By.fields(c) }

// TaskHeld is the decision to wait for an operator.
type TaskHeld struct {
	Error *Error
}

// Type is the ce_type.
func (*TaskHeld) Type() string      { return "waybill.task.held.v1" }
func (f *TaskHeld) fields(c *codec) { c.errorField("error", &f.Error) }

// TaskResumed ends a hold: by resubmit, or because the last step in error was
// released. Processing goes on, or undoing if that was held. Its due, while
// processing, is the task's new complete-by.
type TaskResumed struct {
	By
}

// Type is the ce_type.
func (*TaskResumed) Type() string      { return "waybill.task.resumed.v1" }
func (f *TaskResumed) fields(c *codec) { f.By.fields(c) }

// RunSkipped: the step's when was false.
type RunSkipped struct {
	Step string
}

// Type is the ce_type.
func (*RunSkipped) Type() string      { return "waybill.step.skipped.v1" }
func (f *RunSkipped) fields(c *codec) { c.few("step", &f.Step) }

// RunReleased states what an operator settled by hand.
type RunReleased struct {
	By
	Step   string
	As     StepState // completed or undone
	Output json.RawMessage
}

// Type is the ce_type.
func (*RunReleased) Type() string { return "waybill.step.released.v1" }
func (f *RunReleased) fields(c *codec) {
	c.few("step", &f.Step)
	text(c, "as", &f.As)
	c.raw("output", &f.Output)
	f.By.fields(c)
}

// attemptType is the ce_type of an event about an attempt: at a step's operation, or at
// its undo.
func attemptType(k Kind, do, undo string) string {
	if k == Undo {
		return undo
	}
	return do
}

// AttemptStarted: a request was sent in the same transaction. Its due is the
// attempt's complete-by. The input is written with the first attempt only.
type AttemptStarted struct {
	Kind      Kind
	Step      string
	Attempt   int
	Agent     string
	Operation string
	Key       string // idempotency key
	// TokenHash is what the log has of the attempt's token (see the function). The token itself is in the request only.
	TokenHash string
	Input     json.RawMessage
}

// Type is the ce_type.
func (f *AttemptStarted) Type() string {
	return attemptType(f.Kind, "waybill.step.started.v1", "waybill.undo.started.v1")
}
func (f *AttemptStarted) fields(c *codec) {
	c.few("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.few("agent", &f.Agent)
	c.few("operation", &f.Operation)
	c.str("idempotency_key", &f.Key)
	c.str("token_hash", &f.TokenHash)
	c.raw("input", &f.Input)
}

// AttemptCompleted: the agent did it.
type AttemptCompleted struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is that of the agent that replied, as its ce_source has it; empty: it
	// isn't said.
	Instance string
	Output   json.RawMessage
}

// Type is the ce_type.
func (f *AttemptCompleted) Type() string {
	return attemptType(f.Kind, "waybill.step.completed.v1", "waybill.undo.completed.v1")
}
func (f *AttemptCompleted) fields(c *codec) {
	c.few("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.few("instance", &f.Instance)
	c.raw("output", &f.Output)
}

// Effect is what an agent says that its call changed in the world.
type Effect string

// The effects of a failure.
const (
	EffectNone    Effect = "none"
	EffectUnknown Effect = "unknown"
)

// AttemptFailed: the agent could not do it; it may be tried again. Its due, if
// it has one, is now, or RetryAfter from now: the supervisor says how it goes on.
type AttemptFailed struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is that of the agent that replied, as its ce_source has it; empty: it
	// isn't said.
	Instance string
	Effect   Effect
	Error    *Error
	// RetryAfter is how long the agent asked to wait: the event's due is so much later. 0: it didn't.
	RetryAfter time.Duration
	// Deferred: the agent did nothing and asked to be called later (Run.Defers). The attempt doesn't
	// count as a failure.
	Deferred bool
}

// Type is the ce_type.
func (f *AttemptFailed) Type() string {
	return attemptType(f.Kind, "waybill.step.failed.v1", "waybill.undo.failed.v1")
}
func (f *AttemptFailed) fields(c *codec) {
	c.few("step", &f.Step)
	c.bool("deferred", &f.Deferred)
	c.int("attempt", &f.Attempt)
	c.few("instance", &f.Instance)
	c.millis("retry_after_ms", &f.RetryAfter)
	text(c, "effect", &f.Effect)
	c.errorField("error", &f.Error)
}

// AttemptRejected: the agent won't ever do it.
type AttemptRejected struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is that of the agent that replied, as its ce_source has it; empty: it
	// isn't said.
	Instance string
	Error    *Error
}

// Type is the ce_type.
func (f *AttemptRejected) Type() string {
	return attemptType(f.Kind, "waybill.step.rejected.v1", "waybill.undo.rejected.v1")
}
func (f *AttemptRejected) fields(c *codec) {
	c.few("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.few("instance", &f.Instance)
	c.errorField("error", &f.Error)
}

// AttemptExpired: complete-by passed without a reply. The effect is unknown.
type AttemptExpired struct {
	Kind    Kind
	Step    string
	Attempt int
}

// Type is the ce_type.
func (f *AttemptExpired) Type() string {
	return attemptType(f.Kind, "waybill.step.expired.v1", "waybill.undo.expired.v1")
}
func (f *AttemptExpired) fields(c *codec) {
	c.few("step", &f.Step)
	c.int("attempt", &f.Attempt)
}

// AttemptWaiting: another attempt is made at due, after a backoff or the
// cool-down.
type AttemptWaiting struct {
	Kind     Kind
	Step     string
	Attempt  int // the one before
	CoolDown bool
}

// Type is the ce_type.
func (f *AttemptWaiting) Type() string {
	return attemptType(f.Kind, "waybill.step.waiting.v1", "waybill.undo.waiting.v1")
}
func (f *AttemptWaiting) fields(c *codec) {
	c.few("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.bool("cool_down", &f.CoolDown)
}

// RunErrored: no further attempt is made: the tries are exhausted, an
// expression failed, a record would be too large.
type RunErrored struct {
	Kind  Kind
	Step  string
	Error *Error
}

// Type is the ce_type.
func (f *RunErrored) Type() string {
	return attemptType(f.Kind, "waybill.step.errored.v1", "waybill.undo.errored.v1")
}
func (f *RunErrored) fields(c *codec) {
	c.few("step", &f.Step)
	c.errorField("error", &f.Error)
}
