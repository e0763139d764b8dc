package scheduler

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// fuzzedStates is the number of initial states of FuzzDecide.
const fuzzedStates = 64

// FuzzDecide decides on any record in any inbox. The record is refused with a reason, or the invariants of random
// histories still hold and the task can still end.
func FuzzDecide(f *testing.F) {
	ref := events.RequestRef{Step: "s0", Kind: events.Do, Attempt: 1}
	add := func(inbox events.Inbox, r events.Record) {
		for _, state := range []uint8{1, 2, 3} {
			h := func(name string) string { v, _ := r.Header(name); return v }
			f.Add(state, uint8(inbox), h(events.HeaderType), h(events.HeaderID), h(events.HeaderRequest), h(events.HeaderOutcome), r.Value)
		}
	}
	add(events.Replies, (&events.Reply{Task: "t", Ref: ref, Token: testToken("t", ref), Outcome: events.Completed, Body: json.RawMessage(`{"ref":1}`)}).Record("ns.", "a"))
	add(events.Replies, (&events.Reply{Task: "t", Ref: ref, Token: testToken("t", ref), Outcome: events.Rejected, Body: json.RawMessage(`{"code":"no"}`)}).Record("ns.", "a"))
	quoted := `{"code":"` + strings.Repeat("\x7f", events.MaxErrorBytes/2) + `"}`
	add(events.Replies, (&events.Reply{Task: "t", Ref: ref, Token: testToken("t", ref), Outcome: events.Rejected, Body: json.RawMessage(quoted)}).Record("ns.", "a"))
	add(events.Recoveries, (&events.Recovery{Task: "t", Timer: 3, Action: events.ActionRetry, Step: "s0", Kind: events.Do}).Record("ns.", "s", 0))
	add(events.Recoveries, (&events.Recovery{Task: "t", Timer: 2, Action: events.ActionUndo}).Record("ns.", "s", 0))
	for _, c := range []events.Command{events.Cancel, events.Resubmit, events.UndoTask, events.Release} {
		x := &events.Control{Task: "t", Command: c, By: events.By{Who: "op", RequestID: "r"}}
		if c == events.Release {
			x.Step, x.As, x.Output = "s0", events.StepCompleted, json.RawMessage(`1`)
		}
		add(events.Controls, x.Record("ns.", "cli"))
	}
	add(events.Tasks, (&events.Submission{ID: "t", Workflow: "w", Input: json.RawMessage(`{"n":7}`)}).Record("ns.", "shop"))
	add(events.Signals, (&events.Signal{Task: "t", Name: "yes", ID: "1", Data: json.RawMessage(`{"n":7}`)}).Record("ns.", "shop"))
	f.Fuzz(func(t *testing.T, state, inbox uint8, ceType, id, request, outcome string, value []byte) {
		r := events.Record{Value: value}
		for _, h := range []events.Header{{Key: events.HeaderType, Value: []byte(ceType)}, {Key: events.HeaderID, Value: []byte(id)},
			{Key: events.HeaderRequest, Value: []byte(request)}, {Key: events.HeaderOutcome, Value: []byte(outcome)}} {
			if len(h.Value) > 0 {
				r.Headers = append(r.Headers, h)
			}
		}
		in := events.Inbox(inbox % uint8(events.Inboxes))
		if _, _, err := events.DecodeInput(in, &r); err != nil {
			return // see FuzzDecodeInput
		}
		h := drawHistory(uint64(state % fuzzedStates))
		h.moves = h.moves[:min(len(h.moves), 20)]
		h.last = func(w *scenario) { w.arrives(in, &r) }
		if _, b := h.play(false); b != nil {
			t.Fatal((&shrunk{h: h, b: b}).report())
		}
	})
}

// FuzzAgentError checks any failure that an agent may report. The error has a code, isn't much longer than reported,
// and is unchanged after the event is encoded and decoded.
func FuzzAgentError(f *testing.F) {
	for _, s := range []string{`{"code":"busy","message":"later","details":{"a":[1]}}`, `null`, `"text"`, `{"code":7}`, `{"CODE":"x"}`, `{"message":"m"}`,
		`{"code":"a","code":"b"}`, `{"details":null}`, `[[[]]]`, `{"code":"\ud800","message":"\u0000"}`} {
		f.Add([]byte(s), 0)
	}
	f.Add([]byte(`"é"`), events.MaxErrorBytes)
	f.Fuzz(func(t *testing.T, body []byte, padding int) {
		if !events.ValidJSON(body) {
			return // no reply
		}
		body = append(bytes.TrimSpace(body), bytes.Repeat([]byte(" "), min(max(padding, 0), 2*events.MaxErrorBytes))...)
		e := (&events.Reply{Body: body}).Failure()
		if e.Code == "" || len(e.JSON()) > len(body)+256 {
			t.Fatalf("%q is the error %s", body, e.JSON())
		}
		ev := &events.Event{Task: "t", Seq: 2, At: start, Fact: &events.AttemptFailed{Kind: events.Do, Step: "s", Attempt: 1, Error: e}}
		r := ev.Record("ns.", "s", 0, ev.Value())
		back, err := events.DecodeEvent(&r)
		if err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
		if got := back.Fact.(*events.AttemptFailed).Error; !reflect.DeepEqual(got.JSON(), e.JSON()) {
			t.Fatalf("%s is read as %s", e.JSON(), got.JSON())
		}
	})
}

// FuzzDefinitions applies any record of the definitions topic. It is either applied or rejected. Existing definitions
// stay, and a repetition changes nothing.
func FuzzDefinitions(f *testing.F) {
	base, err := (&graph{within: time.Minute, attempt: time.Second, retry: drawRetry(newDice(1)), onError: events.OnErrorUndo, steps: drawGraph(newDice(1), false).steps}).build(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("w/1", base.JSON())
	f.Add("w/2", base.JSON())
	f.Add("format", []byte(`{"version":1}`))
	f.Add("v/1", bytes.Replace(base.JSON(), []byte(`"workflow":"w"`), []byte(`"workflow":"v"`), 1))
	f.Add("w/1", bytes.Replace(base.JSON(), []byte(`"on_error":"undo"`), []byte(`"on_error":"hold"`), 1))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		told := 0
		c := &CompiledDefinitions{Rejected: func(string, error) { told++ }}
		c.Apply(&events.Record{Key: []byte(base.Key()), Value: base.JSON()})
		was, _ := c.Program(base.Name, base.Version)
		r := events.Record{Key: []byte(key), Value: value}
		c.Apply(&r)
		n := len(c.definitions)
		if of, kept, _ := events.ParseDefinitionKey(key); !kept || of != base.Key() {
			if now, _ := c.Program(base.Name, base.Version); now != was {
				t.Fatalf("%q under %q has changed %s", value, key, base.Key())
			}
		}
		if told > 1 || told == 1 && n != 1 {
			t.Fatalf("%q under %q was told of %d times; definitions: %d", value, key, told, n)
		}
		if d := c.definitions[key]; d != nil && n > 1 {
			p, _ := c.Applied(d.def.Name, 0)
			if one, _ := c.Applied(d.def.Name, d.def.Version); one != p || d.def.Key() != key || (p == nil) != d.invalid {
				t.Fatalf("%s under %q can't be found", d.def.Key(), key)
			}
		}
		if c.Apply(&r); len(c.definitions) != n {
			t.Fatalf("%q under %q, again, is taken for another", value, key)
		}
	})
}
