package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// unfinishedStates are the states of a transaction without markers in all of its partitions.
var unfinishedStates = []string{"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}

// OpenTransactions returns the transactional ids with an unfinished transaction, according to their coordinators: one
// that has begun, or that doesn't have its markers in all partitions yet.
func (b *Broker) OpenTransactions(ctx context.Context) ([]string, error) {
	client, err := kgo.NewClient(b.Opts()...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	open, err := kadm.NewClient(client).ListTransactions(ctx, nil, unfinishedStates)
	if err != nil {
		return nil, fmt.Errorf("list the transactions under way: %w", err)
	}
	return open.TransactionalIDs(), nil
}

// OpenTransaction writes records to the partitions that they name, in a transaction that stays open until rollBack. It
// sets the records' offsets and timestamps.
func (b *Broker) OpenTransaction(t testing.TB, id string, rs []events.Record) (rollBack func()) {
	t.Helper()
	cl := b.Client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatalf("begin a transaction: %v", err)
	}
	for i := range rs {
		r := &rs[i]
		out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if err := cl.ProduceSync(t.Context(), out).FirstErr(); err != nil {
			t.Fatalf("write to %s in a transaction: %v", r.Topic, err)
		}
		r.Offset, r.Time = out.Offset, out.Timestamp
	}
	return func() {
		t.Helper()
		if err := kafka.EndTransaction(t.Context(), cl, kgo.TryAbort); err != nil {
			t.Fatalf("roll back a transaction: %v", err)
		}
	}
}

// KeepOffsetsUnstable commits an offset of a group in a transaction, and leaves the transaction open until the test
// ends. Until then the group's offset of that partition is unstable.
func (b *Broker) KeepOffsetsUnstable(t testing.TB, id, group, topic string, p int32) {
	t.Helper()
	cl := b.Client(t, kgo.TransactionalID(id))
	producer, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatalf("begin a transaction: %v", err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, group
	added, err := add.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		t.Fatalf("add the offsets of group %s to a transaction: %v", group, err)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group, commit.Generation = id, producer, epoch, group, -1
	of, at := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	listed, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatalf("look up %s: %v", topic, err)
	}
	of.Topic, of.TopicID, at.Partition = topic, listed[topic].ID, p
	of.Partitions = append(of.Partitions, at)
	commit.Topics = append(commit.Topics, of)
	committed, err := commit.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("move the offset of group %s in a transaction: %v", group, err)
	}
}

// AwaitRecordSize returns once each partition of a topic accepts a record of so many bytes: brokers apply a change of
// max.message.bytes after they have confirmed it. The records are rolled back, so no reader of committed ones gets them.
func (b *Broker) AwaitRecordSize(t testing.TB, topic string, partitions int32, bytes int) {
	t.Helper()
	for p := range partitions {
		for tries := 0; ; tries++ {
			cl := b.Client(t, kgo.TransactionalID(fmt.Sprintf("size-%s-%d-%d", topic, p, tries)), kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(int32(2*bytes)))
			if err := cl.BeginTransaction(); err != nil {
				t.Fatalf("begin a transaction: %v", err)
			}
			err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: make([]byte, bytes)}).FirstErr()
			if ended := kafka.EndTransaction(t.Context(), cl, kgo.TryAbort); ended != nil {
				t.Fatalf("roll back a transaction: %v", ended)
			}
			cl.Close()
			if err == nil {
				break
			}
			if !errors.Is(err, kerr.MessageTooLarge) {
				t.Fatalf("write %d bytes to %s: %v", bytes, topic, err)
			}
		}
	}
}
