package kafkaadmin_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

const testNS = events.Namespace("test.")

func TestCreateTopicsMakesANamespaceThatChecks(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		t.Run(fmt.Sprint(brokers), func(t *testing.T) {
			_, cfg := fake(t, kfake.NumBrokers(brokers))
			a, ctx := openAdmin(t, cfg), bounded(t)
			if _, err := a.CheckFormat(ctx); !errors.Is(err, kafkaadmin.ErrNoFormat) || !strings.Contains(err.Error(), "waybill topics create") {
				t.Fatalf("before: got %v, want ErrNoFormat with the next step", err)
			}
			want := kafkaadmin.CreateTopicsOptions{Partitions: 3, Agents: map[string]int32{"payments": 2, "shipping": 0}}
			report, err := a.CreateTopics(ctx, want)
			must(t, err)
			if len(report) != int(events.Inboxes)+9+2 {
				t.Errorf("%d topics: %+v", len(report), report)
			}
			for _, r := range report {
				said := strings.Contains(r.Note, "single broker")
				if !r.Created || int(r.Replication) != brokers || said != (brokers == 1) {
					t.Errorf("with %d brokers: %+v", brokers, r)
				}
			}
			findings, err := a.CheckTopics(ctx)
			must(t, err)
			if len(findings) > 0 {
				t.Errorf("what was just created is found wanting:\n%s", kafkaadmin.FindingsText(findings))
			}
			f, err := a.CheckFormat(ctx)
			must(t, err)
			if f != (kafkaadmin.Format{Version: 1, Partitions: 3}) {
				t.Errorf("format %+v", f)
			}
			agents, leaderless, err := a.RequestTopics(ctx)
			must(t, err)
			if !maps.Equal(agents, map[string]int32{"payments": 2, "shipping": events.DefaultPartitions}) || len(leaderless) > 0 {
				t.Errorf("request topics: %v, without a leader %v", agents, leaderless)
			}

			again, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Agents: want.Agents})
			must(t, err)
			for _, r := range again {
				if r.Created {
					t.Errorf("created twice: %+v", r)
				}
			}
			if n, err := a.EndOffsets(ctx, testNS.Definitions()); err != nil || n[0] != 1 {
				t.Errorf("definitions end at %v (%v), want one format record", n, err)
			}
			if _, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 4}); err == nil || !strings.Contains(err.Error(), "has 3 partitions, not 4") {
				t.Errorf("another partition count: got %v", err)
			}
			r, err := a.CreateRequestTopic(ctx, "late", 5)
			must(t, err)
			if r.Partitions != 5 || int(r.Replication) != brokers || !r.Created {
				t.Errorf("request topic of a new agent: %+v", r)
			}
		})
	}
}

func TestCheckFormatRefusesTopicsOfAnotherShape(t *testing.T) {
	c, cfg := fake(t)
	a, ctx := openAdmin(t, cfg), bounded(t)
	_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
	must(t, err)
	must(t, c.DeleteTopic(testNS.Inbox(events.Replies)))
	if _, err = a.CheckFormat(ctx); err == nil || !strings.Contains(err.Error(), "test.replies is missing; run `waybill topics create`") {
		t.Errorf("an inbox is missing: got %v", err)
	}
	must(t, c.CreateTopic(testNS.Inbox(events.Replies), 2, nil))
	remake := func(topic string, partitions int32) {
		must(t, c.DeleteTopic(topic))
		must(t, c.CreateTopic(topic, partitions, nil))
	}
	for topic, n := range map[string]int32{testNS.Inbox(events.Replies): 1, testNS.Events(): 3} {
		remake(topic, n)
		if _, err = a.CheckFormat(ctx); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s has %d partitions, and the namespace's format record says 2", topic, n)) {
			t.Errorf("%s with another partition count: got %v", topic, err)
		}
		if _, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s has %d partitions", topic, n)) {
			t.Errorf("topics create over it: got %v", err)
		}
		remake(topic, 2)
	}
	remake(testNS.Inbox(events.Replies), 10) // partitions were added
	if _, err = a.CheckFormat(ctx); err != nil {
		t.Errorf("an inbox with more partitions: got %v", err)
	}
	if _, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{}); err != nil {
		t.Errorf("topics create over it: got %v", err)
	}
	findings, err := a.CheckTopics(ctx)
	must(t, err)
	if text := kafkaadmin.FindingsText(findings); !strings.Contains(text, "test.replies: 10 partitions instead of 2") || !strings.Contains(text, "test.replies: message.timestamp.type is CreateTime") {
		t.Errorf("findings:\n%s", text)
	}
	p := openProducer(t, cfg)
	must(t, p.Send(ctx, events.Record{Topic: testNS.Definitions(), Key: []byte("format"), Value: []byte(`{"format":2,"partitions":2}`), Partition: -1}))
	if _, err := a.CheckFormat(ctx); err == nil || !strings.Contains(err.Error(), "has format 2, this program knows 1") {
		t.Errorf("a newer format: got %v", err)
	}
	must(t, p.Send(ctx, events.Record{Topic: testNS.Definitions(), Key: []byte("format"), Value: []byte(`nonsense`), Partition: -1}))
	if _, err := a.CheckFormat(ctx); err == nil || errors.Is(err, kafkaadmin.ErrNoFormat) {
		t.Errorf("a format record that is none: got %v", err)
	}
}

func TestTrimmedRecordsAreGoneAndOffsetsSayso(t *testing.T) {
	_, cfg := fake(t, kfake.SeedTopics(2, "t"))
	a, p, ctx := openAdmin(t, cfg), openProducer(t, cfg), bounded(t)
	for i := range 10 {
		must(t, p.Send(ctx, events.Record{Topic: "t", Partition: 0, Value: []byte(strconv.Itoa(i))}, events.Record{Topic: "t", Partition: 1, Value: []byte("x")}))
	}
	must(t, a.DeleteRecordsBefore(ctx, "t", map[int32]int64{0: 7, 1: 0}))
	must(t, a.DeleteRecordsBefore(ctx, "t", map[int32]int64{0: 3})) // already deleted
	starts, err := a.StartOffsets(ctx, "t")
	must(t, err)
	ends, err := a.EndOffsets(ctx, "t")
	must(t, err)
	if !maps.Equal(starts, map[int32]int64{0: 7, 1: 0}) || !maps.Equal(ends, map[int32]int64{0: 10, 1: 10}) {
		t.Errorf("starts %v, ends %v", starts, ends)
	}
	var got []string
	must(t, a.ReadCompacted(ctx, "t", func(r events.Record) error {
		if r.Partition == 0 {
			got = append(got, string(r.Value))
		}
		return nil
	}))
	if !slices.Equal(got, []string{"7", "8", "9"}) {
		t.Errorf("read %q after the trim", got)
	}
	if err := a.DeleteRecordsBefore(ctx, "t", map[int32]int64{0: 11}); err == nil {
		t.Error("a trim past the end succeeded")
	}
	if n, ok, err := a.TopicPartitions(ctx, "nowhere"); n != 0 || ok || err != nil {
		t.Errorf("TopicPartitions of a missing topic: %d, %v, %v", n, ok, err)
	}
	if created, err := a.EnsureTopic(ctx, "mine", 3); !created || err != nil {
		t.Errorf("EnsureTopic: %v, %v", created, err)
	}
	if created, err := a.EnsureTopic(ctx, "mine", 3); created || err != nil {
		t.Errorf("EnsureTopic again: %v, %v", created, err)
	}
}

func TestGroupsAreDescribedWithTheirLag(t *testing.T) {
	c, cfg := fake(t, kfake.SeedTopics(2, "t"))
	a, p, ctx := openAdmin(t, cfg), openProducer(t, cfg), bounded(t)
	if g, err := a.DescribeGroup(ctx, "g"); err != nil || g.State != "Dead" || len(g.Members) > 0 {
		t.Errorf("a group never seen: %+v, %v", g, err)
	}
	for range 5 {
		must(t, p.Send(ctx, events.Record{Topic: "t", Partition: 1, Value: []byte("x")}))
	}
	member, err := kgo.NewClient(append(cfg.ClientOptions(), kgo.ConsumerGroup("g"), kgo.InstanceID("one"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	must(t, err)
	defer member.Close()
	if _, err := c.WaitGroupStable(ctx, "g", 1); err != nil {
		t.Fatal(err)
	}
	fs := member.PollRecords(ctx, 2)
	must(t, fs.Err())
	must(t, member.CommitRecords(ctx, fs.Records()...))
	g, err := a.DescribeGroup(ctx, "g")
	must(t, err)
	if g.State != "Stable" || len(g.Members) != 1 || g.Members[0].InstanceID != "one" || !slices.Equal(g.Members[0].Partitions["t"], []int32{0, 1}) {
		t.Errorf("%+v", g)
	}
	lag, err := a.GroupLag(ctx, "g")
	must(t, err)
	if lag["t"][1] != 5-int64(fs.NumRecords()) {
		t.Errorf("lag %v after %d of 5", lag, fs.NumRecords())
	}
}

// TestRefusedPassword checks that a refused password is reported as such, and not as an unavailable broker.
func TestRefusedPassword(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", "right"))
	must(t, err)
	defer c.Close()
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) { // kfake doesn't answer with this error
		c.KeepControl()
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return answer, nil, true
	})
	wrong, err := kafka.SASL("PLAIN", "ann", "wrong")
	must(t, err)
	if err := openAdmin(t, kafka.Config{Brokers: c.ListenAddrs(), SASL: []sasl.Mechanism{wrong}}).Ping(bounded(t)); !errors.Is(err, kafkaadmin.ErrLogin) {
		t.Error(err)
	}
}
