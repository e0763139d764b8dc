package schedulerworker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/suite"
)

func (s *site) worker(owner string) schedulerworker.Config {
	return schedulerworker.Config{
		Config: s.Config, Group: s.NS.SchedulerGroup(), Owner: owner,
		Topics: s.Inboxes, Partitions: testPartitions,
		SessionTimeout: 2 * time.Second, TransactionTimeout: testOpenFor, FetchMaxWait: 50 * time.Millisecond,
	}
}

func openWorker(t testing.TB, cfg schedulerworker.Config) *schedulerworker.Worker {
	t.Helper()
	l, err := schedulerworker.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// until polls and resumes all partitions until ok. It fails after a time limit.
func until(t testing.TB, l *schedulerworker.Worker, what string, ok func(rs []events.Record) bool) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		rs, err := l.Poll(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for p := range l.Assigned() {
			l.Resume(p, inboxgate.PausedForRestore)
		}
		if ok(rs) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v; assigned %v", what, suite.Patience, l.Assigned())
		}
	}
}

func untilAssigned(t testing.TB, l *schedulerworker.Worker, n int) {
	t.Helper()
	until(t, l, fmt.Sprintf("%d partitions", n), func([]events.Record) bool { return len(l.Assigned()) == n })
}

// poll polls until there are records, and returns them.
func poll(t testing.TB, l *schedulerworker.Worker) (got []events.Record) {
	t.Helper()
	until(t, l, "a record", func(rs []events.Record) bool { got = rs; return len(rs) > 0 })
	return got
}

// commit commits out with the n records that were polled. A broker may abort any transaction, for example when its
// coordinator moves or the group rebalances. The records are then polled again, and the commit is repeated.
func commit(t testing.TB, l *schedulerworker.Worker, n int, out []events.Record) {
	t.Helper()
	const tries = 5
	for range tries {
		committed, err := l.Commit(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		if committed {
			return
		}
		again := 0
		until(t, l, "the records again", func(rs []events.Record) bool { again += len(rs); return again == n })
	}
	t.Fatalf("rolled back %d times", tries)
}
