package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// readAtBytes bounds a fetch of ReadAt. What is sought lies together, or far apart:
// four times as much took twice as long, a quarter no less (BenchmarkReadAt).
const readAtBytes = 64 << 10

// readAtTimeout is how long ReadAt asks brokers that give nothing: somebody waits for the answer. A
// leader that was stopped in good order has a successor before that.
const readAtTimeout = 5 * time.Second

// ReadAt returns the committed records at some offsets of a partition, in order. An
// offset at which there is none is left out: of a marker, of what was rolled back
// or isn't committed yet, or past the end. One below the log's start is an
// *OffsetRangeError. Where brokers give nothing for 5 s the error is an *UnavailableError.
//
// damaged is told of records that aren't as they were written, and that are left out; nil: they are
// an error, a *DamagedError.
func (r *Restorer) ReadAt(ctx context.Context, topic string, p int32, offsets []int64, damaged func(*DamagedError)) ([]events.Record, error) {
	within, giveUp := context.WithCancel(ctx)
	defer giveUp()
	silent := time.AfterFunc(readAtTimeout, giveUp)
	defer silent.Stop()
	var trouble error
	found, err := r.readAt(within, topic, p, offsets, damaged, func(on bool, of error) {
		if trouble = of; on {
			silent.Reset(readAtTimeout)
		}
	})
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, &UnavailableError{Topic: topic, Partitions: []int32{p}, Err: cmp.Or(trouble, err)}
	}
	return found, err
}

// readAt is ReadAt without its bound. went is told after each fetch whether it brought the read on, and what
// trouble there was.
func (r *Restorer) readAt(ctx context.Context, topic string, p int32, offsets []int64, damaged func(*DamagedError), went func(on bool, trouble error)) ([]events.Record, error) {
	offsets = slices.Clone(offsets)
	slices.Sort(offsets)
	rd := newReader(r.client, topic, p, 0)
	rd.bytesMax, rd.strict, rd.tell = readAtBytes, true, damaged
	s := r.newScan(rd, 0, nil)
	var found []events.Record
	for len(offsets) > 0 {
		rd.seek(max(rd.position(), offsets[0]))
		before := rd.position()
		records, err := rd.next(ctx)
		if err != nil {
			return found, s.rangeError(ctx, err)
		}
		went(rd.position() > before, rd.lastErr)
		for _, record := range records {
			if _, sought := slices.BinarySearch(offsets, record.Offset); sought {
				found = append(found, record)
			}
		}
		if rd.position() == before {
			if over, err := s.atCommittedEnd(ctx); over || err != nil {
				return found, err // nothing is readable there, and so nothing above
			}
			continue
		}
		offsets = slices.DeleteFunc(offsets, func(o int64) bool { return o < rd.position() })
	}
	return found, nil
}

// over reports whether the reader is where nothing is committed. A fetch doesn't tell: a
// broker that has just come to lead may know of less. Of what it lists it says that it
// doesn't know (KIP-207).
func (s *partitionScan) atCommittedEnd(ctx context.Context) (bool, error) {
	stable, err := listOffset(ctx, s.r.admin.ListCommittedOffsets, s.reader.topic, s.reader.partition)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && isFinal(err):
		return false, fmt.Errorf("stable offset of topic %s partition %d: %w", s.reader.topic, s.reader.partition, err)
	}
	return err == nil && s.reader.position() >= stable, nil
}

// Bounds is what the log of a partition has: [start, end), of which all below stable is committed or rolled back.
func (r *Restorer) Bounds(ctx context.Context, topic string, p int32) (start, stable, end int64, err error) {
	if start, end, err = r.bounds(ctx, topic, p); err != nil {
		return 0, 0, 0, err
	}
	if stable, err = listOffset(ctx, r.admin.ListCommittedOffsets, topic, p); err != nil {
		return 0, 0, 0, fmt.Errorf("stable offset of topic %s partition %d: %w", topic, p, err)
	}
	return start, stable, end, nil
}
