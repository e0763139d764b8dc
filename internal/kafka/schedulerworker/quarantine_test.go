package schedulerworker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// corrupt is a topic of two partitions on a Kafka node, with three batches in each. flip changes a byte of the second
// batch of partition 0 on disk, or changes it back. Kafka serves what the file contains at that time.
type corrupt struct {
	*testing.T
	cfg   kafka.Config
	topic string
	path  string
}

func openCorrupt(t *testing.T, c *node.Cluster, topic string) *corrupt {
	t.Helper()
	b := kafkatest.FromCluster(c)
	b.CreateTopics(t, 2, topic)
	d := &corrupt{t, kafka.Config{Brokers: b.Addrs, Namespace: "test."}, topic,
		filepath.Join(c.Dir(), "node1", "data", topic+"-0", "00000000000000000000.log")}
	for _, value := range []string{"first", "second", "third"} {
		d.write(0, value)
		d.write(1, value)
	}
	d.flip()
	return d
}

func (d *corrupt) write(p int32, value string) {
	d.Helper()
	producer, err := kafka.OpenProducer(d.cfg)
	if err != nil {
		d.Fatal(err)
	}
	defer producer.Close()
	if err := producer.Send(d.Context(), events.Record{Topic: d.topic, Partition: p, Value: []byte(value)}); err != nil {
		d.Fatal(err)
	}
}

func (d *corrupt) flip() {
	d.Helper()
	log, err := os.ReadFile(d.path)
	if err != nil {
		d.Fatal(err)
	}
	at := max(bytes.Index(log, []byte("second")), bytes.Index(log, []byte("tecond")))
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{log[at] ^ 's' ^ 't'}, int64(at)); err != nil {
		d.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.Fatal(err)
	}
}

// reads polls a reader of the topic during the corruption and after the repair.
func (d *corrupt) reads(poll func() []events.Record, told <-chan string) {
	d.Helper()
	var got [2][]string
	until := func(what string, ok func() bool) {
		d.Helper()
		for deadline := time.Now().Add(suite.Patience); !ok(); {
			if time.Now().After(deadline) {
				d.Fatalf("%s: not in time; read %q, told %d times", what, got, len(told))
			}
			for _, r := range poll() {
				got[r.Partition] = append(got[r.Partition], string(r.Value))
			}
		}
	}
	until("the corruption, told twice, and the other partition", func() bool { return len(told) >= 2 && len(got[1]) == 3 })
	if said := <-told; !strings.HasPrefix(said, d.topic+"/0") || !strings.Contains(said, "crc") && !strings.Contains(said, "checksum") {
		d.Errorf("told %s", said)
	}
	d.write(1, "fourth")
	until("what comes beside it", func() bool { return len(got[1]) == 4 })
	if !slices.Equal(got[0], []string{"first"}) {
		d.Errorf("of the corrupt partition %q were read", got[0])
	}
	d.flip()
	until("what is whole again", func() bool { return len(got[0]) == 3 })
	if !slices.Equal(got[0], []string{"first", "second", "third"}) || !slices.Equal(got[1], []string{"first", "second", "third", "fourth"}) {
		d.Errorf("read %q", got)
	}
}

// TestCorruptionStopsItsPartition checks that a byte changed on a broker's disk stops only its partition. After the
// repair, all of the partition is read, each record once: by a follower, a worker and a session.
func TestCorruptionStopsItsPartition(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	c := kafkatest.KafkaNodes(t, 1, nil)
	t.Run("follower", func(t *testing.T) {
		d, told := openCorrupt(t, c, "test.events"), make(chan string, 100)
		f, err := logreader.OpenFollower(t.Context(), logreader.FollowerConfig{Config: d.cfg, Group: "test.supervisor", Topics: []string{d.topic}, Partitions: 2,
			Listener: &logreader.FollowerListener{Corrupt: func(topic string, p int32, err error) { told <- fmt.Sprintf("%s/%d: %v", topic, p, err) }}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		d.reads(func() []events.Record {
			rs, err := f.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return rs
		}, told)
	})
	t.Run("worker", func(t *testing.T) {
		d, told := openCorrupt(t, c, "test.tasks"), make(chan string, 100)
		l := openWorker(t, schedulerworker.Config{Config: d.cfg, Group: "test.scheduler", Owner: "one", Topics: []string{d.topic}, Partitions: 2,
			Listener: &schedulerworker.Listener{Corrupt: func(topic string, p int32, err error) { told <- fmt.Sprintf("%s/%d: %v", topic, p, err) }}})
		untilAssigned(t, l, 2)
		for p := range l.Assigned() {
			l.Resume(p, inboxgate.PausedForRestore)
		}
		d.reads(func() []events.Record {
			rs, err := l.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(rs) > 0 {
				commit(t, l, len(rs), nil)
			}
			return rs
		}, told)
	})
	t.Run("session", func(t *testing.T) {
		d, told := openCorrupt(t, c, "test.requests.agent"), make(chan string, 100)
		s, err := agentsession.Open(t.Context(), agentsession.Config{Config: d.cfg, Group: "test.agent.agent", Topic: d.topic,
			Listener: agentsession.Listener{TransientError: func(err error) { told <- err.Error() }}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		d.reads(func() []events.Record {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			rs, err := s.Poll(ctx)
			if err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			return rs
		}, told)
	})
}
