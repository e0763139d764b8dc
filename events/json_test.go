package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// jsonSeeds are the seeds of the fuzzers.
var jsonSeeds = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":1,"a":2}`, `{"\u0061":1,"a":2}`, `{"a":{"b":[1,2,{"c":null}]},"d":"x\ny"}`,
	`{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":.5}`, `{"a":+1}`, `{"a":-0.0e-0}`,
	`{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\ud800"}`, `{"a":"\ud83d\ude00"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", `{"a":tru}`,
	`{"a":truex}`, `{"a":1}x`, `{"a":1}{}`, `[]`, `[1,]`, `nul`, `null`, ``, ` `, `"`, `{"a":1`, `{"a":"`, `[[[[]]]]`, `{"":""}`, "\ufeff{}",
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65),
	strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
}

// depth returns how deep the arrays and objects of a JSON value are nested.
func depth(data []byte) int {
	d, deepest, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			d++
			deepest = max(deepest, d)
		case c == '}' || c == ']':
			d--
		}
	}
	return deepest
}

// repeats reports whether two members of a JSON value have one name: at the top, and anywhere.
func repeats(t *testing.T, data []byte) (top, anywhere bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	var value func(depth int)
	token := func() json.Token {
		tok, err := d.Token()
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		return tok
	}
	value = func(depth int) {
		open := token()
		if open != json.Delim('{') && open != json.Delim('[') {
			return
		}
		for names := map[string]bool{}; d.More(); value(depth + 1) {
			if open == json.Delim('{') {
				name := token().(string)
				anywhere = anywhere || names[name]
				top = top || names[name] && depth == 0
				names[name] = true
			}
		}
		token()
	}
	value(0)
	return top, anywhere
}

// halves reports whether a JSON text has half of a surrogate pair.
func halves(data []byte) bool {
	var units []uint16
	half := func() bool {
		decoded := utf16.Decode(units)
		lost := slices.Index(decoded, utf8.RuneError) >= 0 && !slices.Contains(units, utf8.RuneError)
		units = nil
		return lost
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' || data[i+1] != 'u' {
			if half() {
				return true
			}
			if data[i] == '\\' {
				i++
			}
			continue
		}
		u, err := strconv.ParseUint(string(data[i+2:i+6]), 16, 16)
		if err != nil {
			return false
		}
		if units = append(units, uint16(u)); u == utf8.RuneError {
			units[len(units)-1] = 'x'
		}
		i += 5
	}
	return half()
}

// FuzzScanObject checks the scanner against the standard library. It accepts exactly JSON in UTF-8, within its bounds
// and without duplicate names, and reads the same members.
func FuzzScanObject(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		std := json.Valid(data) && utf8.Valid(data)
		var repeated, deepRepeated bool
		if std {
			repeated, deepRepeated = repeats(t, data)
			std = !halves(data)
		}
		if got, want := ValidJSON(data), std && depth(data) <= MaxJSONDepth && !deepRepeated; got != want {
			t.Fatalf("ValidJSON is %v for depth %d, the standard library says %v: %q", got, depth(data), std, data)
		}
		var o object
		err := o.scan(data, 0)
		var members map[string]json.RawMessage
		isObject := std && !repeated && json.Unmarshal(data, &members) == nil && members != nil && depth(data) <= jsonscan.MaxDepth
		if isObject && len(members) > maxJSONFields {
			return
		}
		if (err == nil) != isObject {
			t.Fatalf("scan: %v; the standard library reads %v: %q", err, members, data)
		}
		if err != nil {
			return
		}
		if len(o.members) != len(members) {
			t.Fatalf("%d members, the standard library reads %d: %q", len(o.members), len(members), data)
		}
		for i := range o.members {
			if want, ok := members[string(o.name(i))]; !ok || !bytes.Equal(want, o.value(i)) {
				t.Fatalf("member %q is %q, the standard library reads %q", o.name(i), o.value(i), want)
			}
		}
	})
}

// FuzzScanArray checks that the elements are those that the standard library reads.
func FuzzScanArray(f *testing.F) {
	for _, s := range append(jsonSeeds, `[1,"a",null,[2],{"b":3}]`, `[ ]`, `[1 2]`, `[1,,2]`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) || depth(data) > jsonscan.MaxDepth {
			t.Skip("the caller has scanned it: it is UTF-8 and not too deep")
		}
		var got [][]byte
		err := scanArray(data, func(el []byte) error { got = append(got, el); return nil })
		var want []json.RawMessage
		std := json.Unmarshal(data, &want) == nil && want != nil
		if (err == nil) != std || std && len(got) != len(want) {
			t.Fatalf("%v, %q; the standard library reads %q of %q", err, got, want, data)
		}
		for i := range want {
			if std && !bytes.Equal(got[i], want[i]) {
				t.Fatalf("element %d is %q, want %q", i, got[i], want[i])
			}
		}
	})
}

// FuzzString checks that a text is written as JSON which the standard library and the codec read as the same text, with
// the shortest escapes.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\/", "\b\f\n\r\t\x00\x1f\x7f", "é😀", "\xff\xfe", "\u2028<>&", "a\xc3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := jsonscan.AppendString([]byte("x"), s)[1:]
		want := strings.ToValidUTF8(s, "\ufffd")
		if !utf8.ValidString(s) { // one U+FFFD for each bad byte, as in the standard library
			want = string([]rune(s))
		}
		var std string
		if err := json.Unmarshal(quoted, &std); err != nil || std != want {
			t.Fatalf("%q is written %s, which the standard library reads as %q (%v)", s, quoted, std, err)
		}
		end, err := jsonscan.SkipString(quoted, 0)
		if err != nil || end != len(quoted) {
			t.Fatalf("%s: ends at %d of %d, %v", quoted, end, len(quoted), err)
		}
		if own := jsonscan.Unquote(quoted); own != want {
			t.Fatalf("%s is read as %q", quoted, own)
		}
	})
}

// TestQuotedIsShort checks that reading and writing a text doesn't make it longer. Otherwise a record within its bound
// could exceed it later.
func TestQuotedIsShort(t *testing.T) {
	for _, in := range []string{`"\b\f\n\r\t"`, `"\"\\\/"`, "\"\x7f\"", `"é"`, "\"\u2028<>&\"", `"\u0000\u001f"`, `"\ud83d\ude00"`} {
		if out := jsonscan.AppendString(nil, jsonscan.Unquote([]byte(in))); len(out) > len(in) {
			t.Errorf("%s (%d bytes) is written as %s (%d bytes)", in, len(in), out, len(out))
		}
	}
}

// TestDeepestInput checks that the deepest JSON that an inbox accepts can be read from an event, and from the stored
// form of a task.
func TestDeepestInput(t *testing.T) {
	deepest := json.RawMessage(strings.Repeat("[", MaxJSONDepth) + strings.Repeat("]", MaxJSONDepth))
	if !ValidJSON(deepest) {
		t.Fatal("the bound itself is refused")
	}
	task := after(t, &TaskStarted{}, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1, Input: deepest},
		&AttemptCompleted{Kind: Do, Step: "s0", Attempt: 1, Output: deepest}, &TaskUndoing{Ending: StateUndone},
		&AttemptStarted{Kind: Undo, Step: "s0", Attempt: 1, Input: deepest},
		&AttemptRejected{Kind: Undo, Step: "s0", Attempt: 1, Error: &Error{Code: "no", Details: deepest}})
	if _, err := DecodeTask(task.Encode()); err != nil {
		t.Errorf("stored form: %v", err)
	}
	note := (&Notification{Task: "t", Status: string(StateProcessed), Output: deepest, Error: &Error{Code: "x", Details: deepest}}).Record("ns.", "s", "to", "1")
	if _, err := DecodeNotification(&note); err != nil {
		t.Errorf("notification: %v", err)
	}
	for _, f := range []Fact{&AttemptCompleted{Kind: Do, Step: "s0", Attempt: 1, Output: deepest},
		&AttemptFailed{Kind: Do, Step: "s0", Attempt: 1, Error: &Error{Code: "x", Details: deepest}}} {
		e := &Event{Task: "t", Seq: 2, At: epochStart, Fact: f}
		r := e.Record("ns.", "s", 0, e.Value())
		if _, err := DecodeEvent(&r); err != nil {
			t.Errorf("%s: %v", f.Type(), err)
		}
	}
}

// TestDeepInputRefused checks that an inbox refuses JSON deeper than the bound, at any level of the record.
func TestDeepInputRefused(t *testing.T) {
	deep := strings.Repeat("[", MaxJSONDepth+1) + strings.Repeat("]", MaxJSONDepth+1)
	for name, in := range map[string]struct {
		inbox Inbox
		r     Record
	}{
		"submission": {Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","input":` + deep + `}`)}},
		"structured": {Tasks, Record{Value: []byte(`{"type":"` + TypeSubmission + `","data":{"id":"a","workflow":"w","input":` + deep + `}}`),
			Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}}}},
		"reply": {Replies, Record{Value: []byte(deep), Headers: []Header{{HeaderRequest, []byte("a/s/do/1")}, {HeaderOutcome, []byte("completed")}}}},
		"control": {Controls, Record{Value: []byte(`{"task":"a","command":"release","step":"s","as":"completed","output":` + deep + `}`),
			Headers: []Header{{HeaderType, []byte(TypeControl)}, {HeaderID, []byte("1")}}}},
	} {
		_, _, err := DecodeInput(in.inbox, &in.r)
		var u *Unusable
		if !errors.As(err, &u) || u.Reason != ReasonBadJSON {
			t.Errorf("%s: %v; want %s", name, err, ReasonBadJSON)
		}
	}
}

// TestInstantsOfTheCalendar checks that instants which RFC 3339 can't write in UTC are refused when read. Otherwise an
// event with such an instant would be unreadable.
func TestInstantsOfTheCalendar(t *testing.T) {
	for _, by := range []string{"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00"} {
		r := Record{Value: []byte(`{"id":"a","workflow":"w","complete_by":"` + by + `"}`)}
		_, in, err := DecodeInput(Tasks, &r)
		var u *Unusable
		if !errors.As(err, &u) || u.Reason != ReasonBadField {
			t.Errorf("complete_by %s: %v, %v; want %s", by, in, err, ReasonBadField)
		}
	}
	r := Record{Value: []byte(`{"id":"a","workflow":"w","complete_by":"2026-03-01T13:00:00.1239+01:00"}`)}
	_, in, err := DecodeInput(Tasks, &r)
	if err != nil || !in.(*Submission).CompleteBy.Equal(time.Date(2026, 3, 1, 12, 0, 0, 123_000_000, time.UTC)) {
		t.Errorf("%v, %v", in, err)
	}
}

// FuzzDecodeEvent checks that no record of the events topic makes a reader panic, and that a decoded event can be
// encoded and decoded again.
func FuzzDecodeEvent(f *testing.F) {
	for _, s := range samples() {
		if s.event != nil {
			f.Add(s.event.Fact.Type(), s.event.ID(3), s.record.Key, s.record.Value)
		}
	}
	f.Add("waybill.task.received.v2", "a/1", []byte("a"), []byte("{}"))
	f.Fuzz(func(t *testing.T, ceType, id string, key, value []byte) {
		r := Record{Key: key, Value: value, Headers: CloudHeaders(ceType, "s", id)}
		line, lineErr := TimelineLine(&r)
		e, err := DecodeEvent(&r)
		if err != nil {
			return
		}
		if used, err := readAfterAll(t).Decode(&r); err != nil || !reflect.DeepEqual(used, e) {
			t.Fatalf("read into used memory %+v %+v (%v), want %+v %+v", used, used.Fact, err, e, e.Fact)
		}
		if lineErr == nil && line.Seq != e.Seq {
			t.Fatalf("a timeline shows seq %d, the event has %d", line.Seq, e.Seq)
		}
		again := e.Record("ns.", "s", 0, e.Value())
		back, err := DecodeEvent(&again)
		if err != nil {
			t.Fatalf("%v\nread    %s\nwritten %s", err, value, again.Value)
		}
		if e.Task != "" && !reflect.DeepEqual(back, e) {
			t.Fatalf("read    %+v %+v\nwritten %+v %+v", e, e.Fact, back, back.Fact)
		}
		if task, err := Evolve(nil, e, "h"); err == nil {
			if _, err := DecodeTask(task.Encode()); err != nil {
				t.Fatalf("stored form: %v\n%s", err, task.Encode())
			}
		}
	})
}

// FuzzDecodeInput checks that any record of an inbox is an input, or an *Unusable with a reason in Reasons. An input
// can be encoded and decoded again.
func FuzzDecodeInput(f *testing.F) {
	for _, s := range samples() {
		if s.inbox < Inboxes {
			h := func(name string) string { v, _ := s.record.Header(name); return v }
			f.Add(uint8(s.inbox), h(HeaderType), h(HeaderContentType), h(HeaderID), h(HeaderRequest), h(HeaderOutcome), s.record.Value)
		}
	}
	f.Fuzz(func(t *testing.T, inbox uint8, ceType, contentType, id, request, outcome string, value []byte) {
		in := Inbox(inbox % uint8(Inboxes))
		r := Record{Value: value}
		for _, h := range []Header{{HeaderType, []byte(ceType)}, {HeaderContentType, []byte(contentType)}, {HeaderID, []byte(id)},
			{HeaderRequest, []byte(request)}, {HeaderOutcome, []byte(outcome)}} {
			if len(h.Value) > 0 {
				r.Headers = append(r.Headers, h)
			}
		}
		task, got, err := DecodeInput(in, &r)
		if err != nil {
			var u *Unusable
			if !errors.As(err, &u) || !reasonListed(u.Reason) {
				t.Fatalf("%v is no *Unusable with a reason of Reasons", err)
			}
			dl := Deadletter("ns.", "s", &r, u)
			if len(dl.Value) > MaxDeadletterBytes || len(dl.Headers) > 11 {
				t.Fatalf("dead letter of %d bytes with %d headers", len(dl.Value), len(dl.Headers))
			}
			return
		}
		if x, ok := got.(*Recovery); ok && x.Action == ActionForget {
			if task != "" || x.Step != "" || x.Timer != 0 {
				t.Fatalf("it asks to forget ids, and names task %q, timer %d, step %q", task, x.Timer, x.Step)
			}
			return
		}
		if CheckTaskID(task) != nil {
			t.Fatalf("took the task id %q", task)
		}
		var again Record
		switch x := got.(type) {
		case *Submission:
			again = x.Record("ns.", "s")
			if d := x.Digest(); d == "" {
				t.Fatal("no digest")
			}
		case *Reply:
			again = x.Record("ns.", x.Source)
		case *Recovery:
			again = x.Record("ns.", "s", 0)
		case *Control:
			again = x.Record("ns.", "s")
			x.ID = x.RequestID // a control's record names its request
		case *Signal:
			again = x.Record("ns.", "s")
		case *Withdrawal:
			again = x.Record("ns.", "s")
		}
		borrowed := again
		borrowed.Value = bytes.Clone(again.Value)
		task2, back, err := DecodeInput(in, &borrowed)
		clear(borrowed.Value)
		if err != nil || task2 != task || !reflect.DeepEqual(back, got) {
			t.Fatalf("read    %+v\nwritten %s\nread    %+v, %v", got, again.Value, back, err)
		}
	})
}

func reasonListed(r Reason) bool {
	for _, known := range Reasons {
		if r == known {
			return true
		}
	}
	return false
}

// FuzzDecodeRequest checks that no record of a request topic makes an agent panic.
func FuzzDecodeRequest(f *testing.F) {
	f.Add("order-7/charge/do/1", "charge", "key", "2026-03-01T12:00:10.000Z", []byte(`{"amount":12}`))
	f.Add("a/b/c/d", "", "", "x", []byte(""))
	f.Fuzz(func(t *testing.T, request, operation, key, by string, value []byte) {
		r := Record{Value: value, Headers: []Header{{HeaderRequest, []byte(request)}, {HeaderOperation, []byte(operation)},
			{HeaderIdempotencyKey, []byte(key)}, {HeaderCompleteBy, []byte(by)}}}
		q, err := DecodeRequest(&r)
		if err != nil {
			return
		}
		again := q.Record("ns.", "s", "payments", 0)
		back, err := DecodeRequest(&again)
		if err != nil || back.Task != q.Task || back.Ref != q.Ref || !back.CompleteBy.Equal(Millis(q.CompleteBy)) {
			t.Fatalf("%+v is read again as %+v, %v", q, back, err)
		}
	})
}

// FuzzDecodeStored checks that corrupt stored forms give errors and never a panic.
func FuzzDecodeStored(f *testing.F) {
	f.Add((&Task{ID: "t", Plan: onePlan(), Steps: newSteps(1)}).Encode())
	f.Add((&Timers{Task: "t", Armed: []Armed{{Slot: Slot{"s0", Do}, Timer: Timer{3, epochStart}}}}).Encode())
	f.Add((&PartitionState{Epoch: 3, Owner: "a", Reflected: [Inboxes]int64{1, 2, 3, 4}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if task, err := DecodeTask(data); err == nil {
			task.View("owner", 3, 17)
			if _, err := DecodeTask(task.Encode()); err != nil {
				t.Fatalf("%v\n%s", err, task.Encode())
			}
		}
		if tm, err := DecodeTimers(data); err == nil {
			if back, err := DecodeTimers(tm.Encode()); err != nil || !bytes.Equal(back.Encode(), tm.Encode()) {
				t.Fatalf("%v\n%s", err, tm.Encode())
			}
		}
		if p, err := DecodePartitionState(data); err == nil {
			if back, err := DecodePartitionState(p.Encode()); err != nil || *back != *p {
				t.Fatalf("%v\n%s", err, p.Encode())
			}
		}
	})
}

// readAfterAll returns a reader that has read an event of every type, so that stale values would be found.
func readAfterAll(t *testing.T) *EventReader {
	var d EventReader
	for _, s := range eventSamples() {
		if got, err := d.Decode(&s.record); err != nil || !reflect.DeepEqual(got, s.event) {
			t.Fatalf("%s: %+v (%v), want %+v", s.name, got, err, s.event)
		}
	}
	return &d
}

// TestUndoValueOfManyMembers checks that the result of undo.input may have any number of members.
func TestUndoValueOfManyMembers(t *testing.T) {
	var extra strings.Builder
	extra.WriteString(`{"undo_of":"forged","\u0061":"\/"`)
	for i := range 5000 {
		fmt.Fprintf(&extra, `,"m%d": %d`, i, i)
	}
	extra.WriteString(" }")
	value, err := UndoValue(UndoOf{IdempotencyKey: "k", Outcome: "unknown"}, json.RawMessage(extra.String()))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(value, &got); err != nil || !ValidJSON(value) || len(got) != 5002 || string(got["undo_of"]) != `{"idempotency_key":"k","outcome":"unknown"}` ||
		string(got["m4999"]) != "4999" || string(got["a"]) != `"\/"` {
		t.Errorf("%d members, %v: %.200s", len(got), err, value)
	}
	for in, want := range map[string]string{`{}`: `{"undo_of":{"idempotency_key":"k"}}`, ` { "a" : 1 } `: `{"undo_of":{"idempotency_key":"k"},"a" : 1}`, ``: `{"undo_of":{"idempotency_key":"k"}}`} {
		if got, err := UndoValue(UndoOf{IdempotencyKey: "k"}, json.RawMessage(in)); err != nil || string(got) != want {
			t.Errorf("%s gives %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{`[]`, `1`, `{"a":1`, `{"a":1,"a":2}`, `null`} {
		if got, err := UndoValue(UndoOf{}, json.RawMessage(in)); err == nil {
			t.Errorf("%s gives %s", in, got)
		}
	}
}

// TestCheckJSONSaysWhere: an error of syntax has the position, in bytes.
func TestCheckJSONSaysWhere(t *testing.T) {
	for data, want := range map[string]string{`{"a": tru}`: "JSON: unexpected 't' at byte 6", `{"a":`: "JSON ends too early, at byte 5", `{"a":1} x`: "data after the JSON value at byte 8", "{\"é\":\"\xff\"}": "not UTF-8 at byte 7"} {
		if err := CheckJSON([]byte(data)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", data, err, want)
		}
	}
}
