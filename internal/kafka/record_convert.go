package kafka

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// Both header types have the same two fields, so a slice of one can be reinterpreted as a slice of the other.
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

// FromKgo appends rs to dst. Keys, values and headers are shared, not copied. Appending to the headers copies them,
// because their capacity is their length.
func FromKgo(rs []*kgo.Record, dst []events.Record) []events.Record {
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

// ToKgo returns the record to produce for r. It leaves out Offset and Time, which the broker assigns. It keeps a
// negative Partition, which the partitioner resolves (see Producer).
func ToKgo(r *events.Record) *kgo.Record {
	var out kgo.Record
	FillKgo(&out, r)
	return &out
}

// FillKgo is ToKgo into an existing record.
func FillKgo(out *kgo.Record, r *events.Record) {
	*out = kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	if len(r.Headers) > 0 {
		out.Headers = headersToKgo(r.Headers)
	}
}
