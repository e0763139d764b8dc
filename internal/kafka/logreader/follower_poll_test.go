package logreader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// numbered returns records of one partition with a number in value and headers.
func (s *site) numbered(p int32, from, n int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = kafkatest.Input(s.NS.Events(), p, fmt.Sprintf("value %d", from+i))
		rs[i].Headers = []kgo.RecordHeader{{Key: "number", Value: fmt.Appendf(nil, "header %d", from+i)}}
	}
	return rs
}

// isNumbered reports whether a record has its number in value and headers.
func isNumbered(r *events.Record, i int) bool {
	number, _ := r.Header("number")
	return string(r.Value) == fmt.Sprintf("value %d", i) && number == fmt.Sprintf("header %d", i)
}

// batchesRead counts read records and bytes, as the metrics do.
type batchesRead struct{ records, bytes atomic.Int64 }

func (b *batchesRead) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	b.records.Add(int64(m.NumRecords))
	b.bytes.Add(int64(m.UncompressedBytes))
}

// TestFollowerGivesAFewAtATime checks that a poll returns at most MaxPollRecords of a large batch, and that the
// position is right. Borrowed records are valid until the next poll, others stay valid.
func TestFollowerGivesAFewAtATime(t *testing.T) {
	const records, most = 400, 7
	each(t, func(t *testing.T, s *site) {
		kafkatest.Submit(t, s.Outside(t), s.numbered(1, 0, records)...)
		for _, lend := range []bool{true, false} {
			cfg, read := s.follower(), &batchesRead{}
			cfg.MaxPollRecords, cfg.ReuseBuffers, cfg.Hooks = most, lend, []kafka.Hook{read}
			f := openFollower(t, cfg)
			var kept []events.Record
			next := 0
			follow(t, f, "all of them", func(rs []events.Record) bool {
				if len(rs) > most {
					t.Fatalf("a poll gave %d records of at most %d", len(rs), most)
				}
				for i := range rs {
					if !isNumbered(&rs[i], next) || rs[i].Offset != int64(next) {
						t.Fatalf("lend %v: record %d is %+v", lend, next, rs[i])
					}
					next++
				}
				if at, ok := f.Position(s.NS.Events(), 1); ok && at != int64(next) {
					t.Fatalf("after %d records it stands at %d", next, at)
				}
				kept = append(kept, rs...)
				return next == records
			})
			for i := range kept {
				if !lend && !isNumbered(&kept[i], i) {
					t.Fatalf("record %d, which was kept, is %+v", i, kept[i])
				}
			}
			if n, bytes := read.records.Load(), read.bytes.Load(); n != records || bytes < 10*records {
				t.Errorf("the metrics were told of %d records and %d bytes", n, bytes)
			}
			f.Close()
		}
	})
}

// TestFollowerKeepsItsPartitionsWhileItsCallerWorks checks that another member doesn't get a follower's partitions
// while the caller processes records.
func TestFollowerKeepsItsPartitionsWhileItsCallerWorks(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := s.follower()
		cfg.Start = func(context.Context, string, int32) (int64, bool, error) { return 0, true, nil }
		a := openFollower(t, cfg)
		cl := s.Outside(t)
		follow(t, a, "all", func([]events.Record) bool { return caughtUp(a, s.NS.Events(), testPartitions) })
		kafkatest.Submit(t, cl, s.numbered(1, 0, 1)...)
		follow(t, a, "a record", func(rs []events.Record) bool { return len(rs) == 1 })

		b := openFollower(t, cfg)
		given := func() bool {
			if _, err := b.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			return len(b.Assigned()) > 0
		}
		// Without the held partitions, the rebalance completes immediately, as in the last lines.
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			if given() {
				t.Fatalf("%v are another's, while a record of %v is at work", b.Assigned(), a.Assigned())
			}
		}
		follow(t, a, "a half for the other", func([]events.Record) bool { return given() })
	})
}

// TestFollowerGoesWhereItsPartitionsAreLed checks that partitions are read after each leader change, each record once.
func TestFollowerGoesWhereItsPartitionsAreLed(t *testing.T) {
	t.Parallel() // it mostly waits
	const moves = 12
	s := newSite(t, kafkatest.Embedded(t, kfake.NumBrokers(3)))
	f, cl := openFollower(t, s.follower()), s.Outside(t)
	next := [testPartitions]int{}
	for move := range moves {
		for p := range int32(testPartitions) {
			if err := s.Fake.MoveTopicPartition(s.NS.Events(), p, int32((move+int(p))%3)); err != nil {
				t.Fatal(err)
			}
			kafkatest.Submit(t, cl, s.numbered(p, 3*move, 3)...)
		}
		follow(t, f, fmt.Sprintf("all after move %d", move), func(rs []events.Record) bool {
			for i := range rs {
				if p := rs[i].Partition; !isNumbered(&rs[i], next[p]) {
					t.Fatalf("partition %d: came %s, want number %d", p, rs[i].Value, next[p])
				}
				next[rs[i].Partition]++
			}
			return slices.Min(next[:]) == 3*(move+1)
		})
	}
}

// TestFollowerEndsAtADivergingEpoch checks a response with a diverging epoch: the leader's log differs from the one that
// was read from an offset on. The follower ends, because records after that offset are lost.
func TestFollowerEndsAtADivergingEpoch(t *testing.T) {
	s := embedded(t)
	kafkatest.Submit(t, s.Outside(t), s.numbered(1, 0, 4)...)
	s.Fake.ControlKey(int16(kmsg.Fetch), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		req := k.(*kmsg.FetchRequest)
		for _, asked := range req.Topics[0].Partitions {
			if asked.Partition != 1 || asked.FetchOffset != 4 || asked.LastFetchedEpoch < 0 {
				continue
			}
			s.Fake.DropControl()
			answer := req.ResponseKind().(*kmsg.FetchResponse)
			topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
			topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			p.Partition, p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 1, asked.LastFetchedEpoch, 2
			topic.Partitions = append(topic.Partitions, p)
			answer.Topics = append(answer.Topics, topic)
			return answer, nil, true
		}
		return nil, nil, false
	})
	f := openFollower(t, s.follower())
	read := 0
	err := endOf(t, f, func(rs []events.Record) { read += len(rs) })
	var lost *logreader.LostError
	if !errors.As(err, &lost) || *lost != (logreader.LostError{Topic: s.NS.Events(), Partition: 1, From: 2, To: 4}) || read != 4 {
		t.Errorf("%d records, then %v", read, err)
	}
}

// endOf polls until a follower ends, and returns its error.
func endOf(t *testing.T, f *logreader.Follower, take func([]events.Record)) error {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); time.Now().Before(deadline); {
		rs, err := f.Poll(t.Context())
		if err != nil {
			return err
		}
		take(rs)
	}
	t.Fatal("it goes on")
	return nil
}

// ledApart creates a topic with one replica, and returns its leader and a group that another node coordinates.
func ledApart(t *testing.T, b *kafkatest.Broker, topic string) (leader int32, group string) {
	t.Helper()
	admin := kadm.NewClient(b.Client(t))
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	leader = -1
	for deadline := time.Now().Add(suite.Patience); time.Now().Before(deadline); {
		if topics, err := admin.ListTopics(t.Context(), topic); err == nil && topics[topic].Err == nil {
			leader = topics[topic].Partitions[0].Leader
		}
		for i := 0; leader >= 0 && i < 100; i++ {
			group = fmt.Sprint("test.supervisor.", i)
			if at := admin.FindGroupCoordinators(t.Context(), group); at.Error() == nil && at[group].NodeID != leader {
				return leader, group
			}
		}
	}
	t.Fatalf("topic %s is led by node %d, and no group is coordinated by another", topic, leader)
	return 0, ""
}

// TestFollowerNoticesWhatItsLogHasLost restores a broker's disk to an older state. Records that were read since are
// lost, and other records get their offsets. The follower must end and must not return those as the next records.
func TestFollowerNoticesWhatItsLogHasLost(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	c := kafkatest.KafkaNodes(t, 3, nil)
	b := kafkatest.FromCluster(c)
	const topic = "test.events"
	leader, group := ledApart(t, b, topic)
	node := int(leader) - 1
	dir, before := filepath.Join(c.Dir(), fmt.Sprint("node", leader), "data", topic+"-0"), filepath.Join(t.TempDir(), "before")
	write := func(values ...string) {
		t.Helper()
		cl := b.Client(t) // a new producer: the restored log doesn't know the old one's last writes
		for _, value := range values {
			kafkatest.Submit(t, cl, &kgo.Record{Topic: topic, Value: []byte(value)})
		}
	}
	stopped := func(change func() error) {
		t.Helper()
		if err := c.Terminate(node); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(change(), c.Restart(t.Context(), node)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "b")
	stopped(func() error { return os.CopyFS(before, os.DirFS(dir)) })
	write("lost", "lost, too")

	f := openFollower(t, logreader.FollowerConfig{Config: kafka.Config{Brokers: b.Addrs, Namespace: "test."}, Group: group, Topics: []string{topic}, Partitions: 1,
		SessionTimeout: time.Minute}) // long, so that it stays a member
	var got []string
	take := func(rs []events.Record) {
		for _, r := range rs {
			got = append(got, fmt.Sprint(r.Offset, string(r.Value)))
		}
	}
	follow(t, f, "what is there", func(rs []events.Record) bool {
		take(rs)
		return len(got) == 4
	})
	stopped(func() error { return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(before))) })
	write("c", "d", "e")
	err := endOf(t, f, take)
	var lost *logreader.LostError
	if !errors.As(err, &lost) || *lost != (logreader.LostError{Topic: topic, From: 2, To: 4}) || !strings.Contains(err.Error(), topic) {
		t.Errorf("it ends with %v", err)
	}
	if want := []string{"0a", "1b", "2lost", "3lost, too"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// TestFollowerReadsLargeBatchesBesideABacklog checks batches that exceed a partition's share of a fetch. A leader
// returns such a batch only for the first partition in the request that has data. It must not wait until the backlog of
// the other partitions is read.
func TestFollowerReadsLargeBatchesBesideABacklog(t *testing.T) {
	const (
		topic        = "large"
		small, large = 700 << 10, 1800 << 10 // the share is 1 MiB
		backlog      = 8
	)
	each(t, func(t *testing.T, s *site) {
		topic := string(s.NS) + topic
		s.CreateTopicsWith(t, testPartitions, map[string]string{"max.message.bytes": fmt.Sprint(kafkaadmin.MaxMessageBytes)}, topic)
		cl := s.Outside(t, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(kafkaadmin.MaxMessageBytes))
		for range backlog {
			kafkatest.Submit(t, cl, kafkatest.Input(topic, 0, strings.Repeat("s", small)))
		}
		for p := range int32(3) { // so that they compete
			kafkatest.Submit(t, cl, kafkatest.Input(topic, 1+p, strings.Repeat("l", large)), kafkatest.Input(topic, 1+p, "after it"))
		}
		cfg := s.follower()
		cfg.Topics = []string{topic}
		f := openFollower(t, cfg)
		of, before := map[int32]int{}, 0
		follow(t, f, "all of them", func(rs []events.Record) bool {
			for i := range rs {
				if of[rs[i].Partition]++; rs[i].Partition == 0 && (of[1] == 0 || of[2] == 0 || of[3] == 0) {
					before++
				}
			}
			return of[0] == backlog && of[1] == 2 && of[2] == 2 && of[3] == 2
		})
		if before > backlog/2 {
			t.Errorf("large batches came after %d of %d others", before, backlog)
		}
	})
}
