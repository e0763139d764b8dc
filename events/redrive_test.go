package events

import (
	"bytes"
	"strings"
	"testing"
)

// TestRedrive checks that a redriven dead letter comes to its original topic as it was, and that one which can't be
// redriven is refused with a reason.
func TestRedrive(t *testing.T) {
	const ns = Namespace("waybill.")
	submission := (&Submission{ID: "order-8", Workflow: "w", Input: []byte("{}"), Traceparent: "00-a-b-01"}).Record(ns, "shop")
	reply := (&Reply{Task: "order-8", Ref: RequestRef{"charge", Undo, 2}, Outcome: Failed, Effect: EffectNone, Body: []byte(`{"code":"x"}`)}).Record(ns, "agent")
	control := (&Control{Task: "order-8", Command: Cancel, By: By{Who: "ada", RequestID: "r-1"}}).Record(ns, "operator")
	told := (&Notification{Task: "order-8", Status: "processed"}).Record(ns, "scheduler", "shop.status", "order-8/9")
	structuredMode := Record{Topic: ns.Inbox(Tasks), Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}},
		Value: []byte(`{"specversion":"1.0","type":"waybill.task.submitted.v1","id":"1","source":"s","data":{"id":"order-8","workflow":"w"}}`)}
	for _, tt := range []struct {
		name     string
		original Record
		reason   Reason
		change   func(letter *Record)
		refused  string
	}{
		{"submission", submission, ReasonUnknownWorkflow, nil, ""},
		{"bare submission without a key", Record{Topic: ns.Inbox(Tasks), Value: []byte(`{"id":"order-8","workflow":"w"}`)}, ReasonUnknownWorkflow, nil, ""},
		{"submission in structured mode", structuredMode, ReasonUnknownWorkflow, nil, ""},
		{"reply", reply, ReasonUnknownTask, nil, ""},
		{"control", control, ReasonTaskStopped, nil, ""},
		{"notification", told, ReasonUndeliverable, nil, ""},
		{"recovery", Record{Topic: ns.Inbox(Recoveries), Value: []byte("{}")}, ReasonUnknownTask, nil, "a supervisor asks"},
		{"of an event", Record{Topic: ns.Events(), Value: []byte("{}")}, ReasonBadJSON, nil, "no inbox"},
		{"of another namespace", Record{Topic: "other.tasks", Value: []byte("{}")}, ReasonBadJSON, nil, "no inbox"},
		{"another submission's id", submission, ReasonIDConflict, nil, "another id"},
		{"no JSON", Record{Topic: ns.Inbox(Tasks), Value: []byte("x")}, ReasonBadJSON, nil, "again: "},
		{"another task's key", Record{Topic: ns.Inbox(Tasks), Key: []byte("order-9"), Value: []byte(`{"id":"order-8","workflow":"w"}`)}, ReasonWrongKey, nil, `its key is "order-9"`},
		{"cut", Record{Topic: ns.Inbox(Tasks), Value: bytes.Repeat([]byte(" "), MaxDeadletterBytes+1)}, ReasonTooLarge, nil, "262144 of 262145 bytes"},
		{"edited", submission, ReasonUnknownWorkflow, func(l *Record) { l.Value = bytes.Replace(l.Value, []byte("w"), []byte("v"), 1) }, "hash differs"},
		{"a reply of an older build's letter", reply, ReasonUnknownTask, withoutHeaders, "keep its headers"},
		{"a notification of an older build's letter", told, ReasonUndeliverable, withoutHeaders, "keep its headers"},
		{"a submission of an older build's letter", submission, ReasonUnknownWorkflow, withoutHeaders, ""},
	} {
		tt.original.Partition, tt.original.Offset = 3, 88
		tt.original.Headers = append(tt.original.Headers, Header{HeaderHop, []byte("4/12")})
		letter := Deadletter(ns, "scheduler", &tt.original, &Unusable{Reason: tt.reason})
		letter.Partition, letter.Offset = 5, 17
		if tt.change != nil {
			tt.change(&letter)
		}
		got, err := Redrive(ns, "operator", &letter)
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.refused)
			}
			continue
		}
		if err != nil || got.Topic != tt.original.Topic || !bytes.Equal(got.Value, tt.original.Value) || string(got.Key) != "order-8" || got.Partition >= 0 {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
			continue
		}
		if _, hop := got.Header(HeaderHop); hop {
			t.Errorf("%s: the hop of the original", tt.name)
		}
		want := "redrive/5/17"
		if got.Topic == ns.Notifications() {
			want = "order-8/9"
		}
		if id, _ := got.Header(HeaderID); id != want {
			t.Errorf("%s: ce_id %q, want %q", tt.name, id, want)
		}
		got.Partition = 2 // as the broker assigned it
		again := Deadletter(ns, "scheduler", &got, &Unusable{Reason: tt.reason})
		if p, offset, is := RedriveOf(&again); is != (want == "redrive/5/17") || is && (p != 5 || offset != 17) {
			t.Errorf("%s: met again it is one of %d/%d: %v", tt.name, p, offset, is)
		}
		if _, _, is := RedriveOf(&letter); is || NotificationOf(&again) != NotificationOf(&letter) || (NotificationOf(&letter) == "") == (want == "order-8/9") {
			t.Errorf("%s: the first is one, too, or notification %q is %q", tt.name, NotificationOf(&letter), NotificationOf(&again))
		}
		for _, name := range []string{HeaderRequest, HeaderOutcome, HeaderEffect, HeaderReplyTo, HeaderTraceparent} {
			if was, is := headerOf(&tt.original, name), headerOf(&got, name); was != is && tt.change == nil {
				t.Errorf("%s: %s is %q, was %q", tt.name, name, is, was)
			}
		}
	}
}

func withoutHeaders(l *Record) { l.Headers = l.Headers[:len(l.Headers)-1] }

func headerOf(r *Record, name string) string {
	v, _ := r.Header(name)
	return v
}

// TestDeadletterIsBounded checks that every dead letter can be written: apart from the value, its parts have at most a
// few KiB.
func TestDeadletterIsBounded(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 2_000_000)
	r := Record{Topic: "waybill.replies", Key: large, Value: large}
	for _, name := range append(keptHeaders[:], HeaderSource, HeaderHop, "x-own") {
		r.Headers = append(r.Headers, Header{name, large})
	}
	letter := Deadletter("waybill.", "scheduler", &r, &Unusable{ReasonTooLarge, string(large)})
	n := len(letter.Key)
	for _, h := range letter.Headers {
		n += len(h.Key) + len(h.Value)
	}
	if n > 8<<10 || len(letter.Value) != MaxDeadletterBytes {
		t.Errorf("the key and the headers have %d bytes, the value %d", n, len(letter.Value))
	}
}
