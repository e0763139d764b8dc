package verify

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// passBorrowed passes a borrowed record to take. Its bytes are overwritten afterwards, as by a reader that reuses its buffers.
func passBorrowed(r *events.Record, take func(*events.Record)) {
	own := *r
	own.Key, own.Value, own.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), nil
	for _, h := range r.Headers {
		own.Headers = append(own.Headers, events.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	take(&own)
	scribble(own.Key)
	scribble(own.Value)
	for _, h := range own.Headers {
		scribble(h.Value)
	}
	clear(own.Headers)
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

// The checker doesn't retain the memory of a record: the result is the same if the memory is reused.
func TestNothingOfARecordIsKept(t *testing.T) {
	inputs, log := parts(t, 2)
	h := &history{t: t, id: "held", c: New(Options{}), at: start0, part: 2}
	h.claim(1)
	heldAndResubmitted(h, "waybill.held/c/do/2")
	inputs, log = append(inputs, h.fed...), append(log, h.all...)
	for name, log := range map[string][]events.Record{"whole": log, "broken": withoutSome(log), "not read": garbled(log)} {
		for _, o := range []Options{
			{Inputs: true, LatestBy: time.Nanosecond, ReplyTolerance: time.Millisecond},
			{Since: start0.Add(time.Millisecond), LatestBy: time.Nanosecond},
		} {
			want, got := New(o), New(o)
			for i := range inputs {
				want.Input(&inputs[i])
				passBorrowed(&inputs[i], got.Input)
			}
			for i := range log {
				want.Event(&log[i])
				passBorrowed(&log[i], func(r *events.Record) { got.Event(r) })
			}
			r, w := got.Finish(start0.Add(time.Hour)), want.Finish(start0.Add(time.Hour))
			if !reflect.DeepEqual(r, w) {
				t.Errorf("%s: of borrowed records\n%s\nof others\n%s", name, r, w)
			}
			if (name != "whole") != (w.Broken > 0) && o.Inputs {
				t.Errorf("%s: %s", name, w)
			}
		}
	}
}

// withoutSome omits one of seven events.
func withoutSome(log []events.Record) (some []events.Record) {
	for i, r := range log {
		if i%7 != 4 {
			some = append(some, r)
		}
	}
	return some
}

// garbled makes one of seven events unreadable.
func garbled(log []events.Record) []events.Record {
	all := append([]events.Record(nil), log...)
	for i := range all {
		if i%7 == 4 {
			all[i].Value = all[i].Value[:len(all[i].Value)-1]
		}
	}
	return all
}
