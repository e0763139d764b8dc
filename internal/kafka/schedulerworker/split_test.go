package schedulerworker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestWorkerSplitsWhatARequestTopicRefuses checks requests of one transaction that fit their topic one by one, but not
// as one batch. All of them are written. If one doesn't fit, the error names it, with its size and the topic's limit.
func TestWorkerSplitsWhatARequestTopicRefuses(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const most = 100_000
		topic := s.NS.Requests("narrow")
		s.CreateTopicsWith(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(most)}, topic)
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[0], 1, "a"))
		rs := poll(t, l)
		out := s.Reflect(rs)
		var want []string
		for i := range 5 {
			out = append(out, events.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: append(fmt.Appendf(nil, "%02d ", i), kafkatest.Incompressible(40_000)...)})
			want = append(want, fmt.Sprintf("%02d", i))
		}
		large := events.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: kafkatest.Incompressible(120_000)}
		const at = 3
		const tries = 10
		for try := range tries {
			committed, err := l.Commit(t.Context(), slices.Insert(slices.Clone(out), at, large))
			if err == nil && !committed { // the topic's limit is known now, or the group has rebalanced
				rs = poll(t, l)
				continue
			}
			var tooLarge interface {
				error
				TooLarge() (bytes, most int)
			}
			var refused *schedulerworker.ProduceError
			if !errors.As(err, &tooLarge) || !errors.As(err, &refused) || refused.Index != at || !refused.Permanent() {
				t.Fatalf("try %d: committed %v, %v", try, committed, err)
			}
			if bytes, bound := tooLarge.TooLarge(); bytes != 120_001 || bound != most || !strings.Contains(err.Error(), fmt.Sprint(most)) {
				t.Errorf("%d bytes, bound %d: %v", bytes, bound, err)
			}
			rs = poll(t, l)
			break
		}
		commit(t, l, len(rs), out)
		if got := s.InOrder(t, topic); !slices.Equal(got, want) {
			t.Errorf("written %q, want %q", got, want)
		}
	})
}
