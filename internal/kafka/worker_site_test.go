package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

const (
	testPartitions = kafkatest.SitePartitions
	// testOpenFor is a transaction timeout that no test waits for.
	testOpenFor = time.Minute
)

// site adds what this package's tests open to a kafkatest.Site.
type site struct{ *kafkatest.Site }

func newSite(t testing.TB, b *kafkatest.Broker) *site {
	t.Helper()
	return &site{kafkatest.NewSite(t, b)}
}

// embedded returns a site on an embedded broker of its own, in which the test may inject faults.
func embedded(t testing.TB) *site {
	t.Helper()
	return newSite(t, kafkatest.Embedded(t))
}

// each runs a test on every kind of broker.
func each(t *testing.T, fn func(t *testing.T, s *site)) {
	t.Helper()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		t.Parallel()
		fn(t, newSite(t, b))
	})
}

func (s *site) worker(owner string) kafka.WorkerConfig {
	return kafka.WorkerConfig{
		Config: s.Config, Group: s.NS.SchedulerGroup(), Owner: owner,
		Topics: s.Inboxes, Partitions: testPartitions,
		SessionTimeout: 2 * time.Second, TransactionTimeout: 6 * time.Second, FetchMaxWait: 50 * time.Millisecond,
	}
}

func openWorker(t testing.TB, cfg kafka.WorkerConfig) *kafka.Worker {
	t.Helper()
	l, err := kafka.OpenWorker(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// until polls and resumes all partitions until ok. It fails after a time limit.
func until(t testing.TB, l *kafka.Worker, what string, ok func(rs []events.Record) bool) {
	t.Helper()
	const longest = 3 * time.Minute // long enough for a busy machine
	for deadline := time.Now().Add(longest); ; {
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
			t.Fatalf("%s: not within %v; assigned %v", what, longest, l.Assigned())
		}
	}
}

func untilAssigned(t testing.TB, l *kafka.Worker, n int) {
	t.Helper()
	until(t, l, fmt.Sprintf("%d partitions", n), func([]events.Record) bool { return len(l.Assigned()) == n })
}

// poll polls until there are records, and returns them.
func poll(t testing.TB, l *kafka.Worker) (got []events.Record) {
	t.Helper()
	until(t, l, "a record", func(rs []events.Record) bool { got = rs; return len(rs) > 0 })
	return got
}

// commit commits out with the n records that were polled. A broker may abort any transaction, for example when its
// coordinator moves or the group rebalances. The records are then polled again, and the commit is repeated.
func commit(t testing.TB, l *kafka.Worker, n int, out []events.Record) {
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
