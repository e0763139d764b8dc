package kafka

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// The two kinds of header are the same two fields, so a slice of one can be taken
// for one of the other.
var (
	_ = events.Header(kgo.RecordHeader{})
	_ = kgo.RecordHeader(events.Header{})
)

func headersFromKgo(h []kgo.RecordHeader) []events.Header {
	return unsafe.Slice((*events.Header)(unsafe.Pointer(unsafe.SliceData(h))), len(h))
}

func headersToKgo(h []events.Header) []kgo.RecordHeader {
	return unsafe.Slice((*kgo.RecordHeader)(unsafe.Pointer(unsafe.SliceData(h))), len(h))
}

// fromKgo appends rs to dst as the roles see them. Keys, values and headers are
// shared, not copied: who appends to the headers gets others, since the slice ends
// with them.
func fromKgo(rs []*kgo.Record, dst []events.Record) []events.Record {
	for _, r := range rs {
		dst = append(dst, recordOf(r))
	}
	return dst
}

func recordOf(r *kgo.Record) events.Record {
	return events.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp,
		Key: r.Key, Value: r.Value, Headers: headersFromKgo(r.Headers),
	}
}

// toKgo is the record to produce for r. Offset and Time are the broker's to
// give, so they are not carried over; a negative Partition is, and must be
// settled by whoever produces (see Producer).
func toKgo(r *events.Record) *kgo.Record {
	var out kgo.Record
	fillKgo(&out, r)
	return &out
}

// fillKgo is toKgo into room that there is already.
func fillKgo(out *kgo.Record, r *events.Record) {
	*out = kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	if len(r.Headers) > 0 {
		out.Headers = headersToKgo(r.Headers)
	}
}
