package logreader_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

func TestReadAtGivesWhatIsCommittedThere(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		s.Transact(t, 0, kgo.TryCommit, "a", "b", "c") // 0 1 2, marker 3
		s.Transact(t, 0, kgo.TryAbort, "never")        // 4, marker 5
		s.Transact(t, 0, kgo.TryCommit, "d", "e")      // 6 7, marker 8
		s.awaitEnd(t, r, 0, 9)
		s.Begin(t, string(s.NS)+"scheduler.live", 0, "not yet") // 9

		for _, c := range []struct {
			offsets []int64
			want    string
		}{
			{[]int64{7, 0, 2}, "[0 a 2 c 7 e]"},
			{[]int64{3, 4, 5, 8}, "[]"},
			{[]int64{6, 9, 1000}, "[6 d]"},
			{nil, "[]"},
		} {
			records, err := r.ReadAt(t.Context(), s.NS.Events(), 0, c.offsets, nil)
			got := []string{}
			for i := range records {
				got = append(got, fmt.Sprintf("%d %s", records[i].Offset, records[i].Value))
			}
			if err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("at %v: %v, %v; want %s", c.offsets, got, err, c.want)
			}
		}

		s.Trim(t, 0, 2)
		var outside *logreader.OffsetRangeError
		if _, err := r.ReadAt(t.Context(), s.NS.Events(), 0, []int64{1, 7}, nil); !errors.As(err, &outside) || outside.Start != 2 {
			t.Errorf("below the log's start: %v", err)
		}
	})
}
