package logreader_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// TestReadRangeGivesWhatIsCommitted reads parts of a log. An open transaction is an error, and isn't fenced. Offsets by
// instant are those of the records' timestamps.
func TestReadRangeGivesWhatIsCommitted(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		s.Transact(t, 0, kgo.TryCommit, "a", "b", "c") // 0 1 2, marker 3
		s.Transact(t, 0, kgo.TryAbort, "never")        // 4, marker 5
		s.Transact(t, 0, kgo.TryCommit, "d", "e")      // 6 7, marker 8
		s.awaitEnd(t, r, 0, 9)
		read := func(from, to int64) (got string, err error) {
			var all []string
			err = r.ReadRange(t.Context(), s.NS.Events(), 0, from, to, func(rs []events.Record) error {
				for i := range rs {
					if rs[i].Offset < to {
						all = append(all, string(rs[i].Value))
					}
				}
				return nil
			})
			return strings.Join(all, ""), err
		}
		for _, c := range []struct {
			from, to int64
			want     string
		}{{0, 9, "abcde"}, {1, 7, "bcd"}, {3, 6, ""}, {6, 6, ""}} {
			if got, err := read(c.from, c.to); got != c.want || err != nil {
				t.Errorf("[%d, %d): %q, %v; want %q", c.from, c.to, got, err, c.want)
			}
		}
		start, after, err := r.OffsetsAt(t.Context(), s.NS.Events(), 0, time.Now().Add(-time.Hour))
		if start != 0 || after != 0 || err != nil {
			t.Errorf("an hour ago: start %d, after %d, %v", start, after, err)
		}
		if start, after, err = r.OffsetsAt(t.Context(), s.NS.Events(), 0, time.Now().Add(time.Hour)); start != 0 || after != 9 || err != nil {
			t.Errorf("in an hour: start %d, after %d, %v", start, after, err)
		}

		s.Trim(t, 0, 2)
		var outside *logreader.OffsetRangeError
		if _, err := read(1, 7); !errors.As(err, &outside) || outside.Start != 2 {
			t.Errorf("below the log's start: %v", err)
		}
		s.Begin(t, string(s.NS)+"scheduler.live", 0, "not yet") // 9
		stop := errors.New("enough")
		if err := r.ReadRange(t.Context(), s.NS.Events(), 0, 6, 10, func([]events.Record) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("an error of fn: %v", err)
		}
		if got, err := read(6, 10); got != "de" || err == nil || !strings.Contains(fmt.Sprint(err), "an open transaction holds it back") {
			t.Errorf("up to an open transaction: %q, %v", got, err)
		}
	})
}
