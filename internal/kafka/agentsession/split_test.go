package agentsession_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestSessionSplitsRepliesThatAreRefusedAsABatch checks a reply topic whose max.message.bytes is smaller than the
// client's batches. Each reply that fits is written. Only one that doesn't fit fails on every attempt, with its size
// and the topic's limit.
func TestSessionSplitsRepliesThatAreRefusedAsABatch(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		const most = 100_000
		r := newRequests(t, b, 1)
		topic := string(r.Config.Namespace) + "narrow"
		b.CreateTopicsWith(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(most)}, topic)
		s := r.open()
		admin, err := kafkaadmin.Open(r.Config)
		must(t, err)
		defer admin.Close()
		ctx, cancel := context.WithTimeout(r.Ctx, suite.Patience)
		defer cancel()
		for round := range 2 { // in the second round the limit is known
			var wg sync.WaitGroup
			var want []string
			for i := range 12 {
				value := append(fmt.Appendf(nil, "%d/%02d ", round, i), kafkatest.Incompressible(40_000)...)
				fits := i != 7
				if fits {
					want = append(want, fmt.Sprintf("%d/%02d", round, i))
				} else {
					value = append(value, kafkatest.Incompressible(80_000)...)
				}
				wg.Go(func() {
					err := s.Send(ctx, events.Record{Topic: topic, Partition: -1, Key: fmt.Append(nil, i), Value: value})
					large, is := errors.AsType[tooLarge](err)
					switch {
					case fits && err != nil:
						t.Errorf("round %d: reply %d: %v", round, i, err)
					case !fits && !is:
						t.Errorf("round %d: the reply that doesn't fit: %v", round, err)
					case !fits:
						if bytes, bound := large.TooLarge(); bytes < 120_000 || bytes > 121_000 || bound != most {
							t.Errorf("round %d: %d bytes, bound %d: %v", round, bytes, bound, err)
						}
					}
				})
			}
			wg.Wait()
			var got []string
			must(t, admin.ReadCompacted(ctx, topic, func(rec events.Record) error {
				if word := string(rec.Value[:4]); word[0] == byte('0'+round) {
					got = append(got, word)
				}
				return nil
			}))
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("round %d: written %q, want %q", round, got, want)
			}
		}
	})
}

// tooLarge is the error of a record that exceeds its topic's limit.
type tooLarge interface {
	error
	TooLarge() (bytes, most int)
}

var _ tooLarge = (*kafka.TooLargeError)(nil)
