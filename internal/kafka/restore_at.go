package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// readAtBytes bounds a fetch of ReadAt. What is sought lies together, or far apart:
// four times as much took twice as long, a quarter no less (BenchmarkReadAt).
const readAtBytes = 64 << 10

// ReadAt returns the committed records at some offsets of a partition, in order. An
// offset at which there is none is left out: of a marker, of what was rolled back
// or isn't committed yet, or past the end. One below the log's start is an
// *OffsetRangeError.
func (r *Restorer) ReadAt(ctx context.Context, topic string, p int32, offsets []int64) ([]events.Record, error) {
	offsets = slices.Clone(offsets)
	slices.Sort(offsets)
	rd := newReader(r.client, topic, p, 0)
	rd.bytesMax, rd.strict = readAtBytes, true
	s := r.scan(rd, 0, nil)
	var found []events.Record
	for len(offsets) > 0 {
		rd.position = max(rd.position, offsets[0])
		before := rd.position
		records, err := rd.next(ctx)
		if err != nil {
			return found, s.ranged(ctx, err)
		}
		for _, record := range records {
			if _, sought := slices.BinarySearch(offsets, record.Offset); sought {
				found = append(found, record)
			}
		}
		if rd.position == before {
			if over, err := s.over(ctx); over || err != nil {
				return found, err // nothing is readable there, and so nothing above
			}
			continue
		}
		offsets = slices.DeleteFunc(offsets, func(o int64) bool { return o < rd.position })
	}
	return found, nil
}

// over reports whether the reader is where nothing is committed. A fetch doesn't tell: a
// broker that has just come to lead may know of less. Of what it lists it says that it
// doesn't know (KIP-207).
func (s *scan) over(ctx context.Context) (bool, error) {
	stable, err := listed(ctx, s.r.admin.ListCommittedOffsets, s.reader.topic, s.reader.partition)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && final(err):
		return false, fmt.Errorf("stable offset of topic %s partition %d: %w", s.reader.topic, s.reader.partition, err)
	}
	return err == nil && s.reader.position >= stable, nil
}
