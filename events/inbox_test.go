package events

import (
	"errors"
	"strings"
	"testing"
)

// controlRecord is a control's record with a value of one's own.
func controlRecord(id, value string) Record {
	return Record{Value: []byte(value), Headers: []Header{{HeaderType, []byte(TypeControl)}, {HeaderID, []byte(id)}}}
}

// TestInboxRefuses: what can't be used is refused with its reason. Names are
// bounded: they are repeated, quoted, in what is written, and a record past
// Kafka's bound would stop its partition for ever.
func TestInboxRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxNameBytes+1)
	reply := func(request, outcome string) Record {
		return Record{Value: []byte(`{}`), Headers: []Header{{HeaderRequest, []byte(request)}, {HeaderOutcome, []byte(outcome)}}}
	}
	typed := func(typ, value string) Record {
		return Record{Value: []byte(value), Headers: []Header{{HeaderType, []byte(typ)}, {HeaderID, []byte("1")}}}
	}
	labels := strings.TrimSuffix(strings.Repeat(`"k":"v",`, 1), ",")
	for i := range MaxLabels {
		labels += `,"k` + strings.Repeat("i", i) + `":"v","l` + strings.Repeat("i", i) + `":"v"`
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
		{"a reply to no request", Replies, reply("a/b/c/1", "completed"), ReasonBadHeader},
		{"a reply to attempt 0", Replies, reply("a/b/do/0", "completed"), ReasonBadHeader},
		{"a reply to a task without id", Replies, reply("/b/do/1", "completed"), ReasonBadHeader},
		{"a reply without outcome", Replies, reply("a/b/do/1", ""), ReasonMissingHeader},
		{"a reply of unknown outcome", Replies, reply("a/b/do/1", "done"), ReasonBadHeader},
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
		{"a long step", Controls, controlRecord("1", `{"task":"a","command":"resubmit","step":"`+long+`"}`), ReasonBadField},
		{"a long why", Controls, controlRecord("1", `{"task":"a","command":"cancel","why":"`+strings.Repeat("x", MaxWhyBytes+1)+`"}`), ReasonBadField},
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

// structuredRecord is a submission in structured mode.
func structuredRecord(members string) Record {
	return Record{Value: []byte(`{"specversion":"1.0","type":"` + TypeSubmission + `","source":"s","id":"1",` + members + `}`),
		Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}}}
}

// A member that a submission doesn't have is named. Those of the writer's own are taken, as is data
// in base64.
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

// A reply_to may not be a topic of the namespace, nor one of Kafka's own.
func TestReplyToIsAnApplications(t *testing.T) {
	ns := Namespace(DefaultNamespace)
	for topic, ok := range map[string]bool{"": true, "shop.replies": true, "_shop": true, "__consumer_offsets": false, "__transaction_state": false, ns.Events(): false, "a b": false} {
		if u := ns.CheckReplyTo(topic); (u == nil) != ok {
			t.Errorf("%q: %v", topic, u)
		}
	}
}

// TestTraceparent is passed on as it came if it can be one, else left out: it is
// no reason to refuse an order, and a text that JSON can't hold would differ in
// a replay.
func TestTraceparent(t *testing.T) {
	for in, want := range map[string]string{sampleTrace: sampleTrace, "\xff": "", "a\nb": "", strings.Repeat("0", MaxTraceparentBytes+1): ""} {
		r := Record{Value: []byte(`{"id":"a","workflow":"w"}`), Headers: []Header{{HeaderTraceparent, []byte(in)}}}
		_, got, err := DecodeInput(Tasks, &r)
		if err != nil || got.(*Submission).Traceparent != want {
			t.Errorf("traceparent %q is read as %+v, %v; want %q", in, got, err, want)
		}
	}
}

// TestDigest: the digest is of what a submission says, not of how it is written.
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

// TestBodyIsTrimmed: a reply's body is the value without the white space around
// it, so the live state holds what a replay reads.
func TestBodyIsTrimmed(t *testing.T) {
	r := Record{Value: []byte(" {\"a\":1}\r\n"), Headers: []Header{{HeaderRequest, []byte("a/s/do/1")}, {HeaderOutcome, []byte("completed")}}}
	_, in, err := DecodeInput(Replies, &r)
	if err != nil || string(in.(*Reply).Body) != `{"a":1}` {
		t.Errorf("%+v, %v", in, err)
	}
}
