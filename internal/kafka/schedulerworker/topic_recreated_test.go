package schedulerworker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// recreatedTopics bounds the time until a client can write to a recreated topic.
const recreatedTopics = 3 * time.Minute

// TestWorkerWritesToARecreatedTopic deletes and recreates an agent's topic while a worker writes to it. Meanwhile
// only the topic's requests are refused. Afterwards they are written again, each once.
func TestWorkerWritesToARecreatedTopic(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic := s.Outside(t), s.NS.Requests("a")
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		request := func(value string) error {
			t.Helper()
			kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], 1, value))
			rs := poll(t, l)
			for {
				out := append(s.Reflect(rs), events.Record{Topic: topic, Partition: 2, Key: []byte("k"), Value: []byte(value)})
				committed, err := l.Commit(t.Context(), out)
				var refused *schedulerworker.ProduceError
				switch {
				case errors.As(err, &refused):
					if refused.Topic != topic || !refused.Permanent() {
						t.Fatalf("refused: %v", err)
					}
					commit(t, l, 0, s.Reflect(poll(t, l))) // without the request
					return err
				case err != nil:
					t.Fatal(err)
				case committed:
					return nil
				}
				rs = poll(t, l)
			}
		}
		for _, value := range []string{"0", "1"} {
			if err := request(value); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 2 {
			s.RemoveTopic(t, topic)
			if err := request("while it is gone"); err == nil {
				t.Error("a request was written to a topic that isn't there")
			}
			s.CreateTopics(t, testPartitions, topic)
			deadline := time.Now().Add(recreatedTopics)
			for request("first") != nil {
				if time.Now().After(deadline) {
					t.Fatalf("round %d: no request was written within %v of the topic's return", round, recreatedTopics)
				}
			}
			for _, value := range []string{"second", "third"} {
				if err := request(value); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.Values(t, topic); !slices.Equal(got, []string{"first", "second", "third"}) {
				t.Errorf("round %d: the new topic has %q", round, got)
			}
		}
	})
}

// TestProducerWritesToARecreatedTopic deletes and recreates a topic that a producer writes to, such as that of a
// reply_to. Writes fail meanwhile, and then go to the new topic. Writes to other topics are not affected.
func TestProducerWritesToARecreatedTopic(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const topic, other = "remade", "beside"
		topics := []string{string(s.NS) + topic, string(s.NS) + other}
		s.CreateTopics(t, 1, topics...)
		p, err := kafka.OpenProducerWithin(s.Config, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		send := func(topic, value string) error {
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
			defer cancel()
			return p.Send(ctx, events.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: []byte(value)})
		}
		var want []string
		beside := func() {
			t.Helper()
			value := fmt.Sprint(len(want))
			if err := send(topics[1], value); err != nil {
				t.Fatalf("beside: %v", err)
			}
			want = append(want, value)
		}
		if err := send(topics[0], "before"); err != nil {
			t.Fatal(err)
		}
		beside()
		for range 2 {
			s.RemoveTopic(t, topics[0])
			if err := send(topics[0], "while it is gone"); !errors.Is(err, kafka.ErrNoTopic) {
				t.Errorf("got %v, want that there is no such topic", err)
			}
			beside()
			s.CreateTopics(t, 1, topics[0])
			for deadline := time.Now().Add(recreatedTopics); send(topics[0], "first") != nil; {
				beside()
				if time.Now().After(deadline) {
					t.Fatalf("nothing was written within %v of the topic's return", recreatedTopics)
				}
			}
			if err := send(topics[0], "second"); err != nil {
				t.Fatal(err)
			}
			beside()
			if got := s.Values(t, topics[0]); !slices.Equal(got, []string{"first", "second"}) {
				t.Errorf("the new topic has %q", got)
			}
		}
		slices.Sort(want)
		if got := s.Values(t, topics[1]); !slices.Equal(got, want) {
			t.Errorf("beside it was written %q, want %q", got, want)
		}
	})
}
