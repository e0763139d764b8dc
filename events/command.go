package events

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// Input is a decoded record of an inbox, which a scheduler consumes. The set of its types is closed.
//
//sumtype:decl
type Input interface{ input() }

// The bounds of what is read from an inbox, in uncompressed bytes. MaxNameBytes bounds names of workflows and steps,
// labels, operators and request ids.
const (
	MaxTaskIDBytes      = 256
	MaxSubmissionBytes  = 512 << 10
	MaxReplyBytes       = 384 << 10
	MaxControlBytes     = 384 << 10
	MaxRecoveryBytes    = 8 << 10
	MaxLabels           = 32
	MaxReplyToBytes     = 249 // a topic's name in Kafka
	MaxNameBytes        = 256
	MaxWhyBytes         = 4 << 10
	MaxTraceparentBytes = 128
)

// The types of the records of all topics except events and snapshots.
const (
	TypeSubmission   = "waybill.task.submitted.v1"
	TypeWithdrawal   = "waybill.task.withdraw.v1"
	TypeRequest      = "waybill.request.v1"
	TypeReply        = "waybill.reply.v1"
	TypeRecovery     = "waybill.recovery.v1"
	TypeControl      = "waybill.control.v1"
	TypeAnswer       = "waybill.answer.v1"
	TypeAlert        = "waybill.alert.v1"
	TypeNotification = "waybill.notification.v1"
	TypeDeadletter   = "waybill.deadletter.v1"
	TypeDefinition   = "waybill.definition.v1"
)

// Submission asks for a task. DecodeInput checks it against the bounds that its fields name.
type Submission struct {
	ID          string // of the task, and its idempotency key: see CheckTaskID
	Workflow    string // 1 to MaxNameBytes
	Version     int    // of the workflow; 0: the latest
	Input       json.RawMessage
	ReplyTo     string            // topic of the task's notifications: see Namespace.CheckReplyTo; empty: none
	Priority    int               // of steps that wait for an agent, those with the highest priority start first; may be negative
	Labels      map[string]string // at most MaxLabels; a name or a value has at most MaxNameBytes
	CompleteBy  time.Time         // of the task, if it is earlier than what its workflow gives it; zero: not asked for
	Traceparent string            // of W3C Trace Context, passed on to agents; empty: none
	Parent      *Parent           // the step that the task is a child of, from headers; nil: none
	Intake      *IntakeRef        // the record that an intake made it of, from a header; nil: no intake made it
	StatusQuery bool              // it asks for the status of the task, and starts none, from a header
}

func (*Submission) input() {}
func (s *Submission) fields(c *codec) {
	c.str("id", &s.ID)
	c.str("workflow", &s.Workflow)
	c.int("version", &s.Version)
	c.raw("input", &s.Input)
	c.str("reply_to", &s.ReplyTo)
	c.int("priority", &s.Priority)
	c.labels("labels", &s.Labels)
	c.time("complete_by", &s.CompleteBy)
}

// Digest identifies the content of a submission. It doesn't depend on how the JSON was written: the order of members,
// white space, escapes, and the form of numbers (1, 1.0 and 1e0) make no difference. Every digit of a number counts. It
// doesn't depend on complete_by, which an application may compute for each try. The same id with another digest is a
// conflict (ReasonIDConflict).
func (s *Submission) Digest() (sum string) {
	c := *s
	c.CompleteBy = time.Time{}
	withCanonical(s.Input, func(input []byte) {
		if c.Input = input; string(input) == "null" {
			c.Input = nil
		}
		sum = hashObject(&c)
	})
	return sum
}

// Reply is an agent's reply to an attempt.
type Reply struct {
	Task    string
	Ref     RequestRef // of the attempt; one that isn't current is ignored
	Token   string     // of the attempt, from its request; empty: the reply has none and is refused
	Outcome Outcome
	Effect  Effect          // of a failure; EffectUnknown unless the agent says EffectNone
	Body    json.RawMessage // the output if completed, the value of a progress, else an error object (Failure)
	Item    *int            // of the child that replies; nil: none
	Source  string          // ce_source; trusted only with the attempt's token; empty: absent, longer than MaxNameBytes, or not UTF-8
	// RetryAfter is how long the agent asks to wait before the next attempt, after a failure; 0: it
	// doesn't ask. At most MaxRetryAfter.
	RetryAfter time.Duration

	matched tokenMatch // the last token that matched
}

// tokenMatch is a token and its hash.
type tokenMatch struct {
	hash, task, token string
	ref               RequestRef
}

func (*Reply) input() {}

// Outcome is the result of an attempt, or its progress.
type Outcome string

// The outcomes that ce_outcome may name.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Rejected  Outcome = "rejected"
	Progress  Outcome = "progress" // the attempt goes on
	Held      Outcome = "held"     // of a child: it is held
	Resumed   Outcome = "resumed"  // of a child: it is no longer held
)

// RequestRef names an attempt: ce_request without its task.
type RequestRef struct {
	Step    string
	Kind    Kind
	Attempt int
}

// RequestID returns the name of an attempt: "<task>/<step>/<do|undo>/<attempt>". It is the ce_id of the attempt's
// request, and ce_request without the token.
func RequestID(task string, ref RequestRef) string {
	var stack [192]byte
	return string(appendRequestID(stack[:0], task, ref))
}

func appendRequestID(dst []byte, task string, ref RequestRef) []byte {
	dst = append(append(append(dst, task...), '/'), ref.Step...)
	dst = append(append(append(dst, '/'), ref.Kind...), '/')
	return strconv.AppendInt(dst, int64(ref.Attempt), 10)
}

// requestBytes is an upper bound of the length of ce_request.
func requestBytes(task string, ref RequestRef, token string) int {
	return len(task) + len(ref.Step) + len(ref.Kind) + 4 + numberBytes + len(token)
}

// appendRequest appends ce_request: "<task>/<step>/<do|undo>/<attempt>/<token>". id is its length without the token.
func appendRequest(dst []byte, task string, ref RequestRef, token string) (request []byte, id int) {
	begins := len(dst)
	dst = appendRequestID(dst, task, ref)
	id = len(dst) - begins
	return append(append(dst, '/'), token...), id
}

// TokenHash returns the hash of an attempt's token that its event records: 128 bits of the SHA-256 of ce_request. It
// covers the attempt's name, so one token has different hashes in different attempts. Finding a text with this hash
// takes as many guesses as finding the token, which has 128 random bits. So readers of events can't compute the token.
func TokenHash(task string, ref RequestRef, token string) string {
	text := tokenHash(task, ref, token)
	return string(text[:])
}

func tokenHash(task string, ref RequestRef, token string) (text [hashBytes]byte) {
	var stack [192]byte
	request, _ := appendRequest(stack[:0], task, ref, token)
	sum := sha256.Sum256(request)
	writeHash(&text, sum[:])
	return text
}

// TokenMatches reports whether a reply has the token of an attempt. hash is the hash that the attempt's event records.
// An attempt without a hash has no request, so no reply matches. It is called twice for each accepted reply, so the
// last match is cached.
func (r *Reply) TokenMatches(hash string) bool {
	if hash == "" || r.Token == "" {
		return false
	}
	asked := tokenMatch{hash, r.Task, r.Token, r.Ref}
	if asked == r.matched {
		return true
	}
	text := tokenHash(r.Task, r.Ref, r.Token)
	if subtle.ConstantTimeCompare(text[:], bytesOf(hash)) != 1 {
		return false
	}
	r.matched = asked
	return true
}

// ParseRequest reads ce_request. The token is empty if there is none.
func ParseRequest(s string) (task string, ref RequestRef, token string, err error) {
	rest, token, _ := cutLast(s)
	if task, ref, err = ParseRequestID(rest); err == nil {
		return task, ref, token, nil
	}
	// Without a token, the text before the last slash ends with do or undo, not with a number. So only one of the two
	// forms matches.
	if task, ref, err = ParseRequestID(s); err == nil {
		return task, ref, "", nil
	}
	return "", RequestRef{}, "", fmt.Errorf("%s isn't <task>/<step>/<do|undo>/<attempt>/<token>", HeaderRequest)
}

// ParseRequestID is the inverse of RequestID. A task id may hold slashes.
func ParseRequestID(s string) (task string, ref RequestRef, err error) {
	rest, attempt, ok1 := cutLast(s)
	rest, kind, ok2 := cutLast(rest)
	task, step, ok3 := cutLast(rest)
	n, nerr := strconv.Atoi(attempt)
	if !ok1 || !ok2 || !ok3 || nerr != nil || n < 1 || step == "" || !Kind(kind).known() {
		return "", ref, fmt.Errorf("%q: not <task>/<step>/<do|undo|check>/<attempt>", s)
	}
	return task, RequestRef{step, Kind(kind), n}, nil
}

// Recovery is a supervisor's request when a timer is due.
type Recovery struct {
	Task       string
	Timer      uint64 // the seq of the event that armed it
	Action     Action
	Step       string    // empty: the task's own timer
	Kind       Kind      // of the run that the timer belongs to
	CompleteBy time.Time // of a retry
	Until      time.Time // of a wait
}

func (*Recovery) input() {}
func (r *Recovery) fields(c *codec) {
	c.str("task", &r.Task)
	c.seq("timer", &r.Timer)
	knownText(c, "action", &r.Action)
	c.str("step", &r.Step)
	knownText(c, "kind", &r.Kind)
	c.time("complete_by", &r.CompleteBy)
	c.time("until", &r.Until)
}

// Control is an operator's command.
type Control struct {
	By
	Task    string
	Command Command
	Keep    bool // cancel: completed steps aren't undone
	// Processed allows an undo of a task that has ended as processed.
	Processed bool
	Step      string          // release; resubmit: only with this step in error
	As        StepState       // release: completed or undone
	Output    json.RawMessage // release as completed: the step's output
	Version   int             // migrate: the version to migrate to
	// DryRun asks for the answer only: the command has no effect.
	DryRun bool
	ID     string // the record's ce_id, which the answer repeats
}

func (*Control) input() {}
func (x *Control) fields(c *codec) {
	c.str("task", &x.Task)
	knownText(c, "command", &x.Command)
	c.bool("keep", &x.Keep)
	c.bool("processed", &x.Processed)
	c.str("step", &x.Step)
	knownText(c, "as", &x.As)
	c.raw("output", &x.Output)
	c.int("version", &x.Version)
	c.bool("dry_run", &x.DryRun)
	x.By.fields(c)
}

// Reason says why a record became a dead letter. The set is closed, and a metric counts each.
type Reason string

// The reasons of dead letters.
const (
	ReasonBadJSON         Reason = "bad_json"
	ReasonUnknownType     Reason = "unknown_type"
	ReasonUnknownVersion  Reason = "unknown_version"
	ReasonMissingHeader   Reason = "missing_header"
	ReasonBadHeader       Reason = "bad_header"
	ReasonBadField        Reason = "bad_field"
	ReasonBadToken        Reason = "bad_token" // a reply without the token of its attempt
	ReasonTooLarge        Reason = "too_large"
	ReasonNull            Reason = "null_value"
	ReasonWrongKey        Reason = "wrong_key"
	ReasonMisplaced       Reason = "misplaced"
	ReasonUnknownTask     Reason = "unknown_task"
	ReasonUnknownStep     Reason = "unknown_step"
	ReasonUnknownWorkflow Reason = "unknown_workflow"
	ReasonIDConflict      Reason = "id_conflict"
	ReasonBadReplyTo      Reason = "bad_reply_to"
	ReasonUndeliverable   Reason = "undeliverable"
	ReasonTaskStopped     Reason = "task_stopped" // its history has an event that this build can't read, or a decision about it failed
	ReasonTaskEnded       Reason = "task_ended"   // a signal for a task that has ended or is being undone
	ReasonNotAwaited      Reason = "not_awaited"  // a signal for which no step waits or will wait
	ReasonTooManySignals  Reason = "too_many_signals"
	ReasonUnmappable      Reason = "unmappable"     // a record of an intake's topic that its expressions can't map
	ReasonUnknownSchema   Reason = "unknown_schema" // one whose schema the registry doesn't have
	ReasonBadAvro         Reason = "bad_avro"       // one that isn't what its schema says
)

// Reasons lists all reasons.
var Reasons = []Reason{ReasonBadJSON, ReasonUnknownType, ReasonUnknownVersion, ReasonMissingHeader, ReasonBadHeader,
	ReasonBadField, ReasonBadToken, ReasonTooLarge, ReasonNull, ReasonWrongKey, ReasonMisplaced, ReasonUnknownTask, ReasonUnknownStep,
	ReasonUnknownWorkflow, ReasonIDConflict, ReasonBadReplyTo, ReasonUndeliverable, ReasonTaskStopped,
	ReasonTaskEnded, ReasonNotAwaited, ReasonTooManySignals, ReasonUnmappable, ReasonUnknownSchema, ReasonBadAvro}

// Unusable is the error of a record that can't be used. The record becomes a dead letter with this reason.
type Unusable struct {
	Reason Reason
	Detail string
}

func (u *Unusable) Error() string { return string(u.Reason) + ": " + u.Detail }

func unusable(r Reason, format string, args ...any) *Unusable {
	return &Unusable{r, fmt.Sprintf(format, args...)}
}

var inboxBytes = [Inboxes]int{Tasks: MaxSubmissionBytes, Replies: MaxReplyBytes, Recoveries: MaxRecoveryBytes, Controls: MaxControlBytes, Signals: MaxSignalBytes}

// DecodeInput reads a record of an inbox. task is the id in it. The error is an *Unusable. The record's key is ignored.
func DecodeInput(inbox Inbox, r *Record) (task string, in Input, err error) {
	limit := inboxBytes[inbox]
	switch {
	case len(r.Value) == 0:
		return "", nil, unusable(ReasonNull, "the record has no value")
	case len(r.Value) > limit:
		return "", nil, unusable(ReasonTooLarge, "%d bytes; %s takes at most %d", len(r.Value), inbox, limit)
	}
	switch inbox {
	case Tasks:
		return decodeSubmission(r)
	case Replies:
		return decodeReply(r)
	case Recoveries:
		return decodeRecovery(r)
	case Signals:
		return decodeSignal(r)
	default:
		return decodeControl(r)
	}
}

// checkType compares a ce_type with the type of an inbox. nil: they are equal.
func checkType(got, want string) *Unusable {
	if got == want {
		return nil
	}
	if i := strings.LastIndex(want, ".v"); strings.HasPrefix(got, want[:i+2]) {
		return unusable(ReasonUnknownVersion, "type %q; this build knows %q", got, want)
	}
	return unusable(ReasonUnknownType, "type %q; expected %q", got, want)
}

// checkRecordType is checkType of a record. A record without a type is accepted.
func checkRecordType(r *Record, want string) *Unusable {
	got, ok := r.lookup(HeaderType)
	if !ok || string(got) == want {
		return nil
	}
	return checkType(string(got), want)
}

// decodeSubmission accepts the three forms: a CloudEvent in binary mode, in structured mode, and the bare object.
func decodeSubmission(r *Record) (string, Input, error) {
	if string(r.header(HeaderType)) == TypeWithdrawal {
		return decodeWithdrawal(r)
	}
	s := &Submission{Intake: IntakeOf(r), StatusQuery: string(r.header(HeaderStatusQuery)) == "true"}
	s.Traceparent, _ = r.Header(HeaderTraceparent)
	if err := checkRecordType(r, TypeSubmission); err != nil {
		return "", nil, err
	}
	data := r.Value
	if bytes.HasPrefix(r.header(HeaderContentType), []byte("application/cloudevents+json")) {
		var ev structuredEvent
		if err := decodeUntrusted(r.Value, &ev, -1); err != nil {
			return "", nil, badJSON(err)
		}
		if err := checkType(ev.Type, TypeSubmission); err != nil {
			return "", nil, err
		}
		var err error
		if data, err = ev.body(); err != nil {
			return "", nil, err
		}
		if s.Traceparent == "" {
			s.Traceparent = ev.Traceparent
		}
	}
	if err := decodeSubmissionBody(data, s); err != nil {
		return "", nil, err
	}
	if !validTraceparent(s.Traceparent) {
		s.Traceparent = "" // as W3C Trace Context demands, an invalid one is ignored
	}
	if err := s.check(); err != nil {
		return "", nil, err
	}
	if err := s.parentOf(r); err != nil {
		return "", nil, err
	}
	return s.ID, s, nil
}

func validTraceparent(s string) bool {
	notPrintable := func(r rune) bool { return r < ' ' || r > '~' }
	return len(s) <= MaxTraceparentBytes && !strings.ContainsFunc(s, notPrintable)
}

// structuredEvent holds the members of a CloudEvent in structured mode that are read.
type structuredEvent struct {
	ID          string
	Type        string
	Traceparent string
	Data        json.RawMessage
	DataBase64  string
}

func (s *structuredEvent) fields(c *codec) {
	c.str("id", &s.ID)
	c.str("type", &s.Type)
	c.str("traceparent", &s.Traceparent)
	c.raw("data", &s.Data)
	c.str("data_base64", &s.DataBase64)
}

func badJSON(err error) *Unusable {
	if strings.HasPrefix(err.Error(), "field ") {
		return unusable(ReasonBadField, "%v", err)
	}
	return unusable(ReasonBadJSON, "%v", err)
}

// CheckTaskID returns an *Unusable if an id can't be a task's.
func CheckTaskID(id string) error {
	switch {
	case id == "":
		return unusable(ReasonBadField, "id: empty; a task needs one, 1 to %d bytes", MaxTaskIDBytes)
	case len(id) > MaxTaskIDBytes:
		return unusable(ReasonBadField, "id: %d bytes; at most %d", len(id), MaxTaskIDBytes)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return unusable(ReasonBadField, "id: holds a control character or no UTF-8")
	}
	return nil
}

// boundedText is a text with a bound in bytes. Records that Waybill writes repeat these texts, so
// the bounds limit their size.
type boundedText struct {
	name, text string
	mostBytes  int
}

func checkLengths(ls ...boundedText) error {
	for _, l := range ls {
		if len(l.text) > l.mostBytes {
			return unusable(ReasonBadField, "%s: %d bytes; at most %d", l.name, len(l.text), l.mostBytes)
		}
	}
	return nil
}

func (s *Submission) check() error {
	if err := CheckTaskID(s.ID); err != nil {
		return err
	}
	for k, v := range s.Labels {
		if err := checkLengths(boundedText{"labels", k, MaxNameBytes}, boundedText{"labels", v, MaxNameBytes}); err != nil {
			return err
		}
	}
	switch {
	case s.Workflow == "":
		return unusable(ReasonBadField, "workflow: missing")
	case len(s.Workflow) > MaxNameBytes:
		return checkLengths(boundedText{"workflow", s.Workflow, MaxNameBytes})
	case s.Version < 0:
		return unusable(ReasonBadField, "version: %d", s.Version)
	case len(s.Labels) > MaxLabels:
		return unusable(ReasonBadField, "labels: %d; at most %d", len(s.Labels), MaxLabels)
	case len(s.ReplyTo) > MaxReplyToBytes:
		return unusable(ReasonBadReplyTo, "reply_to: %d bytes; a topic's name has at most %d", len(s.ReplyTo), MaxReplyToBytes)
	}
	return nil
}

// Check returns why a submission that this process made can't be encoded. Encoding would replace text that isn't UTF-8,
// and omit an instant that is zero in another location. DecodeInput checks the rest.
func (s *Submission) Check() error {
	texts := []utf8Text{{"id", s.ID}, {"workflow", s.Workflow}, {"reply_to", s.ReplyTo}}
	for k, v := range s.Labels {
		texts = append(texts, utf8Text{"labels", k}, utf8Text{"labels", v})
	}
	if err := checkUTF8(texts...); err != nil {
		return err
	}
	if s.CompleteBy == (time.Time{}) {
		return nil
	}
	if err := checkInstant(s.CompleteBy); err != nil {
		return unusable(ReasonBadField, "complete_by: %v", err)
	}
	return nil
}

// utf8Text is a text that must be UTF-8.
type utf8Text struct{ name, text string }

func checkUTF8(texts ...utf8Text) error {
	for _, t := range texts {
		if !utf8.ValidString(t.text) {
			return unusable(ReasonBadField, "%s: %q is not UTF-8", t.name, cut([]byte(t.text), MaxNameBytes))
		}
	}
	return nil
}

// Record makes the submission's record, for waybill.tasks. source is the submitter's ce_source.
func (s *Submission) Record(ns Namespace, source string) Record {
	r := Record{Topic: ns.Inbox(Tasks), Partition: -1, Key: []byte(s.ID), Value: encodeObject(s),
		Headers: CloudHeaders(TypeSubmission, source, s.ID)}
	if s.Traceparent != "" {
		r.Headers = append(r.Headers, Header{HeaderTraceparent, []byte(s.Traceparent)})
	}
	if s.Parent != nil {
		r.Headers = append(r.Headers, s.Parent.headers()...)
	}
	if s.Intake != nil {
		r.Headers = append(r.Headers, s.Intake.Header())
	}
	if s.StatusQuery {
		r.Headers = append(r.Headers, StatusQueryHeader())
	}
	return r
}

func decodeReply(r *Record) (string, Input, error) {
	id, ok := r.Header(HeaderRequest)
	if !ok {
		return "", nil, unusable(ReasonMissingHeader, "a reply needs %s", HeaderRequest)
	}
	if err := checkRecordType(r, TypeReply); err != nil {
		return "", nil, err
	}
	task, ref, token, err := ParseRequest(id)
	if err != nil {
		return "", nil, unusable(ReasonBadHeader, "%v", err)
	}
	if err := CheckTaskID(task); err != nil {
		return "", nil, unusable(ReasonBadHeader, "%s: %v", HeaderRequest, err)
	}
	rep := &Reply{Task: task, Ref: ref, Token: token, Effect: EffectUnknown, Body: bytes.Clone(jsonscan.TrimSpace(r.Value))}
	if source := r.header(HeaderSource); len(source) <= MaxNameBytes && utf8.Valid(source) {
		rep.Source = string(source)
	}
	switch out := r.header(HeaderOutcome); string(out) {
	case string(Completed):
		rep.Outcome = Completed
	case string(Failed):
		rep.Outcome = Failed
	case string(Rejected):
		rep.Outcome = Rejected
	case string(Progress):
		if rep.Outcome = Progress; len(rep.Body) > MaxProgressBytes {
			return "", nil, unusable(ReasonTooLarge, "a progress of %d bytes; at most %d", len(rep.Body), MaxProgressBytes)
		}
	case string(Held):
		rep.Outcome = Held
	case string(Resumed):
		rep.Outcome = Resumed
	case "":
		return "", nil, unusable(ReasonMissingHeader, "a reply needs %s", HeaderOutcome)
	default:
		return "", nil, unusable(ReasonBadHeader, "%s %q: completed, failed, rejected or progress", HeaderOutcome, out)
	}
	if string(r.header(HeaderEffect)) == string(EffectNone) {
		rep.Effect = EffectNone
	}
	if rep.Item = itemOf(r); rep.Outcome == Failed {
		rep.RetryAfter = parseRetryAfter(r.header(HeaderRetryAfter))
	}
	if err := CheckReplyJSON(ref.Kind, r.Value); err != nil {
		return "", nil, unusable(ReasonBadJSON, "the reply's value: %v", err)
	}
	return task, rep, nil
}

// MaxErrorBytes bounds an agent's error as it is stored.
const MaxErrorBytes = 16 << 10

// oversizedTextBytes bounds the message that is kept of an error above MaxErrorBytes.
const oversizedTextBytes = 256

// codeAgentError is the code of an agent's error that has none.
const codeAgentError = "agent_error"

// Failure returns the error of a reply with the outcome failed or rejected. An agent sends an object {"code",
// "message", "details"}. Anything else is kept as details, under the code agent_error. If the body exceeds
// MaxErrorBytes, the code and the beginning of the message are kept. Without a message, the beginning of the body
// becomes the message.
func (r *Reply) Failure() *Error {
	var e struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Details json.RawMessage `json:"details"`
	}
	err := json.Unmarshal(r.Body, &e)
	if len(r.Body) > MaxErrorBytes {
		if err != nil {
			e.Code, e.Message = "", ""
		}
		return oversizedError(e.Code, e.Message, r.Body)
	}
	if err != nil || e.Code == "" && e.Message == "" {
		out := &Error{Code: codeAgentError}
		if string(r.Body) != "null" {
			out.Details = r.Body
		}
		return out
	}
	if e.Code == "" {
		e.Code = codeAgentError
	}
	return &Error{Code: e.Code, Message: e.Message, Details: e.Details}
}

// oversizedError returns what is kept of an error above MaxErrorBytes.
func oversizedError(code, message string, body json.RawMessage) *Error {
	if code == "" || len(code) > MaxNameBytes {
		code = codeAgentError
	}
	if message == "" {
		message = string(body[:oversizedTextBytes])
	}
	if len(message) > oversizedTextBytes {
		message = message[:oversizedTextBytes]
	}
	// The cut may be within a character.
	return &Error{Code: code, Message: fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(message, ""), len(body))}
}

func decodeControl(r *Record) (string, Input, error) {
	t, _ := r.Header(HeaderType)
	if err := checkType(t, TypeControl); err != nil {
		return "", nil, err
	}
	x := &Control{}
	x.ID, _ = r.Header(HeaderID)
	if err := decodeUntrusted(r.Value, x, 0); err != nil {
		return "", nil, badJSON(err)
	}
	if err := CheckTaskID(x.Task); err != nil {
		return "", nil, err
	}
	switch {
	case x.ID == "":
		return "", nil, unusable(ReasonMissingHeader, "a control needs %s: its answer repeats it", HeaderID)
	case len(x.ID) > MaxNameBytes || !utf8.ValidString(x.ID):
		return "", nil, unusable(ReasonBadHeader, "%s: %d bytes; at most %d, in UTF-8", HeaderID, len(x.ID), MaxNameBytes)
	case x.Command != Cancel && x.Command != Resubmit && x.Command != UndoTask && x.Command != Release && x.Command != Migrate:
		return "", nil, unusable(ReasonBadField, "command %q: cancel, resubmit, undo, release or migrate", x.Command)
	case x.Command == Migrate && x.Version < 1:
		return "", nil, unusable(ReasonBadField, "migrate needs the version to migrate to")
	case x.Command == Release && (x.Step == "" || x.As != StepCompleted && x.As != StepUndone):
		return "", nil, unusable(ReasonBadField, "release needs a step and as: completed or undone")
	}
	if err := checkLengths(boundedText{"by", x.Who, MaxNameBytes}, boundedText{"by_claimed", x.Claimed, MaxNameBytes}, boundedText{"why", x.Why, MaxWhyBytes},
		boundedText{"request_id", x.RequestID, MaxNameBytes}, boundedText{"step", x.Step, MaxNameBytes}); err != nil {
		return "", nil, err
	}
	if x.RequestID == "" {
		x.RequestID = x.ID
	}
	return x.Task, x, nil
}

// Check returns why a control that this process made can't be encoded, as Submission.Check does.
func (x *Control) Check() error {
	return checkUTF8(utf8Text{"task", x.Task}, utf8Text{"step", x.Step}, utf8Text{"by", x.Who}, utf8Text{"by_claimed", x.Claimed}, utf8Text{"why", x.Why}, utf8Text{"request_id", x.RequestID})
}

// Record makes the control's record. Its ce_id is the request id.
func (x *Control) Record(ns Namespace, source string) Record {
	return Record{Topic: ns.Inbox(Controls), Partition: -1, Key: []byte(x.Task), Value: encodeObject(x),
		Headers: CloudHeaders(TypeControl, source, x.RequestID)}
}
