package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// tooLargeError is the error of a record that exceeds its topic's limit.
type tooLargeError interface {
	error
	TooLarge() (bytes, most int)
}

// TestProducerSplitsWhatATopicRefuses checks a topic whose max.message.bytes is smaller than the client's batches. Each
// record that fits is written, in order. Only a record that doesn't fit fails, with its size and the topic's limit.
func TestProducerSplitsWhatATopicRefuses(t *testing.T) {
	kafkatest.EachSite(t, func(t *testing.T, s *kafkatest.Site) {
		const most = 100_000
		topic := string(s.NS) + "narrow"
		s.CreateTopicsWith(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(most)}, topic)
		p, err := kafka.OpenProducer(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
		defer cancel()
		for round := range 2 { // in the second round the limit is known
			var rs []events.Record
			var want []string
			for i := range 12 {
				value := append(fmt.Appendf(nil, "%d/%02d ", round, i), kafkatest.Incompressible(40_000)...)
				if i == 7 {
					value = append(value, kafkatest.Incompressible(80_000)...)
				} else {
					want = append(want, fmt.Sprintf("%d/%02d", round, i))
				}
				rs = append(rs, events.Record{Topic: topic, Partition: 0, Key: fmt.Append(nil, i%3), Value: value})
			}
			results := make([]chan error, len(rs))
			for i := range rs {
				results[i] = make(chan error, 1)
				p.SendAsync(ctx, rs[i], func(_ events.Record, err error) { results[i] <- err })
			}
			for i := range results {
				err := <-results[i]
				var large tooLargeError
				switch {
				case i != 7 && err != nil:
					t.Errorf("round %d: record %d: %v", round, i, err)
				case i == 7 && !errors.As(err, &large):
					t.Errorf("round %d: the record that doesn't fit: %v", round, err)
				case i == 7:
					if bytes, bound := large.TooLarge(); bytes < 120_000 || bytes > 121_000 || bound != most || !strings.Contains(err.Error(), fmt.Sprint(most)) {
						t.Errorf("round %d: %d bytes, bound %d: %v", round, bytes, bound, err)
					}
				}
			}
			got := s.InOrder(t, topic)
			got = slices.DeleteFunc(got, func(v string) bool { return !strings.HasPrefix(v, fmt.Sprint(round, "/")) })
			if got = lastOfEach(got); !slices.Equal(got, want) {
				t.Errorf("round %d: written %q, want %q", round, got, want)
			}
		}
	})
}

// TestFlushWaitsForWhatATopicRefused checks that Flush waits also for records that are kept back because their topic has
// refused a batch.
func TestFlushWaitsForWhatATopicRefused(t *testing.T) {
	kafkatest.EachSite(t, func(t *testing.T, s *kafkatest.Site) {
		topic := string(s.NS) + "narrow"
		s.CreateTopicsWith(t, 1, map[string]string{"max.message.bytes": "100000"}, topic)
		p, err := kafka.OpenProducer(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
		defer cancel()
		const n = 50
		results := make(chan error, n)
		for range n {
			p.SendAsync(ctx, events.Record{Topic: topic, Value: kafkatest.Incompressible(40_000)}, func(_ events.Record, err error) { results <- err })
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if len(results) != n {
			t.Fatalf("Flush returned, and %d of %d records have a result", len(results), n)
		}
		for range n {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// lastOfEach keeps only the last of equal values.
func lastOfEach(values []string) []string {
	var last []string
	for i, v := range values {
		if !slices.Contains(values[i+1:], v) {
			last = append(last, v)
		}
	}
	slices.Sort(last)
	return last
}
