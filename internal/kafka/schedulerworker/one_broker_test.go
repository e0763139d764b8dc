package schedulerworker_test

import (
	"fmt"
	"testing"

	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestOneBrokerIsAskedWhenPolled checks OneBroker: the next poll returns all records that were written while the worker
// was busy. A client that fetches ahead would return only the first, which it had fetched before.
func TestOneBrokerIsAskedWhenPolled(t *testing.T) {
	s := embedded(t)
	cfg := s.worker("one")
	cfg.OneBroker = true
	l := openWorker(t, cfg)
	untilAssigned(t, l, testPartitions)
	const rounds, records = 20, 8
	cl, all := s.Outside(t), 0
	for round := range rounds {
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], 0, fmt.Sprint("first of ", round)))
		poll(t, l)
		for i := range records {
			kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], int32(i), fmt.Sprint(round)))
		}
		n := len(poll(t, l))
		if n == records {
			all++ // not always: the client may have sent a fetch just when a poll ended
		}
		for n < records {
			n += len(poll(t, l))
		}
		if committed, err := l.Commit(t.Context(), nil); err != nil || !committed {
			t.Fatalf("round %d: %v, %v", round, committed, err)
		}
	}
	if all <= rounds/2 {
		t.Errorf("in %d of %d rounds a poll gave all %d records that lay there", all, rounds, records)
	}
}
