package kafka_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestCommitOfTheFirstRecordOfATopic checks that a commit isn't rolled back if the client hasn't stored the topic's
// partitions yet. The second record delays that: the client chooses the partition of all waiting records before.
func TestCommitOfTheFirstRecordOfATopic(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		ctx, topic := bounded(t), string(b.Namespace(t))+"topic"
		b.CreateTopics(t, 1, topic)
		const refused = -1 // no partition
		stored := make(chan struct{})
		release := sync.OnceFunc(func() { close(stored) })
		t.Cleanup(release)
		cl := b.Client(t, kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
			return func(r *kgo.Record, _ int) int {
				if r.Key != nil {
					<-stored
					return refused
				}
				return 0
			}
		})))
		must(t, cl.BeginTransaction())
		acknowledged := make(chan error, 1)
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte("written")}, func(_ *kgo.Record, err error) { acknowledged <- err })
		cl.Produce(ctx, &kgo.Record{Topic: topic, Key: []byte("refused")}, nil)
		must(t, <-acknowledged)

		time.AfterFunc(100*time.Millisecond, release)
		must(t, kafka.EndTransaction(ctx, cl, kgo.TryCommit))

		reader := b.Client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if got := reader.PollFetches(within).NumRecords(); got != 1 {
			t.Errorf("%d committed records are read, want 1", got)
		}
	})
}
