package logreader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// readAtBytes bounds a fetch of ReadAt. The offsets are close together or far apart: four times as much took twice as
// long, and a quarter was no faster (BenchmarkReadAt).
const readAtBytes = 64 << 10

// readAtTimeout is how long ReadAt waits without progress, because a caller waits for it. A controlled shutdown of a
// leader elects its successor within that time.
const readAtTimeout = 5 * time.Second

// ReadAt returns the committed records at some offsets of a partition, in order. Offsets without one are left out: of
// markers, of records that were rolled back or aren't committed yet, and past the end. An offset below the log's start
// is an *OffsetRangeError. Without progress for 5 s the error is an *UnavailableError.
//
// corrupt receives corrupt batches, whose records are left out; nil: they are an error, a *CorruptError.
func (r *Restorer) ReadAt(ctx context.Context, topic string, p int32, offsets []int64, corrupt func(*CorruptError)) ([]events.Record, error) {
	within, giveUp := context.WithCancel(ctx)
	defer giveUp()
	silent := time.AfterFunc(readAtTimeout, giveUp)
	defer silent.Stop()
	var trouble error
	found, err := r.readAt(within, topic, p, offsets, corrupt, func(on bool, of error) {
		if trouble = of; on {
			silent.Reset(readAtTimeout)
		}
	})
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, &UnavailableError{Topic: topic, Partitions: []int32{p}, Err: cmp.Or(trouble, err)}
	}
	return found, err
}

// readAt is ReadAt without a time limit. After each fetch it calls went with whether the read advanced, and with the
// fetch's error.
func (r *Restorer) readAt(ctx context.Context, topic string, p int32, offsets []int64, corrupt func(*CorruptError), went func(on bool, trouble error)) ([]events.Record, error) {
	offsets = slices.Clone(offsets)
	slices.Sort(offsets)
	rd := newReader(r.client, topic, p, 0, false)
	rd.bytesMax, rd.strict, rd.tell = readAtBytes, true, corrupt
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
				return found, err // the committed records end here, so the remaining offsets have none
			}
			continue
		}
		offsets = slices.DeleteFunc(offsets, func(o int64) bool { return o < rd.position() })
	}
	return found, nil
}

// atCommittedEnd reports whether the reader is at or past the last stable offset. A fetch doesn't show it: a broker
// that has just become leader may return a lower one. ListOffsets then returns an error (KIP-207).
func (s *partitionScan) atCommittedEnd(ctx context.Context) (bool, error) {
	stable, err := listOffset(ctx, s.r.admin.ListCommittedOffsets, s.reader.at.Topic, s.reader.at.Partition)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && kafka.IsFinal(err):
		return false, fmt.Errorf("stable offset of topic %s partition %d: %w", s.reader.at.Topic, s.reader.at.Partition, err)
	}
	return err == nil && s.reader.position() >= stable, nil
}

// Bounds returns the bounds of a partition's log, [start, end). All records below stable are committed or rolled back.
func (r *Restorer) Bounds(ctx context.Context, topic string, p int32) (start, stable, end int64, err error) {
	if start, end, err = r.bounds(ctx, topic, p); err != nil {
		return 0, 0, 0, err
	}
	if stable, err = listOffset(ctx, r.admin.ListCommittedOffsets, topic, p); err != nil {
		return 0, 0, 0, fmt.Errorf("stable offset of topic %s partition %d: %w", topic, p, err)
	}
	return start, stable, end, nil
}

// Committed returns which offsets have a committed record. An offset below the log's start counts as one that had. All
// offsets below stable are decided: committed or rolled back.
func (r *Restorer) Committed(ctx context.Context, topic string, p int32, offsets []int64) (has map[int64]bool, stable int64, err error) {
	start, stable, end, err := r.Bounds(ctx, topic, p)
	if err != nil {
		return nil, 0, err
	}
	has = map[int64]bool{}
	var seek []int64
	for _, offset := range offsets {
		switch {
		case offset < start:
			has[offset] = true
		case offset < stable:
			seek = append(seek, offset)
		}
	}
	if stable == end { // no transaction is open: offsets above don't exist
		stable = maxOffset
	}
	if len(seek) == 0 {
		return has, stable, nil
	}
	records, err := r.ReadAt(ctx, topic, p, seek, func(d *CorruptError) {
		for _, offset := range seek {
			has[offset] = has[offset] || offset >= d.Offset && offset < d.Next
		}
	})
	for i := range records {
		has[records[i].Offset] = true
	}
	return has, stable, err
}

// maxOffset is greater than the end of every log.
const maxOffset = 1<<63 - 1
