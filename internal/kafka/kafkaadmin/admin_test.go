package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const testNS = events.Namespace("test.")

func fake(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	must(t, err)
	t.Cleanup(c.Close)
	return c, kafka.Config{Brokers: c.ListenAddrs(), Namespace: testNS, ClientID: "test"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openProducer(t *testing.T, c kafka.Config) *kafka.Producer {
	t.Helper()
	p, err := kafka.OpenProducer(c)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func openAdmin(t *testing.T, c kafka.Config) *Admin {
	t.Helper()
	a, err := Open(c)
	must(t, err)
	t.Cleanup(a.Close)
	return a
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func findingsText(fs []Finding) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s: %s (%s)\n", f.Topic, f.What, f.Fix)
	}
	return b.String()
}

func TestCreateTopicsMakesANamespaceThatChecks(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		t.Run(fmt.Sprint(brokers), func(t *testing.T) {
			_, cfg := fake(t, kfake.NumBrokers(brokers))
			a, ctx := openAdmin(t, cfg), bounded(t)
			if _, err := a.CheckFormat(ctx); !errors.Is(err, ErrNoFormat) || !strings.Contains(err.Error(), "waybill topics create") {
				t.Fatalf("before: got %v, want ErrNoFormat with the next step", err)
			}
			want := CreateTopicsOptions{Partitions: 3, Agents: map[string]int32{"payments": 2, "shipping": 0}}
			report, err := a.CreateTopics(ctx, want)
			must(t, err)
			if len(report) != int(events.Inboxes)+7+2 {
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
				t.Errorf("what was just created is found wanting:\n%s", findingsText(findings))
			}
			f, err := a.CheckFormat(ctx)
			must(t, err)
			if f != (Format{Version: 1, Partitions: 3}) {
				t.Errorf("format %+v", f)
			}
			agents, leaderless, err := a.RequestTopics(ctx)
			must(t, err)
			if !maps.Equal(agents, map[string]int32{"payments": 2, "shipping": events.DefaultPartitions}) || len(leaderless) > 0 {
				t.Errorf("request topics: %v, without a leader %v", agents, leaderless)
			}

			again, err := a.CreateTopics(ctx, CreateTopicsOptions{Agents: want.Agents})
			must(t, err)
			for _, r := range again {
				if r.Created {
					t.Errorf("created twice: %+v", r)
				}
			}
			if n, err := a.EndOffsets(ctx, testNS.Definitions()); err != nil || n[0] != 1 {
				t.Errorf("definitions end at %v (%v), want one format record", n, err)
			}
			if _, err := a.CreateTopics(ctx, CreateTopicsOptions{Partitions: 4}); err == nil || !strings.Contains(err.Error(), "has 3 partitions, not 4") {
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
	_, err := a.CreateTopics(ctx, CreateTopicsOptions{Partitions: 2})
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
		if _, err := a.CreateTopics(ctx, CreateTopicsOptions{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s has %d partitions", topic, n)) {
			t.Errorf("topics create over it: got %v", err)
		}
		remake(topic, 2)
	}
	remake(testNS.Inbox(events.Replies), 10) // partitions were added
	if _, err = a.CheckFormat(ctx); err != nil {
		t.Errorf("an inbox with more partitions: got %v", err)
	}
	if _, err := a.CreateTopics(ctx, CreateTopicsOptions{}); err != nil {
		t.Errorf("topics create over it: got %v", err)
	}
	findings, err := a.CheckTopics(ctx)
	must(t, err)
	if text := findingsText(findings); !strings.Contains(text, "test.replies: 10 partitions instead of 2") || !strings.Contains(text, "test.replies: message.timestamp.type is CreateTime") {
		t.Errorf("findings:\n%s", text)
	}
	p := openProducer(t, cfg)
	must(t, p.Send(ctx, events.Record{Topic: testNS.Definitions(), Key: []byte("format"), Value: []byte(`{"format":2,"partitions":2}`), Partition: -1}))
	if _, err := a.CheckFormat(ctx); err == nil || !strings.Contains(err.Error(), "has format 2, this program knows 1") {
		t.Errorf("a newer format: got %v", err)
	}
	must(t, p.Send(ctx, events.Record{Topic: testNS.Definitions(), Key: []byte("format"), Value: []byte(`nonsense`), Partition: -1}))
	if _, err := a.CheckFormat(ctx); err == nil || errors.Is(err, ErrNoFormat) {
		t.Errorf("a format record that is none: got %v", err)
	}
}

// TestCheckTopicsFindsEachWeakness checks that each weakness is found by itself, names its topic and says how to fix
// it.
func TestCheckTopicsFindsEachWeakness(t *testing.T) {
	specs := topicSpecs(testNS, 4, map[string]int32{"payments": 2})
	sound := func(brokers int) map[string]topicState {
		state := make(map[string]topicState)
		for _, s := range specs {
			settings := maps.Clone(s.settings)
			settings["min.insync.replicas"] = strconv.Itoa(min(2, brokers))
			state[s.name] = topicState{s.partitions, min(3, brokers), settings}
		}
		return state
	}
	for _, brokers := range []int{1, 2, 3, 5} {
		if fs := checkTopics(specs, sound(brokers), brokers); len(fs) > 0 {
			t.Errorf("%d brokers, nothing is wrong: %s", brokers, findingsText(fs))
		}
	}
	set := func(k, v string) func(*topicState) { return func(s *topicState) { s.settings[k] = v } }
	for _, tt := range []struct {
		topic, want string
		spoil       func(*topicState)
	}{
		{testNS.Inbox(events.Tasks), "3 partitions instead of 4", func(s *topicState) { s.partitions = 3 }},
		{testNS.Events(), "5 partitions instead of 4", func(s *topicState) { s.partitions = 5 }},
		{testNS.Requests("payments"), "replication 2 with 3 brokers", func(s *topicState) { s.replication = 2 }},
		{testNS.Events(), "min.insync.replicas is 1, not 2", set("min.insync.replicas", "1")},
		{testNS.Alerts(), "message.timestamp.type is CreateTime, not LogAppendTime", set("message.timestamp.type", "CreateTime")},
		{testNS.Events(), "cleanup.policy is compact, not delete", set("cleanup.policy", "compact")},
		{testNS.Events(), "cleanup.policy is compact,delete, not delete", set("cleanup.policy", "compact,delete")},
		{testNS.Snapshots(), "cleanup.policy is delete, not compact", set("cleanup.policy", "delete")},
		{testNS.Events(), "retention.ms is 1000, not -1: tasks would be lost", set("retention.ms", "1000")},
		{testNS.Events(), "retention.bytes is 1000, not -1", set("retention.bytes", "1000")},
		{testNS.Inbox(events.Controls), "retention.ms is 604800000, not -1", set("retention.ms", "604800000")},
		{testNS.Inbox(events.Recoveries), "retention.bytes is 1000, not -1", set("retention.bytes", "1000")},
		{testNS.Definitions(), "unclean.leader.election.enable is true, not false", set("unclean.leader.election.enable", "true")},
		{testNS.Snapshots(), "max.message.bytes is 1000", set("max.message.bytes", "1000")},
	} {
		state := sound(3)
		s := state[tt.topic]
		tt.spoil(&s)
		state[tt.topic] = s
		fs := checkTopics(specs, state, 3)
		if len(fs) != 1 || fs[0].Topic != tt.topic || !strings.Contains(fs[0].What, tt.want) || fs[0].Fix == "" {
			t.Errorf("want one finding %q at %s, got:\n%s", tt.want, tt.topic, findingsText(fs))
		}
	}
	state := sound(3)
	delete(state, testNS.Answers())
	if fs := checkTopics(specs, state, 3); len(fs) != 1 || fs[0].What != "missing" {
		t.Errorf("a missing topic: %s", findingsText(fs))
	}
}

func TestReplicationFollowsTheBrokers(t *testing.T) {
	for _, tt := range []struct {
		asked   int16
		brokers int
		want    int16
		note    bool
		fails   bool
	}{
		{0, 1, 1, true, false}, {0, 2, 2, true, false}, {0, 3, 3, false, false}, {0, 9, 3, false, false},
		{1, 3, 1, true, false}, {5, 5, 5, false, false}, {4, 3, 0, false, true}, {-1, 3, 0, false, true},
	} {
		got, note, err := replicationFor(tt.asked, tt.brokers)
		if got != tt.want || (note != "") != tt.note || (err != nil) != tt.fails {
			t.Errorf("replicationFor(%d, %d) = %d, %q, %v", tt.asked, tt.brokers, got, note, err)
		}
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
	if err := openAdmin(t, kafka.Config{Brokers: c.ListenAddrs(), SASL: []sasl.Mechanism{wrong}}).Ping(bounded(t)); !errors.Is(err, ErrLogin) {
		t.Error(err)
	}
}
