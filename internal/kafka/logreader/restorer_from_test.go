package logreader_test

import (
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestReadAllFromAnOffset checks reads that begin at an offset. Below the log's start, the read begins at the start;
// above its end, it returns nothing.
func TestReadAllFromAnOffset(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		for range 5 {
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 2, "a"))
		}
		r := s.restorer(t, nil)
		for from, want := range map[int64][]int64{0: {0, 1, 2, 3, 4}, 3: {3, 4}, 5: nil, 9: nil} {
			var got []int64
			reached, err := r.ReadAll(t.Context(), s.NS.Events(), logreader.Range{Partitions: []int32{2}, From: from}, func(rs []events.Record) error {
				for i := range rs {
					got = append(got, rs[i].Offset)
				}
				return nil
			}, nil)
			if err != nil || !slices.Equal(got, want) || reached[2] != max(5, from) {
				t.Errorf("from %d: %v to %d, %v; want %v", from, got, reached[2], err, want)
			}
		}
	})
}
