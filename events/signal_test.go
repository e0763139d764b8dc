package events

import (
	"strings"
	"testing"
)

// TestSignalID checks which id a signal has: its own, else the CloudEvent's, else the position where it was written
// first, which a forwarded copy names.
func TestSignalID(t *testing.T) {
	const bare = `{"task":"order-7","name":"approved"}`
	own := strings.TrimSuffix(bare, "}") + `,"id":"click-1"}`
	structured := []Header{{HeaderContentType, []byte("application/cloudevents+json")}}
	event := func(data string) string {
		return `{"specversion":"1.0","type":"` + TypeSignal + `","id":"e-7","data":` + data + `}`
	}
	for _, tc := range []struct {
		value   string
		headers []Header
		want    string
	}{
		{own, []Header{{HeaderID, []byte("e-7")}}, "click-1"},
		{event(own), structured, "click-1"},
		{bare, []Header{{HeaderID, []byte("e-7")}}, "e-7"},
		{event(bare), structured, "e-7"},
		{bare, nil, "signals/3/1742"},
		{bare, []Header{{HeaderHop, []byte("5/12")}}, "signals/5/12"},
	} {
		r := Record{Partition: 3, Offset: 1742, Value: []byte(tc.value), Headers: tc.headers}
		task, in, err := DecodeInput(Signals, &r)
		if s, ok := in.(*Signal); err != nil || task != "order-7" || !ok || s.ID != tc.want {
			t.Errorf("%s %s: of task %q, %+v, %v; want the id %q", tc.headers, tc.value, task, in, err, tc.want)
		}
	}
}

// TestRedrivenSignal checks that a dead letter of a signal without an id counts once, however often it is redriven.
func TestRedrivenSignal(t *testing.T) {
	ns := Namespace("waybill.")
	lost := Record{Topic: ns.Inbox(Signals), Partition: 3, Offset: 7, Key: []byte("order-7"), Value: []byte(`{"task":"order-7","name":"approved"}`)}
	letter := Deadletter(ns, "s", &lost, unusable(ReasonUnknownTask, "no task"))
	letter.Partition, letter.Offset = 1, 5
	ids := map[string]bool{}
	for offset := range int64(2) {
		again, err := Redrive(ns, "cli", &letter)
		if err != nil {
			t.Fatal(err)
		}
		again.Partition, again.Offset = 3, 20+offset
		_, in, err := DecodeInput(Signals, &again)
		if err != nil {
			t.Fatal(err)
		}
		ids[in.(*Signal).ID] = true
	}
	if !ids["redrive/1/5"] || len(ids) != 1 {
		t.Errorf("the signals have the ids %v", ids)
	}
}
