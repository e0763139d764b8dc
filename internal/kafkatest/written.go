package kafkatest

import (
	"bytes"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Written is a record as a log has it, for a test's own: with nothing of the writer's, who
// uses its memory again.
func Written(r *events.Record) events.Record {
	w := *r
	w.Key, w.Value, w.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range w.Headers {
		w.Headers[i].Value = bytes.Clone(w.Headers[i].Value)
	}
	return w
}
