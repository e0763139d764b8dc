package schedulerworker_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// addPartitions adds partitions to a topic up to a count, and returns a client that knows them.
func (s *site) addPartitions(t *testing.T, topic string, count int) *kgo.Client {
	t.Helper()
	cl := s.Outside(t)
	admin := kadm.NewClient(cl)
	if _, err := admin.UpdatePartitions(t.Context(), count, topic); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(20 * time.Millisecond) // no broker reports when all others know the new partitions
	defer again.Stop()
	for {
		topics, err := admin.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		led := slices.DeleteFunc(topics[topic].Partitions.Sorted(), func(p kadm.PartitionDetail) bool { return p.Err != nil || p.Leader < 0 })
		if len(led) == count {
			return s.Outside(t)
		}
		<-again.C
	}
}

// TestPartitionsThatAreAddedToAnInbox adds partitions to an inbox while a worker runs. Their records are polled once,
// by the owner of the partition to which an added one belongs, also after a change of the owner. Other partitions
// continue.
func TestPartitionsThatAreAddedToAnInbox(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], 1, "before"))
		commit(t, l, len(poll(t, l)), nil)

		const added = testPartitions + 1 // belongs to partition 1
		cl = s.addPartitions(t, s.Inboxes[0], added+1)
		l.RefreshMetadata()
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], added, "a"), kafkatest.Input(s.Inboxes[0], 1, "b"), kafkatest.Input(s.Inboxes[1], 1, "c"), kafkatest.Input(s.Inboxes[0], 3, "d"))
		values := func(want ...string) {
			t.Helper()
			var in []events.Record
			got := map[string]int32{}
			until(t, l, "all records", func(rs []events.Record) bool {
				in = append(in, rs...)
				l.RefreshMetadata() // a refresh that began before the partitions were added satisfies the first request
				return len(in) >= len(want)
			})
			for _, r := range in {
				got[string(r.Value)] = r.Partition
			}
			if !slices.Equal(slices.Sorted(maps.Keys(got)), want) || len(in) != len(want) || got["a"] != added && got["e"] != added {
				t.Fatalf("polled %v of %v", got, want)
			}
			if len(l.Assigned()) != testPartitions {
				t.Fatalf("assigned %v", l.Assigned())
			}
			commit(t, l, len(in), nil)
		}
		values("a", "b", "c", "d")
		l.Close()

		l = openWorker(t, s.worker("two")) // it has the added partition from its start
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], added, "e"), kafkatest.Input(s.Inboxes[0], 1, "f"))
		values("e", "f")
	})
}

// TestAddedPartitionWaitsForResume checks that no record of an added partition is returned before its partition is
// resumed.
func TestAddedPartitionWaitsForResume(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const added = testPartitions // belongs to partition 0
		cl := s.addPartitions(t, s.Inboxes[0], added+1)
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], added, "a"), kafkatest.Input(s.Inboxes[0], 1, "b"))
		l := openWorker(t, s.worker("one"))
		var got []string
		until := func(n int, resume ...int32) {
			t.Helper()
			for len(got) < n {
				rs, err := l.Poll(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					got = append(got, string(r.Value))
				}
				if len(l.Assigned()) == testPartitions {
					for _, p := range resume {
						l.Resume(p, inboxgate.PausedForRestore)
					}
				}
			}
		}
		until(1, 1)
		until(2, 0)
		if !slices.Equal(got, []string{"b", "a"}) {
			t.Errorf("polled %v", got)
		}
		commit(t, l, 2, nil)
	})
}

// TestPauseStopsWhatWasAdded checks that pausing an inbox also pauses its added partitions until it is resumed.
func TestPauseStopsWhatWasAdded(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const added = testPartitions + 1 // belongs to partition 1
		cl := s.addPartitions(t, s.Inboxes[0], added+1)
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		l.Pause(1, s.Inboxes[0], inboxgate.PausedForRetry, time.Time{})
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], added, "paused"), kafkatest.Input(s.Inboxes[0], 1, "paused"))
		var got []string
		take := func(values ...string) {
			t.Helper()
			for len(got) < len(values) {
				rs, err := l.Poll(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					got = append(got, string(r.Value))
				}
			}
			if slices.Sort(got); !slices.Equal(got, values) {
				t.Fatalf("polled %v, want %v", got, values)
			}
		}
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[0], 3, "a"))
		take("a")
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[1], 1, "b")) // another inbox of the partition isn't paused
		take("a", "b")
		l.Resume(1, inboxgate.PausedForRetry, s.Inboxes[0])
		take("a", "b", "paused", "paused")
		commit(t, l, len(got), nil)
	})
}
