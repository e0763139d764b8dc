package schedulerworker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// witnessed configures a worker that compares commits with the log of events.
func (s *site) witnessed(t *testing.T, owner string, faults *positionFaults) schedulerworker.Config {
	t.Helper()
	r := s.restorer(t, nil)
	cfg := s.worker(owner)
	cfg.Listener = faults.listener()
	cfg.Committed = func(ctx context.Context, p int32, offsets []int64) (map[int64]bool, int64, error) {
		return r.Committed(ctx, s.NS.Events(), p, offsets)
	}
	return cfg
}

// reads polls until it gets as many values as wanted, and compares them.
func reads(t *testing.T, l *schedulerworker.Worker, want ...string) {
	t.Helper()
	var got []string
	until(t, l, fmt.Sprint(want), func(rs []events.Record) bool {
		for _, r := range rs {
			got = append(got, string(r.Value))
		}
		return len(got) >= len(want)
	})
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("polled %q, want %q", got, want)
	}
}

// TestCommitsNameTheirLastEvent checks that a commit's metadata has the offset of the partition's last event, and that
// the next owner finds this event in the log.
func TestCommitsNameTheirLastEvent(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic, faults := s.Outside(t), s.Inboxes[0], &positionFaults{}
		l := openWorker(t, s.witnessed(t, "one", faults))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"))
		var polled []events.Record
		until(t, l, "both", func(rs []events.Record) bool {
			for _, r := range rs {
				polled = append(polled, events.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset})
			}
			return len(polled) == 2
		})
		out := s.Reflect(polled)
		commit(t, l, 2, out)
		last := max(out[0].Offset, out[1].Offset)
		metadata := func(position int64) string {
			t.Helper()
			for {
				offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), s.NS.SchedulerGroup())
				must(t, err)
				if at, _ := offsets.Lookup(topic, 4); at.At >= position { // its marker may not be written yet
					return at.Metadata
				}
			}
		}
		want := fmt.Sprintf("waybill/1 %s %d", l.TopicID(topic), last)
		if got := metadata(2); got != want {
			t.Errorf("the commit says %q, want %q", got, want)
		}
		l.Close()
		l = openWorker(t, s.witnessed(t, "two", faults))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "c"))
		reads(t, l, "c")
		commit(t, l, 1, nil) // it has no event, so the previous one stays the last
		if got := metadata(3); got != want {
			t.Errorf("the next commit says %q, want %q", got, want)
		}
		if n := faults.count(""); n != 0 {
			t.Errorf("faults of positions: %q", faults.all)
		}
	})
}

// TestCommitAheadOfTheLogIsNotUsed checks a transaction that was committed, but aborted in the log of events: a failed
// broker lost its marker, and an operator aborted it there. The offset that it committed must not be used. The inbox is
// read from its start, and the next owner continues from there.
func TestCommitAheadOfTheLogIsNotUsed(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run("aborted "+when+" the partition came", func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				cl, topic, faults := s.Outside(t), s.Inboxes[0], &positionFaults{}
				cfg := s.witnessed(t, "one", faults)
				l := openWorker(t, s.worker("zero"))
				id := l.TopicID(topic)
				l.Close()
				kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"))
				gone := []events.Record{{Topic: s.NS.Events(), Partition: 4, Key: []byte("k"), Value: []byte("gone")}}
				abort := s.OpenTransaction(t, "dead-"+string(s.NS), gone)
				s.commitAs(t, topic, 4, 2, fmt.Sprintf("waybill/1 %s %d", id, gone[0].Offset))
				rolledBack := func() {
					t.Helper()
					abort()
					for stable := int64(0); stable <= gone[0].Offset; { // its marker may not be written yet
						var err error
						_, stable, err = cfg.Committed(t.Context(), 4, nil)
						must(t, err)
					}
				}
				read := []string{"a", "b"}
				if when == "before" {
					rolledBack()
					l = openWorker(t, cfg)
				} else {
					l = openWorker(t, cfg)
					kafkatest.Submit(t, cl, kafkatest.Input(topic, 5, "other"))
					for placed := false; !placed; { // once another partition is read, the worker has a position in this one, too
						if _, came := l.Assigned()[5]; came {
							l.Resume(5, inboxgate.PausedForRestore)
						}
						rs, err := l.Poll(t.Context())
						must(t, err)
						placed = len(rs) > 0
					}
					must(t, l.Abort(t.Context()))
					rolledBack()
					l.Reflected(t.Context(), 4, nil)
					read = append(read, "other")
				}
				reads(t, l, read...)
				if n := faults.count("rolled_back " + topic + "/4"); n != 1 {
					t.Errorf("faults of positions: %q", faults.all)
				}
				commit(t, l, len(read), nil)
				l.Close()
				cfg.Owner = "two"
				l = openWorker(t, cfg)
				untilAssigned(t, l, testPartitions)
				kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "c"))
				reads(t, l, "c")
			})
		})
	}
}
