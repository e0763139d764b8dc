package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// The headers of requests and replies, of forwards, dead letters and notifications.
const (
	HeaderOperation      = "ce_operation"
	HeaderCompleteBy     = "ce_completeby"
	HeaderIdempotencyKey = "ce_idempotencykey"
	HeaderRequest        = "ce_request"
	HeaderOutcome        = "ce_outcome"
	HeaderEffect         = "ce_effect"
	HeaderHeartbeat      = "ce_heartbeat"        // of a request: the longest silence, in seconds
	HeaderProgress       = "ce_progress"         // of a request: the last progress of an earlier attempt, JSON
	HeaderRetryAfter     = "ce_retryafter"       // of a failure: seconds, as parseRetryAfter reads them
	HeaderParent         = "waybill_parent"      // of a child's submission and withdrawal: the attempt of its parent, as ce_request
	HeaderDepth          = "waybill_depth"       // of a child's submission: see Parent.Depth
	HeaderStepAlone      = "waybill_step_alone"  // of an item's submission: see Parent.StepAlone
	HeaderKnownUntil     = "waybill_known_until" // of a child's submission: see Parent.KnownUntil
	HeaderItem           = "waybill_item"        // of a child's submission and replies: see Parent.Item
	HeaderSignal         = "waybill_signal"      // of a redriven signal: what it is identified by if its value has no id
	HeaderHop            = "waybill_hop"         // a forwarded record: where it came from
	HeaderReason         = "waybill_reason"      // a dead letter's reason
	HeaderDetail         = "waybill_detail"
	HeaderOrigin         = "waybill_origin" // topic/partition/offset
	HeaderSize           = "waybill_size"   // of the original, in bytes
	HeaderSHA256         = "waybill_sha256" // of the original value
	HeaderReplyTo        = "waybill_replyto"
	HeaderBy             = "waybill_by"          // who applied a definition, by a console's token
	HeaderByClaimed      = "waybill_byclaimed"   // who applied it, unverified
	HeaderWhy            = "waybill_why"         // why it was applied
	HeaderDeprecation    = "waybill_deprecation" // of a definition: Deprecation as JSON
)

// IdempotencyKey returns the key of a run. It is the same for every attempt of the run. A step and its undo have
// different keys. A new generation has a new key.
func IdempotencyKey(ns Namespace, task, step string, k Kind, generation int) string {
	return string(ns) + task + "/" + step + "/" + string(k) + "/" + strconv.Itoa(generation+1)
}

// Request is a request to an agent.
type Request struct {
	Task           string
	Ref            RequestRef
	Token          string // of the attempt; the reply must repeat it
	Operation      string
	CompleteBy     time.Time
	IdempotencyKey string
	Traceparent    string
	Heartbeat      time.Duration   // the longest silence between two reports of progress; 0: none needed
	Progress       json.RawMessage // the last one of an earlier attempt, at most MaxProgressBytes; empty: none
	Value          json.RawMessage
}

// Record makes the request's record.
func (q *Request) Record(ns Namespace, source, agent string, partition int32) Record {
	return q.RecordIn(nil, ns, source, agent, partition)
}

// RecordIn is Record with the headers in m.
func (q *Request) RecordIn(m *Arena, ns Namespace, source, agent string, partition int32) Record {
	request, n := appendRequest(m.newBytes(requestBytes(q.Task, q.Ref, q.Token)), q.Task, q.Ref, q.Token)
	h := append(cloudHeaders(m.newHeaders(q.headers()), TypeRequest, source, request[:n:n]), // its ce_id excludes the token
		Header{HeaderOperation, bytesOf(q.Operation)},
		Header{HeaderCompleteBy, appendInstant(m.newBytes(len(TimeLayout)), q.CompleteBy)},
		Header{HeaderIdempotencyKey, bytesOf(q.IdempotencyKey)},
		Header{HeaderRequest, request})
	if q.Traceparent != "" {
		h = append(h, Header{HeaderTraceparent, bytesOf(q.Traceparent)})
	}
	if q.Heartbeat > 0 {
		h = append(h, Header{HeaderHeartbeat, appendHeartbeat(nil, q.Heartbeat)})
	}
	if len(q.Progress) > 0 {
		h = append(h, Header{HeaderProgress, q.Progress})
	}
	return Record{Topic: m.requestsTopic(ns, agent), Partition: partition, Key: bytesOf(q.Task), Value: q.Value, Headers: h}
}

// headers returns an upper bound of the number of headers of the request's record.
func (q *Request) headers() int {
	if q.Heartbeat > 0 || len(q.Progress) > 0 {
		return 12
	}
	return 10
}

// DecodeRequest reads a record of a request topic. Value aliases the record's. Texts are copies, since handlers may
// retain them. The error says what is malformed.
func DecodeRequest(r *Record) (*Request, error) {
	id, _ := r.Header(HeaderRequest)
	task, ref, token, err := ParseRequest(id)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, unusable(ReasonBadHeader, "%s of a request has no token", HeaderRequest)
	}
	q := &Request{Task: task, Ref: ref, Token: token, Value: r.Value}
	q.Operation, _ = r.Header(HeaderOperation)
	q.IdempotencyKey, _ = r.Header(HeaderIdempotencyKey)
	q.Traceparent, _ = r.Header(HeaderTraceparent)
	if h := r.header(HeaderHeartbeat); len(h) > 0 {
		q.Heartbeat = parseHeartbeat(h)
	}
	if p := r.header(HeaderProgress); len(p) > 0 && len(p) <= MaxProgressBytes && ValidJSON(p) {
		q.Progress = p
	}
	by := r.header(HeaderCompleteBy)
	if q.CompleteBy, err = parseCompleteBy(by); err != nil {
		return nil, unusable(ReasonBadHeader, "%s %q: %v", HeaderCompleteBy, by, err)
	}
	if q.Operation == "" || q.IdempotencyKey == "" {
		return nil, unusable(ReasonMissingHeader, "a request needs %s and %s", HeaderOperation, HeaderIdempotencyKey)
	}
	return q, nil
}

// parseCompleteBy reads an instant as in RFC 3339. Waybill's own layout is read faster.
func parseCompleteBy(s []byte) (time.Time, error) {
	if t, ok := parseInstant(s); ok {
		return t, nil
	}
	return ParseInstant(string(s))
}

// Record makes the reply's record, for the request that it answers.
func (r *Reply) Record(ns Namespace, source string) Record {
	bytesMost := requestBytes(r.Task, r.Ref, r.Token)
	request, n := appendRequest(make([]byte, 0, 2*bytesMost+len(r.Outcome)), r.Task, r.Ref, r.Token)
	id := append(append(append(request[len(request):], request[:n]...), '/'), r.Outcome...) // after request, in the same memory
	if request = request[:len(request):len(request)]; r.Token == "" {                       // a sender without the token omits it
		request = request[:n]
	}
	h := append(cloudHeaders(make([]Header, 0, 7), TypeReply, source, id),
		Header{HeaderRequest, request}, Header{HeaderOutcome, bytesOf(string(r.Outcome))})
	if r.Effect == EffectNone && r.Outcome != Completed {
		h = append(h, Header{HeaderEffect, bytesOf(string(EffectNone))})
	}
	if r.RetryAfter > 0 && r.Outcome == Failed {
		h = append(h, Header{HeaderRetryAfter, appendSeconds(nil, r.RetryAfter)})
	}
	if r.Item != nil {
		h = append(h, Header{HeaderItem, strconv.AppendInt(nil, int64(*r.Item), 10)})
	}
	body := r.Body
	if len(body) == 0 {
		body = json.RawMessage("null")
	}
	return Record{Topic: ns.Inbox(Replies), Partition: -1, Key: bytesOf(r.Task), Value: body, Headers: h}
}

// UndoOf describes the operation to undo, in the request of an undo.
type UndoOf struct {
	IdempotencyKey string
	Outcome        string // completed or unknown
	Input          json.RawMessage
	Output         json.RawMessage
}

func (u *UndoOf) fields(c *codec) {
	c.str("idempotency_key", &u.IdempotencyKey)
	c.str("outcome", &u.Outcome)
	c.raw("input", &u.Input)
	c.raw("output", &u.Output)
}

// UndoValue returns the value of an undo's request: undo_of, and the members of extra. extra is the result of
// undo.input, a JSON object or empty. Its member undo_of is dropped.
func UndoValue(u UndoOf, extra json.RawMessage) (json.RawMessage, error) {
	buf := appendObject([]byte(`{"undo_of":`), &u)
	if len(extra) > 0 {
		if err := CheckJSON(extra); err != nil {
			return nil, err
		}
		err := eachMember(extra, func(name, member []byte) {
			if string(name) != "undo_of" {
				buf = append(append(buf, ','), member...)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return append(buf, '}'), nil
}

// Answer is the answer to an operator's command.
type Answer struct {
	Task     string
	Control  string // the control's ce_id
	Accepted bool
	Seq      uint64 // of the event that it led to
	Reason   string // of a refusal
	State    TaskState
}

func (a *Answer) fields(c *codec) {
	c.str("task", &a.Task)
	c.str("control", &a.Control)
	c.bool("accepted", &a.Accepted)
	c.seq("seq", &a.Seq)
	c.str("reason", &a.Reason)
	knownText(c, "state", &a.State)
}

// Record makes the answer's record.
func (a *Answer) Record(ns Namespace, source string) Record {
	return Record{Topic: ns.Answers(), Partition: -1, Key: []byte(a.Task), Value: encodeObject(a),
		Headers: CloudHeaders(TypeAnswer, source, a.Control)}
}

// DecodeAnswer reads a record of the answers topic.
func DecodeAnswer(r *Record) (*Answer, error) {
	a := &Answer{}
	return a, decodeObject(r.Value, a)
}

// Alert tells operators that something requires them.
type Alert struct {
	Task    string
	Seq     uint64 // of the event that it is about; 0: none
	Code    string
	Step    string
	Message string
	At      time.Time
}

// AlertOfHold returns the alert for an event that holds its task. ending is the task's Ending; empty: its undo had not
// begun. catching is CatchFailed of the task after the event.
func AlertOfHold(e *Event, f *TaskHeld, ending TaskState, catching bool) *Alert {
	a := &Alert{Task: e.Task, Seq: e.Seq, At: e.At, Message: "task held"}
	if err := f.Error; err != nil {
		a.Code, a.Step = err.Code, err.Step
		a.Message = err.Message
		if a.Message == "" {
			a.Message = err.Code
		}
	}
	switch {
	case ending != "":
		a.Message = "an undo can't be done: " + a.Message
	case catching:
		a.Message = "the undo of a caught step can't be done: " + a.Message
	}
	return a
}

func (a *Alert) fields(c *codec) {
	c.str("task", &a.Task)
	c.seq("seq", &a.Seq)
	c.str("code", &a.Code)
	c.str("step", &a.Step)
	c.str("message", &a.Message)
	c.time("at", &a.At)
}

// Record makes the alert's record; id is its ce_id.
func (a *Alert) Record(ns Namespace, source, id string) Record {
	r := Record{Topic: ns.Alerts(), Partition: -1, Value: encodeObject(a), Headers: CloudHeaders(TypeAlert, source, id)}
	if a.Task != "" {
		r.Key = []byte(a.Task)
	}
	return r
}

// DecodeAlert reads a record of the alerts topic.
func DecodeAlert(r *Record) (*Alert, error) {
	a := &Alert{}
	return a, decodeObject(r.Value, a)
}

// The statuses of a notification that aren't states of a task.
const (
	StatusReceived = "received"
	StatusRefused  = "refused"
	// StatusForgotten answers a status query (Submission.StatusQuery): there is no task with the id, or it is forgotten.
	StatusForgotten = "forgotten"
)

// Notification is a notice to an application about its task.
type Notification struct {
	Task     string
	Workflow string
	Status   string
	Reason   string // of a refusal
	Output   json.RawMessage
	Error    *Error
	At       time.Time
}

func (n *Notification) fields(c *codec) {
	c.str("id", &n.Task)
	c.str("workflow", &n.Workflow)
	c.str("status", &n.Status)
	c.str("reason", &n.Reason)
	c.raw("output", &n.Output)
	c.errorField("error", &n.Error)
	c.time("at", &n.At)
}

// Record makes the notification's record, for the notifier. id is the ce_id of the event that it is about.
func (n *Notification) Record(ns Namespace, source, replyTo, id string) Record {
	h := append(make([]Header, 0, 6), CloudHeaders(TypeNotification, source, id)...)
	return Record{Topic: ns.Notifications(), Partition: -1, Key: []byte(n.Task), Value: encodeObject(n),
		Headers: append(h, Header{HeaderReplyTo, []byte(replyTo)})}
}

// DecodeNotification reads a record of the notifications topic, or of a reply_to.
func DecodeNotification(r *Record) (*Notification, error) {
	n := &Notification{}
	return n, decodeObject(r.Value, n)
}

// MaxDeadletterBytes bounds the bytes of the original's value in a dead letter.
const MaxDeadletterBytes = 256 << 10

// Origin returns the position of a record: "topic/partition/offset".
func Origin(r *Record) string {
	return r.Topic + "/" + strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
}

// Deadletter makes the dead letter of a record: the original bytes, cut to MaxDeadletterBytes, with the reason, the
// origin, the size and the hash in headers. Of the original's own headers it has HeaderHop, and those in HeaderHeaders.
func Deadletter(ns Namespace, source string, r *Record, u *Unusable) Record {
	sum := sha256.Sum256(r.Value)
	origin := Origin(r)
	detail := u.Detail
	if len(detail) > 1024 {
		detail = detail[:1024]
	}
	h := append(make([]Header, 0, 12), CloudHeaders(TypeDeadletter, source, origin)...)
	h[4].Value = []byte("application/octet-stream")
	h = append(h,
		Header{HeaderReason, []byte(u.Reason)},
		Header{HeaderDetail, []byte(detail)},
		Header{HeaderOrigin, []byte(origin)},
		Header{HeaderSize, []byte(strconv.Itoa(len(r.Value)))},
		Header{HeaderSHA256, []byte(hex.EncodeToString(sum[:]))})
	if hop := r.header(HeaderHop); len(hop) > 0 {
		h = append(h, Header{HeaderHop, cut(hop, maxHopBytes)})
	}
	if kept := keepHeaders(r); kept != nil {
		h = append(h, Header{HeaderHeaders, kept})
	}
	return Record{Topic: ns.Deadletters(), Partition: -1, Key: cut(r.Key, 1024), Value: cut(r.Value, MaxDeadletterBytes), Headers: h}
}

// maxHopBytes bounds HeaderHop in a dead letter. A scheduler writes at most two numbers, but any writer may.
const maxHopBytes = 64

// FirstOrigin returns where the original of a dead letter was written first, as Origin does: a forwarded record names it.
func FirstOrigin(letter *Record) string {
	origin, _ := letter.Header(HeaderOrigin)
	hop, forwarded := letter.Header(HeaderHop)
	if !forwarded {
		return origin
	}
	rest, _, _ := cutLast(origin)
	topic, _, _ := cutLast(rest)
	return topic + "/" + hop
}

func cut(b []byte, n int) []byte {
	if len(b) > n {
		return b[:n]
	}
	return b
}
