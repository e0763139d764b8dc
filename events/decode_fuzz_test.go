package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// samplesOf returns the golden records of a type. TestGolden checks that samples and golden files are equal.
func samplesOf(prefix string) (of []Record) {
	for _, s := range samples() {
		if strings.HasPrefix(s.name, prefix) {
			of = append(of, s.record)
		}
	}
	return of
}

// asWritten checks that a value which a decoder accepts is valid JSON, and that encoding and decoding it again gives
// the same value and bytes.
func asWritten[T any](t *testing.T, value []byte, decode func(*Record) (T, error), record func(T) Record) {
	t.Helper()
	v, err := decode(&Record{Value: value})
	if err != nil {
		return
	}
	if !json.Valid(value) {
		t.Fatalf("took %q, which is no JSON", value)
	}
	written := record(v)
	back, err := decode(&written)
	if err != nil || !reflect.DeepEqual(back, v) {
		t.Fatalf("read    %+v\nwritten %s\nread    %+v, %v", v, written.Value, back, err)
	}
	if again := record(back); !bytes.Equal(again.Value, written.Value) {
		t.Fatalf("written %s\nagain   %s", written.Value, again.Value)
	}
}

// FuzzDecodeSnapshot checks asWritten for snapshots.
func FuzzDecodeSnapshot(f *testing.F) {
	for _, r := range samplesOf(TypeSnapshot + ".") {
		f.Add(r.Value)
	}
	f.Add([]byte(`{"format":1,"next":3,"until":3}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		asWritten(t, value, DecodeSnapshot, func(s *Snapshot) Record { return s.Record("ns.", "s", 0) })
	})
}

// FuzzDecodeChunk checks that a decoded chunk can be encoded and decoded again, and that its tasks are parts of it.
func FuzzDecodeChunk(f *testing.F) {
	for _, r := range samplesOf(TypeSnapshotChunk) {
		f.Add(r.Value)
	}
	f.Add((&Chunk{}).Encode())
	f.Add([]byte(`{"sizes":[2,9223372036854775807],"ended":[],"tasks":[{},{}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		k, err := DecodeChunk(value)
		if err != nil {
			return
		}
		back, err := DecodeChunk(k.Encode())
		if err != nil || !slices.Equal(back.Ended, k.Ended) || !reflect.DeepEqual(back.Part, k.Part) || !slices.EqualFunc(back.Tasks, k.Tasks, bytes.Equal) {
			t.Fatalf("read    %+v\nwritten %s\nread    %+v, %v", k, k.Encode(), back, err)
		}
		for _, task := range k.Tasks {
			if !bytes.Contains(value, task) {
				t.Fatalf("%s isn't in %s", task, value)
			}
		}
	})
}

// FuzzParseChunkKey checks that a key names at most one chunk.
func FuzzParseChunkKey(f *testing.F) {
	for _, key := range []string{ChunkKey(ChunkOpen, 7), ChunkKey(ChunkFinished, 0), SnapshotMetaKey, "open/07", "open/-1", "shut/1"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		kind, n, ok := ParseChunkKey(key)
		if ok && (ChunkKey(kind, n) != key || kind != ChunkOpen && kind != ChunkFinished) {
			t.Fatalf("%q is read as chunk %d of kind %q", key, n, kind)
		}
	})
}

// FuzzParseDefinitionKey checks that the key of a kept copy is the definition's key with a prefix, and that neither is
// the key of the format record.
func FuzzParseDefinitionKey(f *testing.F) {
	for _, key := range []string{"order/1", KeptDefinition("order/1"), "format", "deleted/1", "deleted/", ""} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		of, kept, is := ParseDefinitionKey(key)
		if kept && (!is || KeptDefinition(of) != key) || !kept && of != key || is && !strings.Contains(of, "/") {
			t.Fatalf("%q is read as the key %q, kept %v, of a definition %v", key, of, kept, is)
		}
	})
}

// FuzzDecodeAnswer checks asWritten for answers.
func FuzzDecodeAnswer(f *testing.F) {
	for _, r := range samplesOf(TypeAnswer) {
		f.Add(r.Value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		asWritten(t, value, DecodeAnswer, func(a *Answer) Record { return a.Record("ns.", "s") })
	})
}

// FuzzDecodeAlert checks asWritten for alerts.
func FuzzDecodeAlert(f *testing.F) {
	for _, r := range samplesOf(TypeAlert) {
		f.Add(r.Value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		asWritten(t, value, DecodeAlert, func(a *Alert) Record { return a.Record("ns.", "s", "t/1") })
	})
}

// FuzzDecodeNotification checks asWritten for notifications, and their reply_to.
func FuzzDecodeNotification(f *testing.F) {
	for _, r := range samplesOf(TypeNotification) {
		to, _ := r.Header(HeaderReplyTo)
		f.Add(to, r.Value)
	}
	f.Fuzz(func(t *testing.T, replyTo string, value []byte) {
		asWritten(t, value, DecodeNotification, func(n *Notification) Record {
			r := n.Record("ns.", "s", replyTo, "t/1")
			if to, _ := r.Header(HeaderReplyTo); to != replyTo || string(r.Key) != n.Task {
				t.Fatalf("a notification of %q for %q goes to %q under %q", n.Task, replyTo, to, r.Key)
			}
			return r
		})
	})
}

// FuzzDecodeEnvelope checks that every event is also readable as an envelope with the same fields, and as a line of a
// timeline. An envelope is valid JSON.
func FuzzDecodeEnvelope(f *testing.F) {
	for _, s := range samples() {
		if s.event != nil {
			f.Add(s.event.Fact.Type(), s.event.ID(3), s.record.Key, s.record.Value)
		}
	}
	f.Fuzz(func(t *testing.T, ceType, id string, key, value []byte) {
		r := Record{Key: key, Value: value, Headers: CloudHeaders(ceType, "s", id)}
		env, envErr := DecodeEnvelope(&r)
		if envErr == nil && (!json.Valid(value) || env.Fact.Type() != ceType) {
			t.Fatalf("took %q as an envelope of type %q", value, env.Fact.Type())
		}
		e, err := DecodeEvent(&r)
		if err != nil {
			return
		}
		if envErr != nil {
			t.Fatalf("an event of type %q is no envelope: %v", ceType, envErr)
		}
		same := env.At.Equal(e.At) && env.Cause == e.Cause && env.Epoch == e.Epoch && env.Prev == e.Prev && env.Due.Equal(e.Due) && reflect.DeepEqual(env.Policy, e.Policy)
		if !same || e.Task != "" && env.Task != e.Task {
			t.Fatalf("event    %+v\nenvelope %+v", e, env)
		}
		again := e.Record("ns.", "s", 3, e.Value())
		back, err := DecodeEvent(&again)
		if err != nil || !bytes.Equal(back.Value(), again.Value) {
			t.Fatalf("%v\nwritten %s\nagain   %s", err, again.Value, back.Value())
		}
		if line, err := TimelineLine(&again); err != nil || line.Seq != e.Seq || line.Type != ceType {
			t.Fatalf("in a timeline: %+v, %v", line, err)
		}
		_ = e.CheckSum(&r) // it must not panic
		sealed := e.Record("ns.", "s", 3, e.Seal(&Task{State: StateError}))
		if back, err = DecodeEvent(&sealed); err != nil || back.Sum == "" || back.CheckSum(&sealed) != nil {
			t.Fatalf("%v: %q\nsealed %s", err, back.Sum, sealed.Value)
		}
	})
}

// FuzzParseCause checks that a parsed cause can be written and parsed again, and names one of the four inboxes.
func FuzzParseCause(f *testing.F) {
	for _, s := range []string{"tasks/0/0", "replies/3/1742", "controls/2147483647/9223372036854775807", "tasks/-1/0", "tasks/0/-1",
		"tasks/2147483648/0", "tasks//", "tasks/0", "", "events/0/0", "tasks/0/0/0", "tasks/+1/007"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if inbox, ok := ParseInbox(s); ok && inbox.String() != s {
			t.Fatalf("inbox %q is %q", s, inbox)
		}
		c, err := ParseCause(s)
		if err != nil {
			return
		}
		if back, err := ParseCause(c.String()); err != nil || back != c {
			t.Fatalf("%q is %+v, written %q, read %+v, %v", s, c, c, back, err)
		}
		if c.Inbox >= Inboxes || c.Partition < 0 || c.Offset < 0 {
			t.Fatalf("%q is %+v", s, c)
		}
	})
}

// FuzzParseRequestID checks that a ce_request with any task id, and any step without a slash, is parsed as it was made.
// Parsed ids are written as they were.
func FuzzParseRequestID(f *testing.F) {
	f.Add("order-7", "charge", true, 1, "order-7/charge/do/1")
	f.Add("a/b/do/1", "s", false, 1<<31, "a/b/do/1/s/undo/2147483648")
	f.Add("", "", true, 0, "///")
	f.Add("t", "do", true, 7, "t/s/do/0")
	f.Fuzz(func(t *testing.T, task, step string, do bool, attempt int, s string) {
		ref := RequestRef{Step: step, Kind: Undo, Attempt: attempt}
		if do {
			ref.Kind = Do
		}
		gotTask, got, err := ParseRequestID(RequestID(task, ref))
		if can := attempt > 0 && step != "" && !strings.Contains(step, "/"); can && (err != nil || gotTask != task || got != ref) {
			t.Fatalf("%q %+v is written %q and read %q %+v, %v", task, ref, RequestID(task, ref), gotTask, got, err)
		}
		if task, ref, err := ParseRequestID(s); err == nil {
			if task2, ref2, err := ParseRequestID(RequestID(task, ref)); err != nil || task2 != task || ref2 != ref {
				t.Fatalf("%q is %q %+v, then %q %+v, %v", s, task, ref, task2, ref2, err)
			}
		}
		if task, ref, token, err := ParseRequest(s); err == nil {
			request, n := appendRequest(nil, task, ref, token)
			if token == "" && s != string(request) {
				request = request[:n]
			}
			if task2, ref2, token2, err := ParseRequest(string(request)); err != nil || task2 != task || ref2 != ref || token2 != token {
				t.Fatalf("%q is %q %+v %q, then %q %+v %q, %v", s, task, ref, token, task2, ref2, token2, err)
			}
		}
	})
}

// FuzzDecodePlan checks that a plan is valid JSON, keeps its bytes, is encoded from its fields as an equal plan, and
// finds each of its steps.
func FuzzDecodePlan(f *testing.F) {
	f.Add([]byte(onePlan().raw))
	f.Add([]byte(samplePlan().raw))
	f.Add([]byte(`{"steps":[{"id":"a","needs":[0]},{"id":"a","needs":[-1]}]}`))
	f.Add([]byte(`{"complete_within_ms":9223372036854775807,"steps":[{"id":"a","factor":1e308,"max_ms":-1}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := decodePlan(raw)
		if err != nil {
			return
		}
		if !json.Valid(raw) || string(p.raw) != string(raw) || p.Bytes() != len(raw) {
			t.Fatalf("took %q as %q", raw, p.raw)
		}
		written := NewPlan(p.OnError, p.CompleteWithin, p.Steps)
		back, err := decodePlan(written.raw)
		if err != nil || !reflect.DeepEqual(back.Steps, p.Steps) || back.OnError != p.OnError || back.CompleteWithin != p.CompleteWithin {
			t.Fatalf("%v\nread    %+v\nwritten %s\nread    %+v", err, p, written.raw, back)
		}
		for i := range p.Steps {
			if at, ok := p.Step(p.Steps[i].ID); !ok || p.Steps[at].ID != p.Steps[i].ID {
				t.Fatalf("step %q is at %d of %s", p.Steps[i].ID, at, raw)
			}
		}
	})
}

// FuzzPolicy checks that a policy is encoded as it was read. Its result is one of the four actions or its own on_error,
// and is deterministic. The recovery made from it can be decoded.
func FuzzPolicy(f *testing.F) {
	for _, timer := range []TimerKind{TimerTask, TimerAttempt, TimerFailed, TimerWaiting} {
		e := &Event{Fact: &TaskStarted{}, At: epochStart}
		e.arm(timer)
		f.Add(encodeObject(e.Policy), "charge", 2, int64(0), int64(500))
	}
	f.Add([]byte(`{"timer":"failed","max_attempts":9,"backoff_ms":315360000000,"factor":100,"cool_down_ms":315360000000,"on_error":"hold"}`), "s", 1, int64(1), int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, step string, attempt int, dueMillis, laterMillis int64) {
		p := &Policy{}
		if err := decodeObject(data, p); err != nil {
			return
		}
		back := &Policy{}
		if err := decodeObject(encodeObject(p), back); err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("%v\nread    %+v\nwritten %s\nread    %+v", err, p, encodeObject(p), back)
		}
		if d := p.Attempts.Delay("t", step, Do, attempt, p.FailureCount); d < 0 || d > MaxDelay {
			t.Fatalf("a delay of %s by %+v", d, p.Attempts)
		}
		// Instants of this century: the rules add decades at most.
		due := epochStart.Add(time.Duration(dueMillis%1e9) * time.Millisecond)
		now := due.Add(time.Duration(laterMillis%1e9) * time.Millisecond)
		next := p.Next("t", step, Do, attempt, due, now)
		if again := back.Next("t", step, Do, attempt, due, now); again != next {
			t.Fatalf("computed twice: %+v, %+v", next, again)
		}
		checkNextRecovery(t, p, step, next, now)
	})
}

func checkNextRecovery(t *testing.T, p *Policy, step string, next NextRecovery, now time.Time) {
	t.Helper()
	switch next.Action {
	case ActionRetry:
		if !p.CompleteBy.IsZero() && next.CompleteBy.After(p.CompleteBy) {
			t.Fatalf("an attempt until %s; the task ends at %s", next.CompleteBy, p.CompleteBy)
		}
	case ActionWait:
		if next.CoolDown && (p.CooledDown || !p.CompleteBy.IsZero() && !next.Until.Before(p.CompleteBy)) {
			t.Fatalf("a cool-down until %s by %+v", next.Until, p)
		}
		if !next.CoolDown && !next.Until.Add(time.Millisecond).After(now) {
			t.Fatalf("at %s a wait until %s", now, next.Until)
		}
	case Action(p.OnError):
	default:
		t.Fatalf("calls for %q by %+v", next.Action, p)
	}
	if next.Action == Action(p.OnError) && next.Action != ActionUndo && next.Action != ActionHold {
		return // only a corrupt log has it
	}
	a := Armed{Slot: Slot{step, Do}, Timer: Timer{Seq: 3, Due: now}, Attempt: 1, Policy: *p}
	want := a.Recovery("t", next)
	r := want.Record("ns.", "s", 0)
	_, got, err := DecodeInput(Recoveries, &r)
	if err != nil && len(r.Value) <= MaxRecoveryBytes || err == nil && !reflect.DeepEqual(got, want) && strings.ToValidUTF8(step, "") == step {
		t.Fatalf("asked for %+v, written %s, read %+v, %v", want, r.Value, got, err)
	}
}

// FuzzDeadletter checks that a dead letter has the beginning of the original, and its size, hash, origin and reason.
func FuzzDeadletter(f *testing.F) {
	f.Add("waybill.replies", int32(3), int64(1742), []byte("order-7"), []byte("\x00not JSON"), "bad_json", "the reply's value is no JSON in UTF-8")
	f.Add("", int32(0), int64(0), []byte(nil), []byte(nil), "", strings.Repeat("é", 600))
	f.Add("waybill.tasks", int32(0), int64(-1), bytes.Repeat([]byte("k"), 2000), bytes.Repeat([]byte("v"), MaxDeadletterBytes+1), "too_large", "")
	f.Fuzz(func(t *testing.T, topic string, p int32, offset int64, key, value []byte, reason, detail string) {
		r := Record{Topic: topic, Partition: p, Offset: offset, Key: key, Value: value}
		l := Deadletter("ns.", "s", &r, &Unusable{Reason(reason), detail})
		if len(l.Value) > MaxDeadletterBytes || len(l.Key) > 1024 || !bytes.HasPrefix(value, l.Value) || !bytes.HasPrefix(key, l.Key) {
			t.Fatalf("key of %d bytes kept as %d, value of %d as %d", len(key), len(l.Key), len(value), len(l.Value))
		}
		sum := sha256.Sum256(value)
		for name, want := range map[string]string{HeaderReason: reason, HeaderOrigin: Origin(&r), HeaderSize: strconv.Itoa(len(value)),
			HeaderSHA256: hex.EncodeToString(sum[:]), HeaderID: Origin(&r), HeaderType: TypeDeadletter} {
			if got, _ := l.Header(name); got != want {
				t.Fatalf("%s is %q, want %q", name, got, want)
			}
		}
		if again, err := Redrive("waybill.", "s", &l); err == nil && (again.Topic != topic || !bytes.Equal(again.Value, value) || len(again.Key) == 0) {
			t.Fatalf("%+v is redriven as %+v", r, again)
		}
		if got, _ := l.Header(HeaderDetail); len(got) > 1024 || !strings.HasPrefix(detail, got) {
			t.Fatalf("detail %q of %q", got, detail)
		}
	})
}

// FuzzSubmissionForms checks that a submission is equal as a bare object, as a CloudEvent in binary mode and in
// structured mode, with any white space.
func FuzzSubmissionForms(f *testing.F) {
	for _, r := range samplesOf(TypeSubmission) {
		f.Add(r.Value)
	}
	f.Add([]byte(`{"id":"a","workflow":"w","input":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		_, bare, err := DecodeInput(Tasks, &Record{Value: value})
		if err != nil {
			return
		}
		same := func(how string, r *Record) {
			_, got, err := DecodeInput(Tasks, r)
			if err != nil && len(r.Value) > MaxSubmissionBytes {
				return
			}
			if err != nil || got.(*Submission).Digest() != bare.(*Submission).Digest() {
				t.Fatalf("%s: %+v, %v\nbare: %+v\n%s", how, got, err, bare, r.Value)
			}
		}
		same("binary mode", &Record{Value: value, Headers: CloudHeaders(TypeSubmission, "s", "1")})
		same("structured mode", &Record{Value: slices.Concat([]byte(`{"type":"`+TypeSubmission+`","data":`), value, []byte("}")),
			Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}}})
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			t.Fatalf("took %q, which the standard library doesn't: %v", value, err)
		}
		same("compact", &Record{Value: compact.Bytes()})
	})
}

// FuzzDecodeTask checks that a stored task is valid JSON, can be encoded and decoded again, and has a view that is
// valid JSON. It checks timers and the partition's state in the same way.
func FuzzDecodeTask(f *testing.F) {
	f.Add((&Task{ID: "t", Plan: onePlan(), Steps: newSteps(1)}).Encode())
	f.Add([]byte(`{"id":"t","state":"error","plan":` + string(onePlan().raw) + `,"steps":[{"state":"error","undo":{"state":"failed","timer":3,"due":"2026-01-01T00:00:00.000Z"}}]}`))
	f.Add((&Timers{Task: "t", Armed: []Armed{{Slot: Slot{"s0", Do}, Timer: Timer{3, epochStart}, Policy: Policy{Timer: TimerFailed}}}}).Encode())
	f.Add((&PartitionState{Epoch: 3, Owner: "a", Reflected: [Inboxes]int64{1, 2, 3, 4}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		stored(t, data, DecodeTask)
		stored(t, data, DecodeTimers)
		stored(t, data, DecodePartitionState)
		stored(t, data, DecodeSummary)
		headed(t, data, DecodeSummaryHead)
		if task, err := DecodeTask(data); err == nil {
			if view, err := json.Marshal(task.View("owner", 3, 17)); err != nil || !json.Valid(view) {
				t.Fatalf("the view of %s: %s, %v", data, view, err)
			}
		}
	})
}

// headed checks that the head of a summary is read as the summary is.
func headed(t *testing.T, data []byte, decode func([]byte) (SummaryHead, error)) {
	t.Helper()
	s, err := DecodeSummary(data)
	if err != nil {
		return
	}
	want := SummaryHead{s.ID, s.Workflow, s.Version, s.State, s.SubmittedAt, s.UpdatedAt, s.Stopped, s.From, s.Item}
	if h, err := decode(data); err != nil || h != want {
		t.Fatalf("%s has the head %+v, %v; want %+v", data, h, err, want)
	}
}

func stored[T interface{ Encode() []byte }](t *testing.T, data []byte, decode func([]byte) (T, error)) {
	t.Helper()
	v, err := decode(data)
	if err != nil {
		return
	}
	if !json.Valid(data) {
		t.Fatalf("took %q, which is no JSON", data)
	}
	written := v.Encode()
	back, err := decode(written)
	if err != nil || !bytes.Equal(back.Encode(), written) || !reflect.DeepEqual(back, v) {
		t.Fatalf("%v\nread    %+v\nwritten %s\nread    %+v", err, v, written, back)
	}
}

// FuzzFold checks that a task folds any events, or refuses them unchanged. Each line of the input is a type and a
// value. Task, seq and prev are set to fit, since most events would be refused otherwise.
func FuzzFold(f *testing.F) {
	line := func(fact Fact) string {
		e := sampleEvent(fact, 2)
		return e.Fact.Type() + " " + string(e.Value())
	}
	received := line(&TaskReceived{Workflow: "w", Version: 1, Input: json.RawMessage(`{}`), Plan: onePlan()})
	var all []string
	for _, fact := range sampleFacts() {
		all = append(all, line(fact))
	}
	f.Add(strings.Join(all, "\n"))
	start, done := &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1, Key: "k"}, &AttemptCompleted{Kind: Do, Step: "s0", Attempt: 1}
	f.Add(strings.Join([]string{received, line(&TaskStarted{}), line(start), line(done), line(&TaskProcessed{})}, "\n"))
	f.Add(strings.Join([]string{received, line(&TaskStarted{}), line(start), line(&AttemptExpired{Kind: Do, Step: "s0", Attempt: 1}),
		line(&TaskUndoing{Ending: StateUndone}), line(&AttemptStarted{Kind: Undo, Step: "s0", Attempt: 1, Key: "u"}),
		line(&AttemptCompleted{Kind: Undo, Step: "s0", Attempt: 1}), line(&TaskUndone{})}, "\n"))
	f.Fuzz(func(t *testing.T, history string) {
		var task *Task
		var timers Timers
		var summary Summary
		var reader EventReader
		for text := range strings.Lines(history) {
			ceType, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
			e, err := DecodeEvent(&Record{Key: []byte("t"), Value: []byte(value), Headers: CloudHeaders(ceType, "s", "t/1")})
			if err != nil || e.Task == "" {
				continue
			}
			e.Seq, e.Prev = 1, ""
			if task != nil {
				e.Seq, e.Prev = task.Seq+1, task.Prev
			}
			task = foldOne(t, task, &timers, e)
			// A summary doesn't check the chain, nor that the plan has an undo, so it may go on further.
			if e, err := reader.Decode(&Record{Key: []byte("t"), Value: []byte(value), Headers: CloudHeaders(ceType, "s", TaskEventID("t", summary.Seq+1))}); err == nil {
				summary.Evolve(e)
				stored(t, summary.Encode(), DecodeSummary)
				headed(t, summary.Encode(), DecodeSummaryHead)
			}
		}
	})
}

// foldOne folds an event into the task, and into the timers if the task accepts it.
func foldOne(t *testing.T, task *Task, timers *Timers, e *Event) *Task {
	t.Helper()
	before := ""
	if task != nil {
		before = string(task.Encode())
	}
	next, err := Evolve(task.Clone(), e, Hash(e.Fact.Type(), e.Value()))
	if task != nil && string(task.Encode()) != before {
		t.Fatalf("%s changed what it was given a clone of", e.Fact.Type())
	}
	if err != nil {
		if next != nil && string(next.Encode()) != before {
			t.Fatalf("%s was refused (%v) and changed\n%s to\n%s", e.Fact.Type(), err, before, next.Encode())
		}
		return task
	}
	timers.Evolve(e)
	stored(t, next.Encode(), DecodeTask)
	stored(t, timers.Encode(), DecodeTimers)
	if !next.Open() && len(timers.Armed) > 0 {
		t.Fatalf("in state %s the timers %+v are armed", next.State, timers.Armed)
	}
	return next
}

// TestEveryDecoderIsFuzzed checks that a fuzzer of this package calls every decoder of records from outside. Each
// fuzzer has stored inputs, and all stored inputs belong to a fuzzer.
func TestEveryDecoderIsFuzzed(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	decoders, called, fuzzers := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			if name := fn.Name.Name; strings.HasPrefix(name, "Decode") || strings.HasPrefix(name, "Parse") {
				decoders[name] = file.Name()
			} else if strings.HasPrefix(name, "Fuzz") {
				fuzzers[name] = true
				ast.Inspect(fn, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						called[id.Name] = true
					}
					return true
				})
			}
		}
	}
	for name, file := range decoders {
		if !called[name] {
			t.Errorf("%s (%s) is called by no fuzzer: write one that claims more than that it doesn't panic", name, file)
		}
	}
	if len(decoders) < 10 {
		t.Errorf("found only the decoders %v", decoders)
	}
	checkCorpora(t, fuzzers)
}

func checkCorpora(t *testing.T, fuzzers map[string]bool) {
	const corpora = "testdata/fuzz"
	for name := range fuzzers {
		if kept, err := os.ReadDir(corpora + "/" + name); err != nil || len(kept) == 0 {
			t.Errorf("%s has no inputs in %s/%s (%v): keep some that it found", name, corpora, name, err)
		}
	}
	dirs, err := os.ReadDir(corpora)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !fuzzers[d.Name()] {
			t.Errorf("%s/%s belongs to no fuzzer: rename it with its fuzzer, or remove it", corpora, d.Name())
		}
	}
}

// FuzzParseInstant checks that an accepted instant equals the standard library's, is valid by the schemas, and is read
// again as the same.
func FuzzParseInstant(f *testing.F) {
	for _, s := range []string{"2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5+01:30", "0001-01-01T00:00:00Z", "2026-03-01T12:00:00,5Z", "2026-03-01T12:00:00+24:00", "9999-12-31T23:59:59.999999999Z"} {
		f.Add(s)
	}
	schema := regexp.MustCompile(instantPattern)
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseInstant(s)
		if err != nil {
			return
		}
		std, err := time.Parse(time.RFC3339, s)
		if err != nil || !std.Equal(at) || !schema.MatchString(s) || at.IsZero() {
			t.Fatalf("%q is read as %s, by the standard library as %s (%v)", s, at, std, err)
		}
		if got, err := readInstant(appendInstant(nil, at)); err != nil || !got.Equal(Millis(at)) {
			t.Fatalf("%q is read again as %s, %v", s, got, err)
		}
	})
}
