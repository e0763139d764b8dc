package agentsession_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestRecreatedTopicOfASession deletes and recreates a session's topic, as happens when a cluster restarts without its
// data while agents run. The session reports errors at a bounded rate, and ends when the topic exists again. Another
// session then reads the new topic's requests.
func TestRecreatedTopicOfASession(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		const partitions, toldMost = 3, 200 // most are failed commits, five per second
		r := newRequests(t, b, partitions)
		var told atomic.Int64
		s := r.open(func(c *agentsession.Config) {
			c.CommitEvery, c.Listener.TransientError = agentsession.DefaultCommitEvery, func(error) { told.Add(1) }
		})
		r.Write(0, 0, 1)
		r.poll(s, 1)

		b.RemoveTopic(t, r.Topic)
		b.CreateTopics(t, partitions, r.Topic)
		var err error
		for err == nil {
			_, err = s.Poll(r.Ctx)
		}
		if recreated, is := errors.AsType[*kafka.RecreatedError](err); !is || recreated.Topic != r.Topic || !recreated.Recreated() {
			t.Fatalf("it ended with %v, want that its topic was created again", err)
		}
		if n := told.Load(); n > toldMost {
			t.Errorf("told %d times, want %d at most", n, toldMost)
		}
		_ = s.Close(r.Ctx) // it can't commit, because its topic is gone
		again := r.open()
		producer, err := kafka.OpenProducer(r.Config)
		must(t, err)
		defer producer.Close()
		r.Producer = producer
		r.Write(1, 5, 6)
		if got := r.poll(again, 1); got[0] != "5" {
			t.Errorf("read %q, want what was written to the new topic", got)
		}
	})
}

// TestRepliesToARecreatedTopic deletes and recreates the topic of replies. Replies fail meanwhile, and are then
// written to the new topic.
func TestRepliesToARecreatedTopic(t *testing.T) {
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		s := r.open()
		topic := r.Config.Namespace.Inbox(events.Replies)
		reply := func(value string) error {
			ctx, cancel := context.WithTimeout(r.Ctx, 10*time.Second)
			defer cancel()
			return s.Send(ctx, events.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: []byte(value)})
		}
		must(t, reply("before"))
		for range 2 {
			b.RemoveTopic(t, topic)
			if err := reply("while it is gone"); err == nil {
				t.Error("a reply was written to a topic that isn't there")
			}
			b.CreateTopics(t, 1, topic)
			for deadline := time.Now().Add(recreatedTopicWait); ; {
				err := reply("first")
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%v after the topic's return: %v", recreatedTopicWait, err)
				}
			}
			must(t, reply("second"))
			site := &kafkatest.Site{Broker: b, Config: r.Config, NS: r.Config.Namespace}
			if got := site.Values(t, topic); !slices.Equal(got, []string{"first", "second"}) {
				t.Errorf("the new topic has %q", got)
			}
		}
	})
}

// recreatedTopicWait bounds the time until a client can write to a recreated topic.
const recreatedTopicWait = 3 * time.Minute
