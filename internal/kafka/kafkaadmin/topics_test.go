package kafkaadmin_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

func TestANamespaceIsCreatedCheckedAndRead(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg, ctx := configOf(t, b), bounded(t)
		a, p := openAdmin(t, cfg), openProducer(t, cfg)
		if _, err := a.CheckFormat(ctx); !errors.Is(err, kafkaadmin.ErrNoFormat) {
			t.Fatalf("before: %v", err)
		}
		start := time.Now()
		// Two calls concurrently, as when one script sets up two machines.
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 3, Agents: map[string]int32{"payments": 2}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		t.Logf("created in %v", time.Since(start))
		if fs, err := a.CheckTopics(ctx); err != nil || len(fs) > 0 {
			t.Errorf("what was just created is found wanting: %v %+v", err, fs)
		}
		if f, err := a.CheckFormat(ctx); err != nil || f != (kafkaadmin.Format{Version: kafkaadmin.FormatVersion, Partitions: 3}) {
			t.Errorf("format %+v, %v", f, err)
		}
		alterTopic(t, b.Client(t), cfg.Namespace.Inbox(events.Tasks), "retention.ms", "1000")
		var fs []kafkaadmin.Finding
		for len(fs) == 0 { // brokers learn of a change after the controller has it
			var err error
			fs, err = a.CheckTopics(ctx)
			must(t, err)
		}
		if len(fs) != 1 || fs[0].Topic != cfg.Namespace.Inbox(events.Tasks) || !strings.Contains(fs[0].What, "retention.ms is 1000, not -1") {
			t.Errorf("an inbox with retention: %+v", fs)
		}

		seen := make(chan string, 1000)
		d, err := logreader.WatchDefinitions(ctx, cfg, func(r events.Record) { seen <- string(r.Key) })
		must(t, err)
		defer d.Close()
		for i := range 20 {
			key := fmt.Sprintf("order/%d", i)
			must(t, p.Send(ctx, events.Record{Topic: cfg.Namespace.Definitions(), Partition: -1, Key: []byte(key), Value: []byte("{}")}))
			must(t, d.ReadToEndNow(ctx))
			for {
				select {
				case got := <-seen:
					if got != key {
						continue
					}
				default:
					t.Fatalf("%s was not seen by the end of definitions", key)
				}
				break
			}
		}
	})
}

func TestLogsAreTrimmedAndReadToTheirEnd(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg, ctx := configOf(t, b), bounded(t)
		a, p := openAdmin(t, cfg), openProducer(t, cfg)
		_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
		must(t, err)
		topic := cfg.Namespace.Events()
		tx := b.Client(t, kgo.TransactionalID(string(cfg.Namespace)+"tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryCommit, kgo.TryAbort} {
			must(t, tx.BeginTransaction())
			must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 1, Value: []byte{byte('a' + i)}}).FirstErr())
			must(t, kafka.EndTransaction(ctx, tx, end))
		}
		must(t, p.Send(ctx, events.Record{Topic: topic, Partition: 0, Value: []byte("z")}))
		must(t, a.DeleteRecordsBefore(ctx, topic, map[int32]int64{0: 0, 1: 2}))
		starts, err := a.StartOffsets(ctx, topic)
		must(t, err)
		ends, err := a.EndOffsets(ctx, topic)
		must(t, err)
		if !maps.Equal(starts, map[int32]int64{0: 0, 1: 2}) || !maps.Equal(ends, map[int32]int64{0: 1, 1: 6}) {
			t.Errorf("from %v to %v", starts, ends)
		}
		var got []string
		// The log of partition 1 ends in an aborted record and its marker.
		must(t, a.ReadCompacted(ctx, topic, func(r events.Record) error {
			got = append(got, string(r.Value))
			if b.Kind == kafkatest.KafkaKind && time.Since(r.Time) > time.Minute {
				t.Errorf("LogAppendTime %v", r.Time)
			}
			return nil
		}))
		if !slices.Equal(got, []string{"z", "b"}) {
			t.Errorf("read %q", got)
		}
		start := time.Now()
		if err := p.Send(ctx, events.Record{Topic: "test-no-such-topic", Value: []byte("x")}); !errors.Is(err, kafka.ErrNoTopic) {
			t.Errorf("a missing topic: %v", err)
		}
		t.Logf("a missing topic fails in %v", time.Since(start))
	})
}

func TestThreeBrokersHoldThreeCopies(t *testing.T) {
	t.Parallel()
	c := kafkatest.KafkaNodes(t, 3, nil)
	cfg, ctx := configOf(t, kafkatest.FromCluster(c)), bounded(t)
	a := openAdmin(t, cfg)
	report, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2, Agents: map[string]int32{"payments": 1}})
	must(t, err)
	for _, r := range report {
		if r.Replication != 3 || r.Note != "" {
			t.Errorf("%+v", r)
		}
	}
	if fs, err := a.CheckTopics(ctx); err != nil || len(fs) > 0 {
		t.Errorf("what was just created is found wanting: %v %+v", err, fs)
	}
	if _, err := a.CheckFormat(ctx); err != nil {
		t.Error(err)
	}
	weak := kafkaadmin.CreateTopicsOptions{Partitions: 2, Replication: 1}
	other := cfg
	other.Namespace += "weak."
	w := openAdmin(t, other)
	created, err := w.CreateTopics(ctx, weak)
	must(t, err)
	fs, err := w.CheckTopics(ctx)
	must(t, err)
	for _, want := range []string{"replication 1 with 3 brokers", "min.insync.replicas is 1, not 2"} {
		n := 0
		for _, f := range fs {
			if strings.Contains(f.What, want) {
				n++
			}
		}
		if n != len(created) {
			t.Errorf("%q is found at %d topics of %d", want, n, len(created))
		}
	}
	must(t, c.Pause(0))
	defer func() { must(t, c.Continue(0)) }()
	for range 4 { // the client library begins with any of them
		a := openAdmin(t, cfg)
		must(t, a.Ping(ctx))
		if _, err := a.CheckTopics(ctx); err != nil {
			t.Errorf("while one broker of three is frozen: %v", err)
		}
	}
}

func alterTopic(t *testing.T, cl *kgo.Client, topic, name, value string) {
	t.Helper()
	altered, err := kadm.NewClient(cl).AlterTopicConfigs(bounded(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	must(t, err)
	if _, err := altered.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err }); err != nil {
		t.Fatal(err)
	}
}

// TestFormatIsWrittenToALeaderThatHearsLateOfItsTopic checks CreateTopics when the leader of a new topic knows the
// topic later than the broker that created it, as on a busy cluster. The write of the format must be retried.
func TestFormatIsWrittenToALeaderThatHearsLateOfItsTopic(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg, ctx := configOf(t, b), bounded(t)
	refused := 0
	b.Fake.ControlKey(int16(kmsg.Produce), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		b.Fake.KeepControl()
		if refused++; refused > 10 {
			return nil, nil, false
		}
		request := k.(*kmsg.ProduceRequest)
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		for _, asked := range request.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
			for _, part := range asked.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = part.Partition, kerr.UnknownTopicOrPartition.Code
				topic.Partitions = append(topic.Partitions, p)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	a := openAdmin(t, cfg)
	_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
	must(t, err)
	if f, err := a.Format(ctx); err != nil || f.Partitions != 2 || refused <= 10 {
		t.Errorf("the format is %+v, %v, after %d refusals", f, err, refused)
	}
}
