package logreader_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestReadAllOfWhatIsTrimmedMeanwhile checks a log that is trimmed during ReadAll. With Trimmed set, the read reports
// the new start and continues there. Without it, ReadAll fails.
func TestReadAllOfWhatIsTrimmedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		cl := s.Outside(t)
		for p := range int32(testPartitions) {
			for i := range 10 {
				kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), p, fmt.Sprintf("%d.%d", p, i)))
			}
		}
		read := func(in logreader.Range, below int64) (values map[int32][]string, as map[int32]int64, err error) {
			values = map[int32][]string{}
			as, err = r.ReadAll(t.Context(), s.NS.Events(), in, func(rs []events.Record) error {
				if len(values) == 0 { // some partitions are being read, the others will be
					for p := range int32(testPartitions) {
						s.Trim(t, p, below)
					}
				}
				for _, x := range rs {
					values[x.Partition] = append(values[x.Partition], string(x.Value))
				}
				return nil
			}, nil)
			return values, as, err
		}
		told := map[int32]int64{}
		values, as, err := read(logreader.Range{Trimmed: func(p int32, start int64) { told[p] = start }}, 5)
		if err != nil {
			t.Fatal(err)
		}
		if len(told) == 0 {
			t.Error("nobody was told of what was trimmed")
		}
		for p := range int32(testPartitions) {
			first := told[p]
			if got := values[p]; first != 0 && first != 5 || as[p] != 10 || len(got) != int(10-first) || !slices.IsSorted(got) {
				t.Errorf("partition %d: told of %d, %v as of %d", p, first, got, as[p])
			}
		}
		if _, _, err := read(logreader.Range{}, 8); err == nil {
			t.Error("not an error")
		} else if gone, is := errors.AsType[*logreader.OffsetRangeError](err); !is || gone.Start != 8 || gone.Offset != 5 {
			t.Errorf("%v", err)
		}
		told = map[int32]int64{}
		if values, as, err = read(logreader.Range{Trimmed: func(p int32, start int64) { told[p] = start }}, 10); err != nil || len(told) == 0 {
			t.Errorf("told of %v, %v", told, err)
		}
		for p, start := range told {
			if start != 10 || as[p] != 10 || len(values[p]) != 0 {
				t.Errorf("partition %d, of which nothing is left: told of %d, %v as of %d", p, start, values[p], as[p])
			}
		}
	})
}
