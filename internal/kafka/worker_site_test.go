package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

const (
	testPartitions = 12
	// testOpenFor is a transaction timeout that no test waits for.
	testOpenFor = time.Minute
)

// site is a namespace on a broker, with inboxes, events and the requests of agent "a".
type site struct {
	*kafkatest.Broker
	config  kafka.Config
	ns      events.Namespace
	inboxes []string
}

func newSite(t testing.TB, b *kafkatest.Broker) *site {
	t.Helper()
	ns := b.Namespace(t)
	b.CreateTopics(t, testPartitions, append(ns.InboxTopics(), ns.Events(), ns.Requests("a"))...)
	return &site{b, kafka.Config{Brokers: b.Addrs, Namespace: ns, ClientID: "test", Dial: b.Dial}, ns, ns.InboxTopics()}
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
		Config: s.config, Group: s.ns.SchedulerGroup(), Owner: owner,
		Topics: s.inboxes, Partitions: testPartitions,
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

// outside returns a client that is not under test.
func (s *site) outside(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return s.Client(t, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
}

func submit(t testing.TB, cl *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func input(topic string, p int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: []byte(value)}
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

// reflect returns the decisions of the test's scheduler: one event for each input.
func (s *site) reflect(rs []events.Record) []events.Record {
	out := make([]events.Record, len(rs))
	for i, r := range rs {
		out[i] = events.Record{
			Topic: s.ns.Events(), Partition: r.Partition, Key: r.Key,
			Value: fmt.Appendf(nil, "%s/%d/%d", r.Topic, r.Partition, r.Offset),
		}
	}
	return out
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

// reflected counts with another client how often each input is in the committed events, until there are at least n
// inputs.
func (s *site) reflected(t testing.TB, n int) map[string]int {
	t.Helper()
	cl := s.outside(t, kgo.ConsumeTopics(s.ns.Events()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		// The race detector empties sync.Pools, and decoding a small lz4 batch then takes 6 ms. One fetch of everything
		// would take too long and look like none.
		kgo.FetchMaxPartitionBytes(8<<10))
	seen := map[string]int{}
	const patience = 30 * time.Second // for a busy machine, not for a stuck worker
	last := time.Now()
	// It reads a little longer than needed, to find duplicates.
	for quiet := 0; len(seen) < n || quiet < 3; {
		short, stop := context.WithTimeout(t.Context(), 150*time.Millisecond)
		fs := cl.PollFetches(short)
		stop()
		if fs.NumRecords() > 0 {
			last, quiet = time.Now(), 0
		} else {
			quiet++
		}
		if time.Since(last) > patience {
			t.Fatalf("%d of %d inputs in the committed events, and no more in %v", len(seen), n, patience)
		}
		fs.EachError(func(topic string, p int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("read %s/%d: %v", topic, p, err)
			}
		})
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	return seen
}
