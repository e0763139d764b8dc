package agentsession_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// keyOf returns a key of a partition among two.
func keyOf(partition int32) []byte {
	for i := 0; ; i++ {
		if key := fmt.Append(nil, "task-", i); events.Partition(key, 2) == partition {
			return key
		}
	}
}

// TestUnavailablePartitionDelaysNoOtherReply checks replies to two partitions whose leaders are on two brokers. One broker
// doesn't answer. Replies to the other one are acknowledged, also after the deadlines of those that aren't.
func TestUnavailablePartitionDelaysNoOtherReply(t *testing.T) {
	b := kafkatest.Embedded(t, kfake.NumBrokers(2))
	r := newRequests(t, b, 1)
	topic := r.Config.Namespace.Inbox(events.Replies)
	b.AddPartitions(t, 2, topic)
	for p := range int32(2) {
		must(t, b.Fake.MoveTopicPartition(topic, p, p))
	}
	s := r.open()
	send := func(partition int32, value string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(r.Ctx, within)
		defer cancel()
		return s.Send(ctx, events.Record{Topic: topic, Partition: -1, Key: keyOf(partition), Value: []byte(value)})
	}
	must(t, send(0, "first", suite.Patience)) // from here on, the number of partitions is known
	must(t, send(1, "first", suite.Patience))

	arrived, release := make(chan struct{}, 1000), make(chan struct{})
	b.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		b.Fake.KeepControl()
		if b.Fake.CurrentNode() == 1 {
			arrived <- struct{}{}
			b.Fake.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	stuck := make(chan error, 20)
	go func() { stuck <- send(1, "stuck", suite.Patience) }()
	<-arrived
	for i := range 19 { // their deadlines end flights one after another
		go func() { stuck <- send(1, "late", time.Duration(20*i)*time.Millisecond) }()
	}
	for range 19 {
		must(t, send(0, "other", 30*time.Second))
		if err := <-stuck; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a reply to a broker that doesn't answer: %v", err)
		}
		must(t, send(0, "other", 30*time.Second))
	}
	close(release)
	must(t, <-stuck)
}

// TestRepliesBeforeThePartitionsAreKnown checks replies with and without a partition of their own that are sent at the
// same time, before the client knows how many partitions there are. All are written, to the partitions of their keys.
func TestRepliesBeforeThePartitionsAreKnown(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		topic := r.Config.Namespace.Inbox(events.Replies)
		b.AddPartitions(t, 2, topic)
		s := r.open()
		results := make(chan error, 40)
		for i := range int32(40) {
			rec := events.Record{Topic: topic, Partition: -1, Key: keyOf(i % 2), Value: fmt.Append(nil, i)}
			if i%4 < 2 {
				rec.Partition = i % 2
			}
			go func() { results <- s.Send(r.Ctx, rec) }()
		}
		for range 40 {
			must(t, <-results)
		}
		for _, rec := range b.AwaitRecords(t, 40, topic)[topic] {
			if want := events.Partition(rec.Key, 2); rec.Partition != want {
				t.Errorf("%s is in partition %d, want %d", rec.Value, rec.Partition, want)
			}
		}
	})
}
