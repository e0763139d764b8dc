package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// fromKgo appends rs to dst as the roles see them. Keys, values and header
// values are shared, not copied. The headers of the whole batch lie in one
// allocation (per-record slices cost an allocation each on the hottest path),
// so holding one record's headers holds the batch's.
func fromKgo(rs []*kgo.Record, dst []events.Record) []events.Record {
	n := 0
	for _, r := range rs {
		n += len(r.Headers)
	}
	slab := make([]events.Header, 0, n)
	for _, r := range rs {
		first := len(slab)
		for _, h := range r.Headers {
			slab = append(slab, events.Header(h))
		}
		dst = append(dst, events.Record{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp,
			Key: r.Key, Value: r.Value,
			// The capacity ends here too: an append must not run into the
			// next record's headers.
			Headers: slab[first:len(slab):len(slab)],
		})
	}
	return dst
}

// toKgo is the record to produce for r. Offset and Time are the broker's to
// give, so they are not carried over; a negative Partition is, and must be
// settled by whoever produces (see Producer).
func toKgo(r *events.Record) *kgo.Record {
	out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	if len(r.Headers) > 0 {
		out.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			out.Headers[i] = kgo.RecordHeader(h)
		}
	}
	return out
}
