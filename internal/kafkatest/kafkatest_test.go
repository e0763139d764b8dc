package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	t.Cleanup(cancel)
	return ctx
}

// produceTxn writes values to a topic in one transaction and ends it.
func produceTxn(t *testing.T, b *Broker, id, topic string, end kgo.TransactionEndTry, values ...string) {
	t.Helper()
	ctx := timeout(t)
	c := b.Client(t, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	defer c.Close()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Key: []byte("k"), Value: []byte(v),
			Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte("id-" + v)}}})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := kafka.EndTransaction(ctx, c, end); err != nil {
		t.Fatal(err)
	}
}

// consume reads n committed records of a topic.
func consume(t *testing.T, b *Broker, topic string, n int, opts ...kgo.Opt) []string {
	t.Helper()
	ctx := timeout(t)
	opts = append(opts, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(250*time.Millisecond))
	c := b.Client(t, opts...)
	defer c.Close()
	var got []string
	for len(got) < n {
		fetches := c.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%v with %d of %d records: %q", err, len(got), n, got)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

func TestTransactionIsReadByOthers(t *testing.T) {
	Each(t, func(t *testing.T, b *Broker) {
		ns := b.Namespace(t)
		topic := ns.Events()
		b.CreateTopics(t, 1, topic)
		produceTxn(t, b, string(ns)+"txn", topic, kgo.TryCommit, "a", "b")
		produceTxn(t, b, string(ns)+"txn", topic, kgo.TryAbort, "lost")
		produceTxn(t, b, string(ns)+"txn", topic, kgo.TryCommit, "c")
		want := []string{"a", "b", "c"}
		if got := consume(t, b, topic, len(want)); !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		var got []string
		for _, r := range b.ReadTopic(t, topic) {
			id, _ := r.Header("ce_id")
			if id != "id-"+string(r.Value) || string(r.Key) != "k" || r.Topic != topic || r.Time.IsZero() {
				t.Errorf("kcat shows %+v", r)
			}
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("kcat read %q, want %q", got, want)
		}
	})
}

// TestKcatWritesToTheEnginesPartition checks that kcat with murmur2 and the engine compute the same partition for a
// key.
func TestKcatWritesToTheEnginesPartition(t *testing.T) {
	Each(t, func(t *testing.T, b *Broker) {
		const partitions = 7
		topic := b.Namespace(t).Inbox(events.Tasks)
		b.CreateTopics(t, partitions, topic)
		var in strings.Builder
		for i := range 50 {
			fmt.Fprintf(&in, "order-%d:{\"id\":\"order-%d\"}\n", i, i)
		}
		b.Kcat(t, in.String(), "-P", "-t", topic, "-K", ":", "-X", "partitioner=murmur2_random", "-H", "ce_type=x")
		records := b.ReadTopic(t, topic)
		if len(records) != 50 {
			t.Fatalf("%d records, want 50", len(records))
		}
		for _, r := range records {
			if want := events.Partition(r.Key, partitions); r.Partition != want {
				t.Errorf("%s in partition %d, want %d", r.Key, r.Partition, want)
			}
		}
	})
}

func TestTopicsAreNotCreatedOnUse(t *testing.T) {
	Each(t, func(t *testing.T, b *Broker) {
		c := b.Client(t, kgo.UnknownTopicRetries(1), kgo.AllowAutoTopicCreation(), kgo.RecordRetries(3))
		err := c.ProduceSync(timeout(t), &kgo.Record{Topic: b.Namespace(t).Events(), Value: []byte("x")}).FirstErr()
		if err == nil {
			t.Error("a topic came into being by being written to")
		}
	})
}

func TestNamespaceLeavesNoTopics(t *testing.T) {
	b := Kafka(t)
	var ns events.Namespace
	t.Run("a test", func(t *testing.T) {
		ns = b.Namespace(t)
		b.CreateTopics(t, 3, ns.Events(), ns.Requests("payments"))
	})
	admin := kadm.NewClient(b.Client(t))
	if err := awaitTopics(timeout(t), admin, func(listed kadm.TopicDetails) bool {
		return !slices.ContainsFunc(listed.Names(), ns.Owns)
	}); err != nil {
		t.Errorf("topics of %s: %v", ns, err)
	}
}

func TestKilledNodeKeepsWhatItAcknowledged(t *testing.T) {
	cluster := KafkaNodes(t, 1, nil)
	b := FromCluster(cluster)
	ns := b.Namespace(t)
	topic := ns.Events()
	b.CreateTopics(t, 1, topic)
	produceTxn(t, b, string(ns)+"txn", topic, kgo.TryCommit, "a", "b")
	if err := cluster.Kill(0); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := cluster.Restart(timeout(t), 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %v", time.Since(begin))
	produceTxn(t, b, string(ns)+"txn", topic, kgo.TryCommit, "c")
	if got, want := consume(t, b, topic, 3), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestThreeNodesGoOnWithoutOne(t *testing.T) {
	cluster := KafkaNodes(t, 3, nil)
	b := FromCluster(cluster)
	ns := b.Namespace(t)
	topic := ns.Events()
	b.CreateTopics(t, 3, topic)
	c := b.Client(t, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	toEach := func(value string) {
		t.Helper()
		for p := range int32(3) {
			if err := c.ProduceSync(timeout(t), &kgo.Record{Partition: p, Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatalf("partition %d, %s: %v", p, value, err)
			}
		}
	}
	toEach("before")
	if err := cluster.Kill(0); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	toEach("while one is dead")
	t.Logf("all partitions written %v after the kill", time.Since(begin))
	begin = time.Now()
	if err := cluster.Restart(timeout(t), 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %v", time.Since(begin))
	toEach("after")
	if got := consume(t, b, topic, 9); len(got) != 9 {
		t.Errorf("read %d records, want 9: %q", len(got), got)
	}
}

func TestVirtualBrokerKeepsTheBubblesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Virtual(t)
		topic := b.Namespace(t).Events()
		b.CreateTopics(t, 1, topic)
		c := b.Client(t, kgo.ConsumeTopics(topic))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if f := c.PollFetches(ctx); !errors.Is(f.Err0(), context.DeadlineExceeded) {
			t.Errorf("an empty topic gave %v", f.Err0())
		}
		if passed := time.Since(begin); passed != time.Hour {
			t.Errorf("%v passed, want an hour", passed)
		}
	})
}

// TestSmallFetchesShowNoRolledBackRecords checks that a reader with a small fetch limit skips aborted records. kfake
// alone omits a partition's aborted transactions from a response that reaches the limit (see fixFetch of package
// embedded).
func TestSmallFetchesShowNoRolledBackRecords(t *testing.T) {
	const rounds, valueBytes, fetchBytesMax = 6, 100_000, 250_000
	Each(t, func(t *testing.T, b *Broker) {
		topic := b.Namespace(t).Events()
		b.CreateTopics(t, 1, topic)
		noise := make([]byte, valueBytes) // random, so compression doesn't shrink it
		rand.Read(noise)                  // never fails
		filler := string(noise)
		for range rounds {
			produceTxn(t, b, topic+".tx", topic, kgo.TryAbort, "aborted"+filler)
			produceTxn(t, b, topic+".tx", topic, kgo.TryCommit, "committed"+filler)
		}
		got := consume(t, b, topic, rounds, kgo.FetchMaxBytes(fetchBytesMax))
		if aborted := slices.IndexFunc(got, func(v string) bool { return strings.HasPrefix(v, "aborted") }); len(got) != rounds || aborted >= 0 {
			t.Errorf("read %d records for %d, number %d was rolled back", len(got), rounds, aborted)
		}
	})
}
