package logreader_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// asked is how often a reader must repeat a fetch in these tests. It exceeds any limit of its retries.
const asked = 6

// said replaces the next responses to fetches of a topic: each is an empty response that answer fills in. It returns
// the number of replacements that are left, initially times.
func (s *site) said(topic string, times int32, answer func(*kmsg.FetchResponse, *kmsg.FetchRequest)) (left *atomic.Int32) {
	left = &atomic.Int32{}
	left.Store(times)
	id := s.Fake.TopicInfo(topic).TopicID
	s.Fake.ControlKey(int16(kmsg.Fetch), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		request := k.(*kmsg.FetchRequest)
		if request.Topics[0].TopicID != id || left.Load() == 0 {
			return nil, nil, false
		}
		left.Add(-1)
		response := request.ResponseKind().(*kmsg.FetchResponse)
		answer(response, request)
		return response, nil, true
	})
	return left
}

// nothingOf fills in the response to a client that exceeds its quota: no error, a throttle time, and no topics.
func nothingOf(response *kmsg.FetchResponse, _ *kmsg.FetchRequest) { response.ThrottleMillis = 1 }

// noRecords fills in a response without records that has stable as the last stable offset.
func noRecords(stable int64) func(*kmsg.FetchResponse, *kmsg.FetchRequest) {
	return func(response *kmsg.FetchResponse, request *kmsg.FetchRequest) {
		topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = request.Topics[0].Topic, request.Topics[0].TopicID
		p.Partition, p.HighWatermark, p.LastStableOffset = request.Topics[0].Partitions[0].Partition, stable, stable
		topic.Partitions = append(topic.Partitions, p)
		response.Topics = append(response.Topics, topic)
	}
}

// ways returns all methods that read a partition of events to its end or at offsets. Each returns the values that it
// read.
func (s *site) ways(t *testing.T, r *logreader.Restorer, offsets []int64) map[string]func() ([]string, error) {
	var values []string
	take := func(rs []events.Record) error {
		for i := range rs {
			values = append(values, string(rs[i].Value))
		}
		return nil
	}
	begin := func(read func(context.Context) error) func() ([]string, error) {
		return func() ([]string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
			defer cancel()
			values = nil
			err := read(ctx)
			return values, err
		}
	}
	return map[string]func() ([]string, error){
		"Read": begin(func(ctx context.Context) error {
			_, err := r.Read(ctx, s.NS.Events(), 0, 0, take)
			return err
		}),
		"ReadLast": begin(func(ctx context.Context) error {
			_, err := r.ReadLast(ctx, s.NS.Events(), 0, 1<<40, take)
			return err
		}),
		"ReadAll": begin(func(ctx context.Context) error {
			_, err := r.ReadAll(ctx, s.NS.Events(), logreader.Range{Partitions: []int32{0}}, take, nil)
			return err
		}),
		"ReadAt": begin(func(ctx context.Context) error {
			rs, err := r.ReadAt(ctx, s.NS.Events(), 0, offsets, nil)
			return errors.Join(err, take(rs))
		}),
	}
}

// TestWhatIsNotAnsweredIsAskedForAgain checks that a read repeats a fetch whose response doesn't mention the partition,
// or comes from a leader that lags behind the committed records. Such a response doesn't mean that the partition is
// empty.
func TestWhatIsNotAnsweredIsAskedForAgain(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	for name, answer := range map[string]func(*kmsg.FetchResponse, *kmsg.FetchRequest){
		"over a quota":             nothingOf,
		"left out":                 func(*kmsg.FetchResponse, *kmsg.FetchRequest) {},
		"a leader that lags":       noRecords(0),
		"one whose log has a hole": noRecords(7), // another replica may have the records
		"over a quota, but told": func(response *kmsg.FetchResponse, request *kmsg.FetchRequest) {
			noRecords(7)(response, request)
			response.ThrottleMillis = 1
		},
		"to be asked of another": func(response *kmsg.FetchResponse, request *kmsg.FetchRequest) {
			noRecords(7)(response, request)
			response.Topics[0].Partitions[0].PreferredReadReplica = 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			times := int32(asked)
			if name == "one whose log has a hole" {
				times = 3 // the fourth is reported as corruption
			}
			isAskedForAgain(t, times, answer)
		})
	}
}

func isAskedForAgain(t *testing.T, times int32, answer func(*kmsg.FetchResponse, *kmsg.FetchRequest)) {
	s := embedded(t)
	r := s.restorer(t, nil)
	s.Transact(t, 0, kgo.TryCommit, "a", "b") // 0 1, marker 2
	s.Transact(t, 0, kgo.TryAbort, "never")   // 3, marker 4
	s.Transact(t, 0, kgo.TryCommit, "c")      // 5, marker 6
	s.awaitEnd(t, r, 0, 7)
	for way, read := range s.ways(t, r, []int64{0, 1, 5}) {
		left := s.said(s.NS.Events(), times, answer)
		if values, err := read(); err != nil || !slices.Equal(values, []string{"a", "b", "c"}) || left.Load() != 0 {
			t.Errorf("%s: %q, %v; %d of %d such answers not asked for", way, values, err, left.Load(), times)
		}
		left.Store(0)
	}
	s.said(s.NS.Events(), times, noRecords(2)) // below the reader's position
	if values, next := s.read(t, r, 0, 5); !slices.Equal(values, []string{"c"}) || next != 7 {
		t.Errorf("from 5: %q, next %d", values, next)
	}
}

// TestAHoleInALogIsReported checks that a log without records below its last stable offset is reported as corrupt and not
// skipped, if nothing may have deleted them.
func TestAHoleInALogIsReported(t *testing.T) {
	t.Parallel() // it mostly waits
	s := embedded(t)
	s.Transact(t, 0, kgo.TryCommit, "a", "b")
	left := &atomic.Int32{}
	var told chan *logreader.CorruptError
	r := s.restorer(t, &logreader.RestoreListener{Corrupt: func(d *logreader.CorruptError) {
		left.Store(0)
		told <- d
	}})
	s.awaitEnd(t, r, 0, 3)
	for way, read := range s.ways(t, r, []int64{1}) {
		left.Store(0) // of the previous iteration
		told = make(chan *logreader.CorruptError, 1)
		left = s.said(s.NS.Events(), 1000, noRecords(3))
		values, err := read()
		if way == "Read" || way == "ReadLast" {
			close(told)
			if d := <-told; err != nil || len(values) != 2 || d == nil || d.Offset != 0 || d.Next != 3 || !strings.Contains(d.Error(), "0 to 2") {
				t.Errorf("%s: %q, %v, was told %v", way, values, err, d)
			}
			continue
		}
		if d, is := errors.AsType[*logreader.CorruptError](err); !is || d.Next != 3 || len(values) != 0 {
			t.Errorf("%s: %q, %v", way, values, err)
		}
	}
}

// TestReadsEndBehindWhatCompactionEmptied checks that reads to the end of a topic end, although compaction left no
// records there.
func TestReadsEndBehindWhatCompactionEmptied(t *testing.T) {
	const end = 3
	s := embedded(t)
	topics := []string{s.NS.Definitions(), s.NS.Snapshots()}
	s.CreateTopics(t, 1, topics...)
	for _, topic := range topics {
		kafkatest.Submit(t, s.Outside(t), &kgo.Record{Topic: topic, Value: []byte("a")})
	}
	s.emptied(end)
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()

	d, err := logreader.WatchDefinitions(ctx, s.Config, func(events.Record) {})
	must(t, err)
	defer d.Close()
	if err := d.ReadToEndNow(ctx); err != nil {
		t.Error(err)
	}
	for _, topic := range topics {
		n := 0
		if err := openAdmin(t, s.Config).ReadCompacted(ctx, topic, func(events.Record) error { n++; return nil }); err != nil || n != 1 {
			t.Errorf("%s: %d records, %v", topic, n, err)
		}
		n = 0
		next, err := s.restorer(t, nil).Read(ctx, topic, 0, 0, func(rs []events.Record) error { n += len(rs); return nil })
		if err != nil || n != 1 || next != end {
			t.Errorf("%s: %d records, next %d, %v", topic, n, next, err)
		}
	}
}

// emptied makes all logs end at an offset, with no records after the first one.
func (s *site) emptied(end int64) {
	s.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		request := k.(*kmsg.ListOffsetsRequest)
		asked := request.Topics[0].Partitions[0]
		if asked.Timestamp != -1 {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		topic.Topic, p.Partition, p.Offset = request.Topics[0].Topic, asked.Partition, end
		topic.Partitions = append(topic.Partitions, p)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	s.Fake.ControlKey(int16(kmsg.Fetch), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		request := k.(*kmsg.FetchRequest)
		if request.Topics[0].Partitions[0].FetchOffset == 0 {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.FetchResponse)
		noRecords(end)(response, request)
		return response, nil, true
	})
}

// TestARestoreWithinAQuota checks that all of a log is read under a quota. Apache Kafka answers a client that exceeds
// it without an error and without records.
func TestARestoreWithinAQuota(t *testing.T) {
	const (
		records, bytes = 48, 128 << 10
		rate           = 256 << 10 // bytes/s, averaged over a window of 10 s
	)
	t.Parallel()
	s := newSite(t, kafkatest.Kafka(t))
	s.Config.ClientID = string(s.NS) + "restore"
	cl := s.Outside(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range int32(records) {
		value := make([]byte, bytes)
		rand.Read(value) // never fails
		kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), i%testPartitions, string(value)))
	}
	admin := kadm.NewClient(cl)
	quota := func(remove bool) {
		entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &s.Config.ClientID}}
		_, err := admin.AlterClientQuotas(context.Background(), []kadm.AlterClientQuotaEntry{{Entity: entity,
			Ops: []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: rate, Remove: remove}}}})
		must(t, err)
	}
	quota(false)
	defer quota(true)
	throttled := &throttles{}
	s.Config.Hooks = append(s.Config.Hooks, throttled)
	r := s.restorer(t, nil)
	// The broker applies a quota after it confirmed it, so the log is read until an answer asks for a pause.
	for throttled.n.Load() == 0 && !t.Failed() {
		var all errgroup.Group
		for p := range int32(testPartitions) { // concurrently, as in a restore
			all.Go(func() error {
				n := 0
				_, err := r.Read(t.Context(), s.NS.Events(), p, 0, func(rs []events.Record) error { n += len(rs); return nil })
				if n != records/testPartitions {
					err = errors.Join(err, fmt.Errorf("partition %d: %d records of %d", p, n, records/testPartitions))
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d answers asked for a pause", throttled.n.Load())
}

// throttles counts responses with a throttle time.
type throttles struct{ n atomic.Int32 }

func (h *throttles) OnBrokerThrottle(kgo.BrokerMetadata, time.Duration, bool) { h.n.Add(1) }
