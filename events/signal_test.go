package events

import (
	"fmt"
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

// TestRedrivenSignal checks that a dead letter of a signal keeps what the signal is identified by, however often it is redriven:
// the sender may have repeated it meanwhile.
func TestRedrivenSignal(t *testing.T) {
	ns := Namespace("waybill.")
	for _, c := range []struct {
		value, want string
		headers     []Header
	}{
		{value: `{"task":"order-7","name":"approved"}`, want: "signals/3/7"},
		{value: `{"task":"order-7","name":"approved"}`, headers: []Header{{HeaderID, []byte("c-1")}}, want: "c-1"},
		{value: `{"task":"order-7","name":"approved","id":"own"}`, headers: []Header{{HeaderID, []byte("c-1")}}, want: "own"},
		{value: `{"specversion":"1.0","type":"` + TypeSignal + `","id":"e-7","data":{"task":"order-7","name":"approved"}}`, headers: []Header{{HeaderContentType, []byte("application/cloudevents+json")}}, want: "e-7"},
	} {
		r := Record{Topic: ns.Inbox(Signals), Partition: 3, Offset: 7, Key: []byte("order-7"), Value: []byte(c.value), Headers: c.headers}
		for offset := range int64(3) { // each time it is a dead letter again
			letter := Deadletter(ns, "s", &r, unusable(ReasonUnknownTask, "no task"))
			letter.Partition, letter.Offset = 1, 5+offset
			var err error
			if r, err = Redrive(ns, "cli", &letter); err != nil {
				t.Fatal(err)
			}
			if id := string(r.header(HeaderID)); id != fmt.Sprint("redrive/1/", letter.Offset) {
				t.Errorf("%s: the redriven record has the id %q", c.value, id)
			}
			r.Partition, r.Offset = 3, 20+offset
			_, in, err := DecodeInput(Signals, &r)
			if err != nil {
				t.Fatal(err)
			}
			if id := in.(*Signal).ID; id != c.want {
				t.Errorf("%s redriven %d times: the signal has the id %q, want %q", c.value, offset+1, id, c.want)
			}
		}
	}
}
