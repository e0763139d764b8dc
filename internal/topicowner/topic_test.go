package topicowner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// TestRecreatedTopicIsReadFromItsStart: a topic that was deleted and created again, and has more records than the first
// one, is read whole, and what the first one had is forgotten.
func TestRecreatedTopicIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		shared := b.Namespace(t).Batches()
		create := func(values ...string) {
			b.CreateTopics(t, 1, shared)
			b.ProduceMany(t, shared, len(values), func(i int) []byte { return []byte(values[i]) })
		}
		create("a", "b")
		r := &reader{t: t}
		r.topic = New(Config{Kafka: kafkatest.ConfigOf(t, b), Log: slog.New(slog.DiscardHandler), Topic: shared, What: "values", NotRead: errors.New("not read"),
			Reset: func() { r.applied = nil },
			Apply: func(rs []events.Record) {
				for i := range rs {
					r.applied = append(r.applied, string(rs[i].Value))
				}
			}})
		r.runUntil("a", "b")
		b.DeleteTopic(t, shared)
		create("c", "d", "e")
		r.runUntil("c", "d", "e")
	})
}

// reader is a process that reads the topic.
type reader struct {
	t       *testing.T
	topic   *Topic
	applied []string // the topic's lock guards it
}

// runUntil runs the topic until exactly these values are applied.
func (r *reader) runUntil(want ...string) {
	ctx, stop := context.WithCancel(kafkatest.Bounded(r.t))
	var running sync.WaitGroup
	running.Go(func() { kafkatest.Must(r.t, r.topic.Run(ctx)) })
	defer running.Wait()
	defer stop()
	for {
		changed := r.topic.Changed()
		r.topic.Lock()
		got := slices.Clone(r.applied)
		r.topic.Unlock()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Errorf("applied %q, not %q", got, want)
			return
		}
	}
}
