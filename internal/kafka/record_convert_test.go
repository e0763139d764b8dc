package kafka

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

func kgoBatch(n, headers int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{
			Topic: "t", Partition: int32(i % 3), Offset: int64(i), Timestamp: time.UnixMilli(int64(i)),
			Key: []byte(fmt.Sprint("k", i)), Value: []byte(fmt.Sprint("v", i)),
		}
		for h := range headers {
			rs[i].Headers = append(rs[i].Headers, kgo.RecordHeader{Key: fmt.Sprint("h", h), Value: []byte{byte(i), byte(h)}})
		}
	}
	return rs
}

func TestFromKgoKeepsEveryField(t *testing.T) {
	in := kgoBatch(5, 2)
	in[2].Headers, in[3].Value, in[4].Key = nil, nil, nil
	out := FromKgo(in, []events.Record{{Topic: "kept"}})
	if len(out) != 6 || out[0].Topic != "kept" {
		t.Fatalf("got %d records, first %+v", len(out), out[0])
	}
	for i, r := range in {
		o := out[i+1]
		if o.Topic != r.Topic || o.Partition != r.Partition || o.Offset != r.Offset || !o.Time.Equal(r.Timestamp) ||
			!bytes.Equal(o.Key, r.Key) || !bytes.Equal(o.Value, r.Value) || len(o.Headers) != len(r.Headers) {
			t.Errorf("record %d: got %+v of %+v", i, o, r)
		}
		for j, h := range r.Headers {
			if o.Headers[j].Key != h.Key || !bytes.Equal(o.Headers[j].Value, h.Value) {
				t.Errorf("record %d header %d: got %+v, want %+v", i, j, o.Headers[j], h)
			}
		}
	}
	if out[4].Value != nil {
		t.Error("a null value (a tombstone) came out as an empty one")
	}
	first := append(out[1].Headers, events.Header{Key: "intruder"})
	if first[2].Key != "intruder" || out[2].Headers[0].Key != "h0" {
		t.Error("appending to one record's headers overwrote the next record's")
	}
}

func TestFromKgoAllocatesOncePerBatch(t *testing.T) {
	in := kgoBatch(500, 5)
	dst := make([]events.Record, 0, len(in))
	if n := testing.AllocsPerRun(20, func() { FromKgo(in, dst) }); n > 1 {
		t.Errorf("%v allocations for a batch of %d records, want 1", n, len(in))
	}
}

func TestToKgoIsTheInverse(t *testing.T) {
	in := FromKgo(kgoBatch(1, 3), nil)[0]
	back := FromKgo([]*kgo.Record{ToKgo(&in)}, nil)[0]
	in.Offset, in.Time = 0, time.Time{}
	if fmt.Sprint(in) != fmt.Sprint(back) {
		t.Errorf("got %+v, want %+v", back, in)
	}
}
