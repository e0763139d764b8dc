package schedulerworker

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// narrowTopic handles a record that was refused as too large. It returns a *TooLargeError if the record is too large
// itself. Otherwise it narrows the record's topic and returns nil.
func (w *Worker) narrowTopic(ctx context.Context, out []events.Record, refused *ProduceError) error {
	r := &out[refused.Index]
	known, narrow := w.narrow[r.Topic]
	if refused.alone {
		bound := known.MaxBytes
		if !narrow {
			bound = kafka.BatchBytesMax
		}
		return &kafka.TooLargeError{Topic: r.Topic, Bytes: kafka.RecordBytesMin(r), Max: bound, Err: refused.Err}
	}
	w.narrow.Narrow(r.Topic, kafka.TopicMaxMessageBytes(ctx, w.session.Client(), r.Topic), time.Now())
	return nil
}
