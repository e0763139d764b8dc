package kafka_test

import (
	"fmt"
	"testing"
)

// TestOneBrokerIsAskedWhenPolled: what came while a worker was at work comes with its
// next poll, all of it. A client that fetches ahead has the first record by then,
// and waits with it.
func TestOneBrokerIsAskedWhenPolled(t *testing.T) {
	s := embedded(t)
	cfg := s.worker("one")
	cfg.OneBroker = true
	l := openWorker(t, cfg)
	untilAssigned(t, l, testPartitions)
	const rounds, records = 20, 8
	cl, all := s.outside(t), 0
	for round := range rounds {
		submit(t, cl, input(s.inboxes[0], 0, fmt.Sprint("first of ", round)))
		poll(t, l)
		for i := range records {
			submit(t, cl, input(s.inboxes[0], int32(i), fmt.Sprint(round)))
		}
		n := len(poll(t, l))
		if n == records {
			all++ // not always: the client may just have asked when a poll ended
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
