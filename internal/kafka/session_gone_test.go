package kafka_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A session's topic is deleted and made anew, as when somebody starts with empty data while
// agents run. It tells of that a few times, and ends; another has the new topic's requests.
func TestTopicOfASessionIsMadeAnew(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		const partitions, toldMost = 3, 200 // most are commits, five a second
		r := newRequests(t, b, partitions)
		var told atomic.Int64
		s := r.open(func(c *kafka.SessionConfig) {
			c.CommitEvery, c.Listener.Trouble = kafka.DefaultCommitEvery, func(error) { told.Add(1) }
		})
		r.write(0, 0, 1)
		r.poll(s, 1)

		client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs...), kgo.Dialer(b.Dial))
		must(t, err)
		defer client.Close()
		_, err = kadm.NewClient(client).DeleteTopics(r.ctx, r.topic)
		must(t, err)
		b.CreateTopics(t, partitions, r.topic)
		for err == nil {
			_, err = s.Poll(r.ctx)
		}
		if !errors.Is(err, kerr.UnknownTopicID) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Fatalf("it ended with %v, want that its topic isn't there", err)
		}
		if !strings.Contains(err.Error(), r.topic) || !strings.Contains(err.Error(), "waybill topics create") {
			t.Errorf("%v doesn't say what to do", err)
		}
		if n := told.Load(); n > toldMost {
			t.Errorf("told %d times, want %d at most", n, toldMost)
		}
		_ = s.Close(r.ctx) // there is nothing left to commit to
		again := r.open()
		producer, err := kafka.OpenProducer(r.cfg)
		must(t, err)
		defer producer.Close()
		r.producer = producer
		r.write(1, 5, 6)
		if got := r.poll(again, 1); got[0] != "5" {
			t.Errorf("read %q, want what was written to the new topic", got)
		}
	})
}
