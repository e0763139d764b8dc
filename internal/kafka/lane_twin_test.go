package kafka_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
)

// The older of two lanes with one name ends for good also where it notices first that its producer is fenced. One
// that is fenced and has no twin, as after it was frozen, goes on with a new client.
func TestFencedLaneKnowsWhetherItHasATwin(t *testing.T) {
	for name, twin := range map[string]bool{"by a twin": true, "by who takes its partitions": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				cfg := s.lane("a")
				cfg.InstanceID = string(s.ns) + "a"
				older := openLane(t, cfg)
				untilAssigned(t, older, testPartitions)
				submit(t, s.outside(t), input(s.inboxes[0], 1, "x"))
				in := poll(t, older)
				if _, _, err := s.outside(t, kgo.TransactionalID(kafka.TransactionalID(s.config, "a"))).ProducerID(t.Context()); err != nil {
					t.Fatal(err)
				}
				joined := make(chan *kafka.Lane, 1)
				if twin {
					go func() { // who takes the id joins, too; the older has noticed one before the other
						newer, err := kafka.OpenLane(t.Context(), cfg)
						if err != nil {
							t.Error(err)
						}
						joined <- newer
					}()
					defer func() {
						if newer := <-joined; newer != nil {
							untilAssigned(t, newer, testPartitions) // it isn't put out
							newer.Close()
						}
					}()
				}
				committed, err := older.Commit(t.Context(), s.reflect(in))
				if committed || !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
					t.Fatalf("committed %v, %v; want that it is fenced", committed, err)
				}
				if _, is := errors.AsType[*kafka.TwinError](err); is != twin {
					t.Errorf("has a twin: %v, says %v", twin, err)
				}
			})
		})
	}
}
