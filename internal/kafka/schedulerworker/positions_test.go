package schedulerworker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// positionFaults collects the faults that a worker reports about its positions.
type positionFaults struct {
	mu  sync.Mutex
	all []string
}

func (f *positionFaults) listener() *schedulerworker.Listener {
	return &schedulerworker.Listener{Position: func(at groupmember.Position, fault groupmember.PositionFault) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all = append(f.all, fmt.Sprintf("%s %s", fault, at))
	}}
}

func (f *positionFaults) count(begin string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		if strings.HasPrefix(s, begin) {
			n++
		}
	}
	return n
}

// commitAs commits an offset of the scheduler group from outside, with the given metadata.
func (s *site) commitAs(t *testing.T, topic string, p int32, offset int64, metadata string) {
	t.Helper()
	var at kadm.Offsets
	at.Add(kadm.Offset{Topic: topic, Partition: p, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := kadm.NewClient(s.Outside(t)).CommitAllOffsets(t.Context(), s.NS.SchedulerGroup(), at); err != nil {
		t.Fatal(err)
	}
}

// positionsFound returns the findings of the doctor about positions.
func (s *site) positionsFound(t *testing.T) []kafkaadmin.PositionFinding {
	t.Helper()
	admin, err := kafkaadmin.Open(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	found, err := admin.InboxPositions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCommitsOfOthersAreNotUsed checks that a worker's commit has its topic's id. An offset that another client
// committed, or a worker for another topic of that name, is not used, whatever its value.
func TestCommitsOfOthersAreNotUsed(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic := s.Outside(t), s.Inboxes[0]
		values := func(l *schedulerworker.Worker, want ...string) {
			t.Helper()
			var got []string
			until(t, l, fmt.Sprint(want), func(rs []events.Record) bool {
				for _, r := range rs {
					got = append(got, string(r.Value))
				}
				return len(got) >= len(want)
			})
			if !slices.Equal(got, want) {
				t.Fatalf("polled %q, want %q", got, want)
			}
		}
		faults := &positionFaults{}
		cfg := s.worker("one")
		cfg.Listener = faults.listener()
		l := openWorker(t, cfg)
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"))
		values(l, "a", "b")
		commit(t, l, 2, nil)
		id := l.TopicID(topic)
		l.Close()
		var c kadm.OffsetResponse
		for c.At < 2 { // the group shows the offset when the transaction's markers are written
			commits, err := kadm.NewClient(cl).FetchOffsets(t.Context(), s.NS.SchedulerGroup())
			if err != nil {
				t.Fatal(err)
			}
			c, _ = commits.Lookup(topic, 4)
		}
		if found := s.positionsFound(t); len(found) != 0 {
			t.Errorf("the doctor finds %+v in what workers committed", found)
		}
		if c.Metadata != "waybill/1 "+id {
			t.Fatalf("the worker committed %d with %q", c.At, c.Metadata)
		}

		l = openWorker(t, cfg) // continues from a worker's commit
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "c"))
		values(l, "c")
		l.Close()
		if n := faults.count(""); n != 0 {
			t.Fatalf("%d faults of positions that workers committed: %q", n, faults.all)
		}

		for i, metadata := range []string{"", "by hand", "waybill/1 anotherTopicsIdOf22Chars"} {
			s.commitAs(t, topic, 4, 3, metadata)
			if found := s.positionsFound(t); len(found) != 1 || found[0].Fault != groupmember.PositionForeign {
				t.Errorf("metadata %q: the doctor finds %+v", metadata, found)
			}
			l = openWorker(t, cfg)
			untilAssigned(t, l, testPartitions)
			values(l, "a", "b", "c")
			l.Close()
			if n := faults.count("foreign " + topic + "/4 at 3"); n != i+1 {
				t.Errorf("metadata %q: %d reported: %q", metadata, n, faults.all)
			}
		}
	})
}

// TestInboxThatEndsBelowItsPositionIsNotRead checks a log that ends below the committed position: it was truncated. The
// partition is not read, and that is reported. Waiting until the log is long enough would skip records. Other
// partitions continue.
func TestInboxThatEndsBelowItsPositionIsNotRead(t *testing.T) {
	for _, by := range []string{"the group's commit", "the log of events"} {
		t.Run(by, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				cl, topic := s.Outside(t), s.Inboxes[0]
				faults := &positionFaults{}
				cfg := s.worker("one")
				cfg.Listener = faults.listener()
				l := openWorker(t, cfg)
				id := l.TopicID(topic)
				l.Close()
				kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"))
				if by == "the group's commit" {
					s.commitAs(t, topic, 4, 50, "waybill/1 "+id)
				}
				l = openWorker(t, cfg)
				if by == "the log of events" {
					for len(l.Assigned()) < testPartitions { // an assigned partition is paused until it is resumed
						if _, err := l.Poll(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					l.Reflected(t.Context(), 4, map[string]int64{topic: 50})
				}
				untilAssigned(t, l, testPartitions)
				kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "b"), kafkatest.Input(topic, 5, "other"), kafkatest.Input(s.Inboxes[1], 4, "other inbox"))
				n := 0
				until(t, l, "what is in the others", func(rs []events.Record) bool {
					for _, r := range rs {
						if n++; r.Topic == topic && r.Partition == 4 {
							t.Errorf("read %s/%d/%d", r.Topic, r.Partition, r.Offset)
						}
					}
					return n == 2
				})
				commit(t, l, 2, nil)
				if faults.count("cut "+topic+"/4 at 50") != 1 {
					t.Errorf("reported %q", faults.all)
				}
				if by == "the log of events" {
					return
				}
				if found := s.positionsFound(t); len(found) != 1 || found[0].Fault != groupmember.PositionCut || found[0].Offset != 50 || found[0].End != 2 {
					t.Errorf("the doctor finds %+v", found)
				}
			})
		})
	}
}

// TestRecordsDeletedBeforeTheyWereReadAreReported checks that records deleted before they were read are reported as
// lost. The remaining ones are read.
func TestRecordsDeletedBeforeTheyWereReadAreReported(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic := s.Outside(t), s.Inboxes[0]
		faults := &positionFaults{}
		cfg := s.worker("one")
		cfg.Listener = faults.listener()
		l := openWorker(t, cfg)
		id := l.TopicID(topic)
		l.Close()
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"), kafkatest.Input(topic, 4, "c"))
		s.commitAs(t, topic, 4, 1, "waybill/1 "+id)
		var before kadm.Offsets
		before.AddOffset(topic, 4, 2, -1)
		if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		// On a busy machine the brokers may not say in time where the log begins (boundsTimeout). Then the worker ends,
		// and another decides the position.
		var rs []events.Record
		for l = openWorker(t, cfg); len(rs) == 0; {
			var err error
			if rs, err = l.Poll(t.Context()); errors.Is(err, kerr.OffsetOutOfRange) {
				l.Close()
				l = openWorker(t, cfg)
			} else if err != nil {
				t.Fatal(err)
			}
			for p := range l.Assigned() {
				l.Resume(p, inboxgate.PausedForRestore)
			}
		}
		if len(rs) != 1 || string(rs[0].Value) != "c" {
			t.Errorf("polled %v", rs)
		}
		commit(t, l, 1, nil)
		if faults.count("trimmed "+topic+"/4 at 1 of a log that holds [2, 3)") != 1 {
			t.Errorf("reported %q", faults.all)
		}
	})
}

// TestAbortGoesBackToTheStartOfATrimmedInbox checks that after an abort, a trimmed inbox without a commit is read from
// its start.
func TestAbortGoesBackToTheStartOfATrimmedInbox(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic := s.Outside(t), s.Inboxes[0]
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"), kafkatest.Input(topic, 4, "c"))
		var before kadm.Offsets
		before.AddOffset(topic, 4, 1, -1)
		if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		for range 3 {
			var got []string
			until(t, l, "what wasn't trimmed", func(rs []events.Record) bool {
				for _, r := range rs {
					got = append(got, string(r.Value))
				}
				return len(got) >= 2
			})
			if !slices.Equal(got, []string{"b", "c"}) {
				t.Fatalf("polled %q", got)
			}
			if err := l.Abort(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRewindIsCommitted checks that a rewound partition is read from its start: in the same assignment, after an abort,
// and by the next owner.
func TestRewindIsCommitted(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic := s.Outside(t), s.Inboxes[0]
		faults := &positionFaults{}
		cfg := s.worker("one")
		cfg.Listener = faults.listener()
		l := openWorker(t, cfg)
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"), kafkatest.Input(topic, 5, "other"))
		reads := func(n int) {
			t.Helper()
			var got []string
			until(t, l, fmt.Sprint(n, " records"), func(rs []events.Record) bool {
				for _, r := range rs {
					got = append(got, string(r.Value))
				}
				return len(got) >= n
			})
			if slices.Sort(got); !slices.Equal(got, []string{"a", "b", "other"}[:n]) {
				t.Fatalf("polled %q", got)
			}
		}
		reads(3)
		commit(t, l, 3, nil)
		for range 2 {
			for _, inbox := range s.Inboxes {
				l.Pause(4, inbox, inboxgate.PausedForRestore, time.Time{})
			}
			if err := l.Rewind(t.Context(), 4); err != nil {
				t.Fatal(err)
			}
			l.Resume(4, inboxgate.PausedForRestore)
			reads(2)
			if err := l.Abort(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		reads(2)
		l.Close()
		cfg.Owner = "two"
		l = openWorker(t, cfg)
		untilAssigned(t, l, testPartitions)
		reads(2)
		commit(t, l, 2, nil)
		if n := faults.count(""); n != 0 {
			t.Errorf("faults of positions: %q", faults.all)
		}
	})
}

// TestWorkerEndsWhenAPausedInboxIsRecreated checks a paused inbox, which no worker fetches, when it is recreated. The
// worker must end, so that a new one reads the new topic.
func TestWorkerEndsWhenAPausedInboxIsRecreated(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		l.Pause(inboxgate.AllPartitions, s.Inboxes[0], inboxgate.PausedForAdmission, time.Time{})
		s.RemoveTopic(t, s.Inboxes[0])
		s.CreateTopics(t, testPartitions, s.Inboxes[0])
		for {
			if _, err := l.Poll(t.Context()); err != nil {
				if !contains(err, "was deleted and created again") && !contains(err, "UNKNOWN_TOPIC_ID") {
					t.Errorf("it ends by %v", err)
				}
				return
			}
		}
	})
}

// TestTrimOfARecreatedTopicDeletesNothing checks that the offsets for trimming apply only to the topic with the given
// id. A recreated topic keeps its records.
func TestTrimOfARecreatedTopicDeletesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		topic := s.Inboxes[0]
		admin, err := kafkaadmin.Open(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(admin.Close)
		ids, err := admin.InboxTopicIDs(t.Context())
		if err != nil || ids[0] == "" {
			t.Fatalf("%q, %v", ids, err)
		}
		s.RemoveTopic(t, topic)
		s.CreateTopics(t, testPartitions, topic)
		kafkatest.Submit(t, s.Outside(t), kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"))
		if err := admin.TrimTopic(t.Context(), topic, ids[0], map[int32]int64{4: 1}); !contains(err, "was deleted and created again") {
			t.Errorf("trimmed: %v", err)
		}
		if starts, err := admin.StartOffsets(t.Context(), topic); err != nil || starts[4] != 0 {
			t.Errorf("it begins at %v, %v", starts, err)
		}
	})
}

// TestWhereInboxesBeginAndEnd checks that committed records of inboxes begin at the log's start and end before an open
// transaction.
func TestWhereInboxesBeginAndEnd(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl, topic := s.Outside(t), s.Inboxes[0]
		kafkatest.Submit(t, cl, kafkatest.Input(topic, 4, "a"), kafkatest.Input(topic, 4, "b"), kafkatest.Input(topic, 4, "c"))
		var before kadm.Offsets
		before.AddOffset(topic, 4, 2, -1)
		if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		tx := s.Outside(t, kgo.TransactionalID(string(s.NS)+"client"))
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		kafkatest.Submit(t, tx, kafkatest.Input(topic, 4, "d"), kafkatest.Input(s.Inboxes[1], 5, "e"))
		admin, err := kafkaadmin.Open(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		starts, ends, err := admin.InboxBounds(t.Context())
		if err != nil || len(starts) != len(s.Inboxes) || len(ends[topic]) != testPartitions {
			t.Fatalf("the inboxes hold %v to %v, %v", starts, ends, err)
		}
		if starts[topic][4] != 2 || ends[topic][4] != 3 || ends[s.Inboxes[1]][5] != 0 {
			t.Errorf("the inboxes hold %v to %v", starts, ends)
		}
	})
}
