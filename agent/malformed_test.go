package agent

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestRequestWithAnUnusableValueFails checks that a request that can't be carried out is replied as failed with the
// reason. The task would otherwise wait until it expires.
func TestRequestWithAnUnusableValueFails(t *testing.T) {
	for value, why := range map[string]string{
		`{"n":`:                         "JSON ends too early",
		`{"x":1}`:                       "undo_of",
		`{"a":1,"a":2}`:                 `two members are named "a"`,
		nested(events.MaxJSONDepth + 3): "deeper than 64 levels",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeSession()
			var malformed atomic.Int32
			stop := start(t, s, Config{Listener: Listener{Malformed: func(events.Record, error) { malformed.Add(1) }}},
				func(context.Context, Request) (any, error) {
					t.Errorf("%.20s: the handler was called", value)
					return nil, nil
				})
			q := events.Request{Task: "o-1", Ref: events.RequestRef{Step: "s", Kind: Undo, Attempt: 1}, Token: testToken, Operation: "op",
				CompleteBy: time.Now().Add(time.Minute), IdempotencyKey: "k", Value: []byte(value)}
			r := q.Record("waybill.", "test", "a", 0)
			s.deliver(r)
			advance(time.Second)
			stop()
			reply := s.replies["o-1/s/undo/1"]
			if malformed.Load() != 1 || len(s.calls().done) != 1 || s.outcome("o-1/s/undo/1") != "failed none" {
				t.Fatalf("%.20s: %d malformed, done %v, %q", value, malformed.Load(), s.calls().done, s.outcome("o-1/s/undo/1"))
			}
			if effect, _ := reply.Header(events.HeaderEffect); effect != string(events.EffectNone) || !strings.Contains(string(reply.Value), strings.ReplaceAll(why, `"`, `\"`)) {
				t.Errorf("%.20s: effect %q, %s", value, effect, reply.Value)
			}
		})
	}
}

func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

// TestDeepestRequests checks that what a scheduler accepts as input and output can be done, undone and checked.
func TestDeepestRequests(t *testing.T) {
	deepest := json.RawMessage(nested(events.MaxJSONDepth))
	undo, err := events.UndoValue(events.UndoOf{IdempotencyKey: "k", Outcome: "completed", Input: deepest, Output: deepest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for kind, value := range map[events.Kind]json.RawMessage{Do: deepest, Undo: undo, Check: events.CheckValue(events.CheckOf{IdempotencyKey: "k", Input: deepest})} {
		q := events.Request{Task: "o", Ref: events.RequestRef{Step: "s", Kind: kind, Attempt: 1}, Token: testToken, Operation: "op", CompleteBy: t0, IdempotencyKey: "k", Value: value}
		rec := q.Record("waybill.", "test", "a", 0)
		r, err := newRequest(&rec)
		if err != nil || kind == Undo && string(r.UndoOf.Output) != string(deepest) || kind == Check && string(r.CheckOf.Input) != string(deepest) {
			t.Errorf("%s: %v", kind, err)
		}
		output := any(deepest)
		if kind == Check {
			output = CheckResult{Outcome: BecameCompleted, Output: deepest}
		}
		res := resultOf(kind, output, nil)
		if res.fail != nil {
			t.Errorf("the reply to %s: %v", kind, res.fail)
			continue
		}
		reply := (&events.Reply{Task: "o", Ref: q.Ref, Token: testToken, Outcome: events.Completed, Body: res.output}).Record("waybill.", "test")
		_, in, err := events.DecodeInput(events.Replies, &reply)
		if err != nil {
			t.Errorf("the scheduler reads the reply to %s: %v", kind, err)
			continue
		}
		if kind == Check {
			if became, got, fault := in.(*events.Reply).Became(); became != BecameCompleted || string(got) != string(deepest) || fault != nil {
				t.Errorf("a check: %s, %v", became, fault)
			}
		}
		if res := resultOf(kind, json.RawMessage(nested(events.MaxJSONDepth+2)), nil); res.fail == nil || res.fail.Code != CodeBadOutput {
			t.Errorf("a reply to %s that nests too deep: %+v", kind, res)
		}
	}
}
