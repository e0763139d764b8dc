package kafka

import (
	"context"
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
	rd.bytesMax = readAtBytes
	s := &scan{r: r, reader: rd}
	var found []events.Record
	for empty := 0; len(offsets) > 0; {
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
		if rd.position == before && rd.trouble == nil {
			if empty++; empty < emptyFetchesMax {
				continue
			}
			break // nothing is readable there, and so nothing above
		}
		empty = 0
		offsets = slices.DeleteFunc(offsets, func(o int64) bool { return o < rd.position })
	}
	return found, nil
}
