package agent

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// asRead returns a reply as a scheduler decodes it from its record.
func asRead(t *testing.T, r events.Reply) *events.Reply {
	t.Helper()
	rec := r.Record("ns.", "agent")
	task, in, err := events.DecodeInput(events.Replies, &rec)
	if err != nil || task != r.Task {
		t.Fatalf("a scheduler can't read the reply %+v to task %q, written %s: %v", r, r.Task, rec.Value, err)
	}
	return in.(*events.Reply)
}

// FuzzRequest: a record of a request topic is refused, or is a request with JSON as input. The scheduler assigns its
// reply to the same attempt. The value of an undo is decoded to what the scheduler encoded.
func FuzzRequest(f *testing.F) {
	undo, err := events.UndoValue(events.UndoOf{IdempotencyKey: "ns.o-7/charge/do/1", Outcome: "completed",
		Input: json.RawMessage(`{"amount":12.50}`), Output: json.RawMessage(`null`)}, json.RawMessage(`{"reason":"x","undo_of":1}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("o-7/charge/do/1", "charge", "ns.o-7/charge/do/1", "2026-03-01T12:00:10.000Z", []byte(`{"amount":12.50}`))
	f.Add("o-7/charge/undo/1", "refund", "ns.o-7/charge/undo/1", "2026-03-01T12:00:10.000Z", []byte(undo))
	f.Add("a/b/c/undo/2", "o", "k", "2026-03-01T13:00:10+01:00", []byte(`{"undo_of":{"idempotency_key":"k","input":1,"IDEMPOTENCY_KEY":""}}`))
	f.Add("o/s/do/0", "", "", "x", []byte(``))
	f.Fuzz(func(t *testing.T, id, operation, key, by string, value []byte) {
		r, err := newRequest(&events.Record{Value: value, Headers: []events.Header{{Key: events.HeaderRequest, Value: []byte(id)},
			{Key: events.HeaderOperation, Value: []byte(operation)}, {Key: events.HeaderIdempotencyKey, Value: []byte(key)},
			{Key: events.HeaderCompleteBy, Value: []byte(by)}}})
		if err != nil {
			return
		}
		if !json.Valid(r.Input) || r.IdempotencyKey != key || r.Operation != operation || (r.Kind == Undo) != (r.UndoOf != nil) {
			t.Fatalf("read as %+v", r)
		}
		if events.CheckTaskID(r.Task) == nil {
			ref := events.RequestRef{Step: r.Step, Kind: r.Kind, Attempt: r.Attempt}
			got := asRead(t, attempt{req: &r}.replyWith(events.Reply{Outcome: events.Completed, Body: json.RawMessage("1")}).reply)
			if got.Ref != ref || got.Token != r.token {
				t.Fatalf("the reply to %+v is taken for one to %+v", ref, got.Ref)
			}
		}
		if u := r.UndoOf; u != nil && utf8.ValidString(u.Outcome) {
			again, err := events.UndoValue(*u, nil)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := undoOf(again); err != nil || back.IdempotencyKey != u.IdempotencyKey || back.Outcome != u.Outcome || !sameJSON(back.Input, u.Input) || !sameJSON(back.Output, u.Output) {
				t.Fatalf("undo_of %+v is written %s and read %+v, %v", u, again, back, err)
			}
		}
	})
}

func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// FuzzFailure: any failure that a handler describes, and any output that it returns, becomes a reply that the scheduler
// can decode.
func FuzzFailure(f *testing.F) {
	f.Add("busy", "try later", []byte(`{"retry":true}`), uint8(4))
	f.Add("", "\xff\xfe<&>\u2028", []byte(`not JSON`), uint8(1))
	f.Add("c", "m", []byte("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"), uint8(0))
	f.Fuzz(func(t *testing.T, code, message string, details []byte, flags uint8) {
		a := newTestAttempt(time.Minute)
		fail := &Failure{Code: code, Message: message, Details: details, Rejected: flags&1 != 0, NoEffect: flags&2 != 0}
		_, n := a.afterCall(resultOf(Do, nil, fail), t0, false)
		got := asRead(t, n.reply)
		var e struct{ Code string }
		if err := json.Unmarshal(got.Body, &e); err != nil || e.Code == "" && code != "" && utf8.ValidString(code) {
			t.Fatalf("the failure %+v is told as %s, %v", fail, got.Body, err)
		}
		if fail.Rejected != (got.Outcome == events.Rejected) || !fail.Rejected && fail.NoEffect != (got.Effect == events.EffectNone) {
			t.Fatalf("the failure %+v is told as %s with effect %s", fail, got.Outcome, got.Effect)
		}
		if _, n := a.afterCall(resultOf(Do, json.RawMessage(details), nil), t0, false); n.action == actReply {
			if got := asRead(t, n.reply); got.Outcome == events.Completed && !json.Valid(details) {
				t.Fatalf("%q is replied as the output %s", details, got.Body)
			}
		}
	})
}

// FuzzAttempt runs an attempt. The bytes determine how long each call takes and how it ends. Nothing is replied at or
// after complete-by, and no wait reaches it. A rejection or "no effect" is only replied if no call can have had an
// effect. The number of calls is bounded.
func FuzzAttempt(f *testing.F) {
	f.Add([]byte{0, 0}, uint16(1000))
	f.Add([]byte{10, 4, 20, 2, 5, 1}, uint16(5000))
	f.Add([]byte{255, 12, 255, 12, 255, 12, 255, 12}, uint16(60000))
	f.Fuzz(func(t *testing.T, calls []byte, completeIn uint16) {
		a, now := newTestAttempt(time.Duration(completeIn)*time.Millisecond), t0
		touched, made := false, 0
		for n := a.start(now); ; {
			switch n.action {
			case actDrop:
				if now.Before(a.req.CompleteBy) {
					t.Fatalf("stops %s before complete-by", a.req.CompleteBy.Sub(now))
				}
				return
			case actAbandon:
				return
			case actReply:
				if !now.Before(a.req.CompleteBy) {
					t.Fatalf("replies %s after complete-by", now.Sub(a.req.CompleteBy))
				}
				if n.reply.Outcome != events.Completed && touched && (n.reply.Outcome == events.Rejected || n.reply.Effect == events.EffectNone) {
					t.Fatalf("%s with effect %s after a call that may have had one", n.reply.Outcome, n.reply.Effect)
				}
				asRead(t, n.reply)
				return
			case actWait:
				if n.until.Before(now) || !n.until.Before(a.req.CompleteBy) {
					t.Fatalf("at %s waits until %s; complete-by is %s", now, n.until, a.req.CompleteBy)
				}
				now = n.until
				n = a.start(now)
			case actCall:
				if made++; made > a.retry.MaxTries {
					t.Fatalf("call %d; at most %d", made, a.retry.MaxTries)
				}
				if len(calls) < 2 {
					return
				}
				now = now.Add(time.Duration(calls[0]) * 10 * time.Millisecond)
				r, may := callResult(calls[1])
				touched = touched || may
				a, n = a.afterCall(r, now, calls[1]&128 != 0)
				calls = calls[2:]
			}
		}
	})
}

// callResult returns how a call ends, and whether its effect is then unknown.
func callResult(b byte) (r result, mayHave bool) {
	if b&7 == 0 {
		return resultOf(Do, map[string]int{"n": int(b)}, nil), false
	}
	fail := &Failure{Code: "c", Rejected: b&1 != 0, NoEffect: b&2 != 0, Transient: b&4 != 0, After: time.Duration(b>>3) * 100 * time.Millisecond}
	return result{fail: fail}, !fail.Rejected && !fail.NoEffect
}
