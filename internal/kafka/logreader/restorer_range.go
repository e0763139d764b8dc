package logreader

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/events"
)

// ReadRange calls fn with the committed records of the offsets [from, to) of a partition in order, and perhaps with
// later ones. It fences no transaction: one that stays open for longer than half a second is an error.
//
// Records are valid until fn returns. An offset below the log's start is an *OffsetRangeError. An error of fn ends the
// read and is returned wrapped.
func (r *Restorer) ReadRange(ctx context.Context, topic string, p int32, from, to int64, fn func([]events.Record) error) error {
	in := newReader(r.client, topic, p, from, true)
	in.tell = r.listener.Corrupt
	held := false
	err := r.newScan(in, to, fn).run(ctx, func(context.Context) (giveUp bool) {
		held = true
		return true
	})
	if err == nil && held {
		err = fmt.Errorf("read topic %s partition %d to offset %d: an open transaction holds it back at %d", topic, p, to, in.position())
	}
	return err
}

// OffsetsAt returns the first offset of a partition, and the first one whose record has a timestamp at or after an
// instant: the end of the log if there is none.
func (r *Restorer) OffsetsAt(ctx context.Context, topic string, p int32, at time.Time) (start, after int64, err error) {
	if start, err = listOffset(ctx, r.admin.ListStartOffsets, topic, p); err != nil {
		return 0, 0, fmt.Errorf("start of topic %s partition %d: %w", topic, p, err)
	}
	after, err = listOffset(ctx, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return r.admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...)
	}, topic, p)
	if err != nil {
		return 0, 0, fmt.Errorf("offset of topic %s partition %d at %s: %w", topic, p, at, err)
	}
	return start, after, nil
}
