package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/suite"
)

// Site is a namespace on a broker, with inboxes, events and the requests of agent "a".
type Site struct {
	*Broker
	Config  kafka.Config
	NS      events.Namespace
	Inboxes []string
}

// EachSite runs a test on a Site on every kind of broker, in parallel with each other and with other tests.
func EachSite(t *testing.T, fn func(t *testing.T, s *Site)) {
	t.Helper()
	t.Parallel()
	Each(t, func(t *testing.T, b *Broker) {
		t.Parallel()
		fn(t, NewSite(t, b))
	})
}

// Outside returns a client that is not under test.
func (s *Site) Outside(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return s.Client(t, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
}

// Submit writes records and waits until they are acknowledged.
func Submit(t testing.TB, cl *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Input returns a record of a task "k" for a partition of an inbox.
func Input(topic string, p int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: []byte(value)}
}

// Reflect returns the decisions of the test's scheduler: one event for each input.
func (s *Site) Reflect(rs []events.Record) []events.Record {
	out := make([]events.Record, len(rs))
	for i, r := range rs {
		out[i] = events.Record{
			Topic: s.NS.Events(), Partition: r.Partition, Key: r.Key,
			Value: fmt.Appendf(nil, "%s/%d/%d", r.Topic, r.Partition, r.Offset),
		}
	}
	return out
}

// Reflected counts with another client how often each input is in the committed events, until there are at least n
// inputs.
func (s *Site) Reflected(t testing.TB, n int) map[string]int {
	t.Helper()
	cl := s.Outside(t, kgo.ConsumeTopics(s.NS.Events()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		// The race detector empties sync.Pools, and decoding a small lz4 batch then takes 6 ms. One fetch of everything
		// would take too long and look like none.
		kgo.FetchMaxPartitionBytes(8<<10))
	seen := map[string]int{}
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
		if time.Since(last) > suite.Patience {
			t.Fatalf("%d of %d inputs in the committed events, and no more in %v", len(seen), n, suite.Patience)
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

// Transact writes values to events/p in one transaction and ends it.
func (s *Site) Transact(t testing.TB, p int32, how kgo.TransactionEndTry, values ...string) {
	t.Helper()
	cl := s.Begin(t, string(s.NS)+"scheduler.writer", p, values...)
	if err := kafka.EndTransaction(t.Context(), cl, how); err != nil {
		t.Fatal(err)
	}
	cl.Close()
}

// Begin writes values to events/p in a transaction and leaves it open.
func (s *Site) Begin(t testing.TB, id string, p int32, values ...string) *kgo.Client {
	t.Helper()
	cl := s.Outside(t, kgo.TransactionalID(id), kgo.TransactionTimeout(2*time.Minute))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		Submit(t, cl, Input(s.NS.Events(), p, v))
	}
	return cl
}

// Trim deletes the records before an offset of events/p.
func (s *Site) Trim(t testing.TB, p int32, before int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: s.NS.Events(), Partition: p, At: before})
	if _, err := kadm.NewClient(s.Outside(t)).DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
}

// RemoveTopic deletes a topic, and returns once metadata no longer shows it.
func (b *Broker) RemoveTopic(t testing.TB, topic string) {
	t.Helper()
	if err := DeleteTopic(b.Addrs, topic); err != nil {
		t.Fatal(err)
	}
}

// Incompressible returns n random bytes.
func Incompressible(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// SitePartitions is the number of partitions of a Site's topics.
const SitePartitions = 8

// NewSite creates the topics of a Site on a broker.
func NewSite(t testing.TB, b *Broker) *Site {
	t.Helper()
	ns := b.Namespace(t)
	b.CreateTopics(t, SitePartitions, append(ns.InboxTopics(), ns.Events(), ns.Requests("a"))...)
	return &Site{b, kafka.Config{Brokers: b.Addrs, Namespace: ns, ClientID: "test", Dial: b.Dial}, ns, ns.InboxTopics()}
}

// Values returns the values of a topic, sorted, as another client reads them.
func (s *Site) Values(t *testing.T, topic string) (got []string) {
	t.Helper()
	admin, err := kafkaadmin.Open(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	err = admin.ReadCompacted(t.Context(), topic, func(r events.Record) error {
		got = append(got, string(r.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	return got
}

// InOrder returns the first words of a topic's values, in log order.
func (s *Site) InOrder(t *testing.T, topic string) (got []string) {
	t.Helper()
	admin, err := kafkaadmin.Open(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	err = admin.ReadCompacted(t.Context(), topic, func(r events.Record) error {
		word, _, _ := strings.Cut(string(r.Value[:min(8, len(r.Value))]), " ")
		got = append(got, word)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
