package events

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// controlRecord returns a control's record with this value.
func controlRecord(id, value string) Record {
	return Record{Value: []byte(value), Headers: []Header{{HeaderType, []byte(TypeControl)}, {HeaderID, []byte(id)}}}
}

// TestInboxRefuses checks that unusable records are refused with a reason. Names are bounded, since they are repeated
// in records that Waybill writes, and a record above Kafka's bound would stop its partition.
func TestInboxRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxNameBytes+1)
	reply := func(request, outcome string) Record {
		return Record{Value: []byte(`{}`), Headers: []Header{{HeaderRequest, []byte(request)}, {HeaderOutcome, []byte(outcome)}}}
	}
	typed := func(typ, value string) Record {
		return Record{Value: []byte(value), Headers: []Header{{HeaderType, []byte(typ)}, {HeaderID, []byte("1")}}}
	}
	labels := `"k":"v"`
	for i := range MaxLabels {
		labels += `,"k` + strings.Repeat("i", i+1) + `":"v","l` + strings.Repeat("i", i) + `":"v"`
	}
	for _, tc := range []struct {
		name  string
		inbox Inbox
		r     Record
		want  Reason
	}{
		{"no value", Tasks, Record{}, ReasonNull},
		{"too large", Recoveries, Record{Value: []byte(strings.Repeat(" ", MaxRecoveryBytes+1))}, ReasonTooLarge},
		{"no JSON", Tasks, Record{Value: []byte(`{`)}, ReasonBadJSON},
		{"an array", Tasks, Record{Value: []byte(`[]`)}, ReasonBadJSON},
		{"another type", Tasks, typed("com.shop.order", `{"id":"a","workflow":"w"}`), ReasonUnknownType},
		{"a version to come", Tasks, typed("waybill.task.submitted.v2", `{"id":"a","workflow":"w"}`), ReasonUnknownVersion},
		{"no id", Tasks, Record{Value: []byte(`{"workflow":"w"}`)}, ReasonBadField},
		{"a control character in the id", Tasks, Record{Value: []byte(`{"id":"a\n","workflow":"w"}`)}, ReasonBadField},
		{"a long id", Tasks, Record{Value: []byte(`{"id":"` + strings.Repeat("x", MaxTaskIDBytes+1) + `","workflow":"w"}`)}, ReasonBadField},
		{"no workflow", Tasks, Record{Value: []byte(`{"id":"a"}`)}, ReasonBadField},
		{"a long workflow", Tasks, Record{Value: []byte(`{"id":"a","workflow":"` + long + `"}`)}, ReasonBadField},
		{"a negative version", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","version":-1}`)}, ReasonBadField},
		{"a version of text", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","version":"1"}`)}, ReasonBadField},
		{"many labels", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","labels":{` + labels + `}}`)}, ReasonBadField},
		{"a long label", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","labels":{"k":"` + long + `"}}`)}, ReasonBadField},
		{"a label of numbers", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","labels":{"k":1}}`)}, ReasonBadField},
		{"a long reply_to", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","reply_to":"` + long + `"}`)}, ReasonBadReplyTo},
		{"a member that isn't known", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","inputs":{"x":1}}`)}, ReasonBadField},
		{"such a member with an escape", Tasks, Record{Value: []byte(`{"id":"a","workflow":"w","\u0069nputs":{"x":1}}`)}, ReasonBadField},
		{"such a member of structured data", Tasks, structuredRecord(`"data":{"id":"a","workflow":"w","Input":1}`), ReasonBadField},
		{"such a member of data_base64", Tasks, structuredRecord(`"data_base64":"eyJpZCI6ImEiLCJ3b3JrZmxvdyI6InciLCJpbnB1dHMiOjF9"`), ReasonBadField},
		{"no base64", Tasks, structuredRecord(`"data_base64":"???"`), ReasonBadField},
		{"data twice", Tasks, structuredRecord(`"data":{"id":"a","workflow":"w"},"data_base64":"eyJpZCI6ImEiLCJ3b3JrZmxvdyI6InciLCJpbnB1dCI6MX0="`), ReasonBadField},
		{"structured without data", Tasks, Record{Value: []byte(`{"type":"` + TypeSubmission + `"}`),
			Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}}}, ReasonBadJSON},
		{"a reply to nothing", Replies, Record{Value: []byte(`{}`)}, ReasonMissingHeader},
		{"a reply to no request", Replies, reply("a/b/c/1/x", "completed"), ReasonBadHeader},
		{"a reply to attempt 0", Replies, reply("a/b/do/0/x", "completed"), ReasonBadHeader},
		{"a reply to a task without id", Replies, reply("/b/do/1/x", "completed"), ReasonBadHeader},
		{"a reply without outcome", Replies, reply("a/b/do/1/x", ""), ReasonMissingHeader},
		{"a reply of unknown outcome", Replies, reply("a/b/do/1/x", "done"), ReasonBadHeader},
		{"a recovery without a timer", Recoveries, typed(TypeRecovery, `{"task":"a","action":"retry"}`), ReasonBadField},
		{"a recovery of unknown action", Recoveries, typed(TypeRecovery, `{"task":"a","timer":1,"action":"restart"}`), ReasonBadField},
		{"a recovery without a type", Recoveries, Record{Value: []byte(`{"task":"a","timer":1,"action":"hold"}`)}, ReasonUnknownType},
		{"a control without an id", Controls, controlRecord("", `{"task":"a","command":"cancel"}`), ReasonMissingHeader},
		{"a control with a long id", Controls, controlRecord(long, `{"task":"a","command":"cancel"}`), ReasonBadHeader},
		{"a control with an id in no UTF-8", Controls, controlRecord("\xff", `{"task":"a","command":"cancel"}`), ReasonBadHeader},
		{"an unknown command", Controls, controlRecord("1", `{"task":"a","command":"stop"}`), ReasonBadField},
		{"a release of nothing", Controls, controlRecord("1", `{"task":"a","command":"release"}`), ReasonBadField},
		{"a long request id", Controls, controlRecord("1", `{"task":"a","command":"cancel","request_id":"`+long+`"}`), ReasonBadField},
		{"a long who", Controls, controlRecord("1", `{"task":"a","command":"cancel","by":"`+long+`"}`), ReasonBadField},
		{"a long claimed who", Controls, controlRecord("1", `{"task":"a","command":"cancel","by_claimed":"`+long+`"}`), ReasonBadField},
		{"a long step", Controls, controlRecord("1", `{"task":"a","command":"resubmit","step":"`+long+`"}`), ReasonBadField},
		{"a long why", Controls, controlRecord("1", `{"task":"a","command":"cancel","why":"`+strings.Repeat("x", MaxWhyBytes+1)+`"}`), ReasonBadField},
		{"another type of signal", Signals, typed("com.shop.approved", `{"task":"a","name":"n"}`), ReasonUnknownType},
		{"a signal to come", Signals, typed("waybill.signal.v2", `{"task":"a","name":"n"}`), ReasonUnknownVersion},
		{"a signal without a task", Signals, Record{Value: []byte(`{"name":"n"}`)}, ReasonBadField},
		{"a signal without a name", Signals, Record{Value: []byte(`{"task":"a"}`)}, ReasonBadField},
		{"a signal with a long name", Signals, Record{Value: []byte(`{"task":"a","name":"` + long + `"}`)}, ReasonBadField},
		{"a signal with a long id", Signals, Record{Value: []byte(`{"task":"a","name":"n","id":"` + long + `"}`)}, ReasonBadField},
		{"a signal with a long ce_id", Signals, Record{Value: []byte(`{"task":"a","name":"n"}`), Headers: []Header{{HeaderID, []byte(long)}}}, ReasonBadField},
		{"a signal with a ce_id in no UTF-8", Signals, Record{Value: []byte(`{"task":"a","name":"n"}`), Headers: []Header{{HeaderID, []byte("\xff")}}}, ReasonBadField},
		{"a signal of a long who", Signals, Record{Value: []byte(`{"task":"a","name":"n","by":"` + long + `"}`)}, ReasonBadField},
		{"a signal of a long claimed who", Signals, Record{Value: []byte(`{"task":"a","name":"n","by_claimed":"` + long + `"}`)}, ReasonBadField},
		{"a signal with a control character", Signals, Record{Value: []byte(`{"task":"a","name":"n","by":"a\u0007"}`)}, ReasonBadField},
		{"a large signal", Signals, Record{Value: []byte(`{"task":"a","name":"n","data":"` + strings.Repeat("x", MaxSignalBytes) + `"}`)}, ReasonTooLarge},
		{"a member of a signal that isn't known", Signals, Record{Value: []byte(`{"task":"a","name":"n","value":1}`)}, ReasonBadField},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, in, err := DecodeInput(tc.inbox, &tc.r)
			var u *Unusable
			if !errors.As(err, &u) || u.Reason != tc.want {
				t.Errorf("got %+v, %v; want reason %s", in, err, tc.want)
			}
		})
	}
}

// structuredRecord returns a submission in structured mode.
func structuredRecord(members string) Record {
	return Record{Value: []byte(`{"specversion":"1.0","type":"` + TypeSubmission + `","source":"s","id":"1",` + members + `}`),
		Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}}}
}

// TestSubmissionMembers checks that an unknown member is refused by name. Custom members are accepted, as is data in
// base64.
func TestSubmissionMembers(t *testing.T) {
	_, _, err := DecodeInput(Tasks, &Record{Value: []byte(`{"id":"a","workflow":"w","inputs":{"x":1}}`)})
	if err == nil || !strings.Contains(err.Error(), `"inputs"`) || !strings.Contains(err.Error(), "reply_to") {
		t.Errorf("an unknown member: %v", err)
	}
	own := Record{Value: []byte(`{"id":"a","workflow":"w","input":1,"x-trace":7}`)}
	encoded := structuredRecord(`"data_base64":"eyJpZCI6ImEiLCJ3b3JrZmxvdyI6InciLCJpbnB1dCI6MX0="`)
	for _, r := range []Record{own, encoded} {
		task, in, err := DecodeInput(Tasks, &r)
		if err != nil || task != "a" || string(in.(*Submission).Input) != "1" {
			t.Errorf("%s is read as %+v, %v", r.Value, in, err)
		}
	}
}

// TestReplyToIsAnApplications checks that reply_to must not be a topic of the namespace, nor an internal topic of
// Kafka.
func TestReplyToIsAnApplications(t *testing.T) {
	ns := Namespace(DefaultNamespace)
	for topic, ok := range map[string]bool{"": true, "shop.replies": true, "_shop": true, "__consumer_offsets": false, "__transaction_state": false, ns.Events(): false, "a b": false} {
		if u := ns.CheckReplyTo(topic); (u == nil) != ok {
			t.Errorf("%q: %v", topic, u)
		}
	}
}

// TestTraceparent checks that a valid traceparent is passed on unchanged. An invalid one is omitted, since it is no
// reason to refuse a submission, and JSON may not represent it.
func TestTraceparent(t *testing.T) {
	for in, want := range map[string]string{sampleTrace: sampleTrace, "\xff": "", "a\nb": "", strings.Repeat("0", MaxTraceparentBytes+1): ""} {
		r := Record{Value: []byte(`{"id":"a","workflow":"w"}`), Headers: []Header{{HeaderTraceparent, []byte(in)}}}
		_, got, err := DecodeInput(Tasks, &r)
		if err != nil || got.(*Submission).Traceparent != want {
			t.Errorf("traceparent %q is read as %+v, %v; want %q", in, got, err, want)
		}
	}
}

// TestDigest checks that the digest depends on the content of a submission, and not on its form.
func TestDigest(t *testing.T) {
	digest := func(value string) string {
		r := Record{Value: []byte(value)}
		_, in, err := DecodeInput(Tasks, &r)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		return in.(*Submission).Digest()
	}
	const a = `{"id":"a","workflow":"w","input":{"x":1},"labels":{"k":"1","l":"2"},"complete_by":"2026-03-01T12:00:00.000Z"}`
	for _, same := range []string{
		"\n{ \"workflow\" : \"w\", \"id\":\"\\u0061\", \"labels\":{\"l\":\"2\",\"k\":\"1\"}, \"complete_by\":\"2026-03-01T13:00:00+01:00\", \"input\": { \"x\" : 1 }, \"x-new\": 1 }",
		strings.Replace(a, `"x":1`, `"\u0078":1.0`, 1),
		strings.Replace(a, "2026-03-01T12", "2026-03-01T11", 1), // computed again, for another try
		strings.Replace(a, `,"complete_by":"2026-03-01T12:00:00.000Z"`, "", 1),
	} {
		if digest(same) != digest(a) {
			t.Errorf("%s\nand %s\nhave different digests", same, a)
		}
	}
	if digest(`{"id":"a","workflow":"w","input":null}`) != digest(`{"id":"a","workflow":"w"}`) {
		t.Error("no input and the input null have different digests")
	}
	for _, other := range []string{`{"id":"a","workflow":"w"}`, strings.Replace(a, `"x":1`, `"x":2`, 1), strings.Replace(a, `"k"`, `"K"`, 1)} {
		if digest(other) == digest(a) {
			t.Errorf("%s\nand %s\nhave the same digest", other, a)
		}
	}
}

// TestBodyIsTrimmed checks that a reply's body is the value without the white space around it, so that the live state
// equals a replay.
func TestBodyIsTrimmed(t *testing.T) {
	r := Record{Value: []byte(" {\"a\":1}\r\n"), Headers: []Header{{HeaderRequest, []byte("a/s/do/1")}, {HeaderOutcome, []byte("completed")}}}
	_, in, err := DecodeInput(Replies, &r)
	if err != nil || string(in.(*Reply).Body) != `{"a":1}` {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestInstants checks that instants from outside are read by one rule, which the schemas have too.
func TestInstants(t *testing.T) {
	schema := regexp.MustCompile(instantPattern)
	for in, want := range map[string]string{
		"2026-03-01T12:00:00Z": "2026-03-01T12:00:00.000Z", "2026-03-01T12:00:00.5Z": "2026-03-01T12:00:00.500Z", "2026-03-01T12:00:00.123456789+01:30": "2026-03-01T10:30:00.123Z",
		"2024-02-29T23:59:59-23:59": "2024-03-01T23:58:59.000Z", "1970-01-01T00:00:00Z": "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z",
		"0001-01-01T00:00:00Z": "years", "0001-06-01T00:00:00.000Z": "years", "1969-12-31T23:59:59.999Z": "years", "1970-01-01T00:00:00+00:01": "years", "9999-12-31T23:59:59-00:01": "years",
		"": "RFC", " ": "RFC", "2026-03-01": "RFC", "2026-03-01T12:00:00,5Z": "RFC", "2026-03-01T12:00:00+24:00": "RFC", "2026-03-01T12:00:00+01:60": "RFC", "2026-03-01T12:00:00": "RFC",
		"2026-03-01t12:00:00z": "RFC", "2026-03-01T2:00:00Z": "RFC", "2026-03-01T24:00:00Z": "RFC", "2026-02-29T12:00:00Z": "RFC", "2026-13-01T12:00:00Z": "RFC", "2026-03-01T12:00:60Z": "RFC",
		"2026-03-01T12:00:00.Z": "RFC", "02026-03-01T12:00:00Z": "RFC", "2026-03-01 12:00:00Z": "RFC", "2026-03-01T12:00:00Z ": "RFC", "2026-03-01T12:00:00+0100": "RFC",
	} {
		value, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		s := &Submission{}
		r := Record{Value: []byte(`{"id":"a","workflow":"w","complete_by":` + string(value) + `}`)}
		_, got, err := DecodeInput(Tasks, &r)
		if err == nil {
			s = got.(*Submission)
		}
		refused := want == "RFC" || want == "years"
		if refused && (err == nil || !strings.Contains(err.Error(), want)) || !refused && (err != nil || s.CompleteBy.Format(TimeLayout) != want) {
			t.Errorf("complete_by %q is read as %s, %v; want %s", in, s.CompleteBy, err, want)
		}
		if err == nil && !schema.MatchString(in) || want == "RFC" && in != "2026-02-29T12:00:00Z" && schema.MatchString(in) {
			t.Errorf("complete_by %q: the decoder says %v, the schema %v", in, err, schema.MatchString(in))
		}
		q := Record{Headers: []Header{{HeaderRequest, []byte("a/s/do/1/" + sampleToken)}, {HeaderOperation, []byte("o")}, {HeaderIdempotencyKey, []byte("k")}, {HeaderCompleteBy, []byte(in)}}}
		if _, err := DecodeRequest(&q); (err != nil) != refused {
			t.Errorf("%s %q: %v", HeaderCompleteBy, in, err)
		}
	}
}

// TestCheckBeforeWriting checks that values which encoding would replace or omit are refused before.
func TestCheckBeforeWriting(t *testing.T) {
	good := Submission{ID: "a", Workflow: "w", Labels: map[string]string{"k": "é"}, CompleteBy: time.Unix(0, 0)}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, s := range []Submission{{ID: "g-\xff"}, {Workflow: "\xed\xa0\x80"}, {ReplyTo: "\xff"}, {Labels: map[string]string{"\xff": "v"}}, {Labels: map[string]string{"k": "\xff"}},
		{CompleteBy: time.Time{}.Add(1)}, {CompleteBy: time.Unix(-1, 0)}, {CompleteBy: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}} {
		if err := s.Check(); err == nil {
			t.Errorf("%+v: no fault", s)
		}
	}
	for _, x := range []Control{{Task: "\xff"}, {Step: "\xff"}, {By: By{Who: "\xff"}}, {By: By{Why: "\xff"}}, {By: By{RequestID: "\xff"}}} {
		if err := x.Check(); err == nil {
			t.Errorf("%+v: no fault", x)
		}
	}
}
