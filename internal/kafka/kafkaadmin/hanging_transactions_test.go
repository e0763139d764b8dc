package kafkaadmin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestOpenTransactionsDoNotHang checks that a transaction that its coordinator will end isn't reported as hanging, and
// that the offsets that it commits are unstable.
func TestOpenTransactionsDoNotHang(t *testing.T) {
	kafkatest.EachSite(t, func(t *testing.T, s *kafkatest.Site) {
		s.Begin(t, "somebody-"+string(s.NS), 2, "open")
		kept := kadm.Offsets{}
		kept.Add(kadm.Offset{Topic: s.Inboxes[0], Partition: 0, At: 0, LeaderEpoch: -1})
		_, err := kadm.NewClient(s.Outside(t)).CommitOffsets(t.Context(), s.NS.SchedulerGroup(), kept) // creates the group
		must(t, err)
		s.KeepOffsetsUnstable(t, "another-"+string(s.NS), s.NS.SchedulerGroup(), s.Inboxes[0], 1)
		a, err := kafkaadmin.Open(s.Config)
		must(t, err)
		defer a.Close()
		if hanging, err := a.Hanging(t.Context()); err != nil || len(hanging) > 0 {
			t.Errorf("%v hang, %v", hanging, err)
		}
		if unstable, err := a.UnstablePartitions(t.Context(), kafkatest.SitePartitions); err != nil || !slices.Contains(unstable, 1) || s.Fake == nil && len(unstable) > 1 {
			t.Errorf("the offsets of %v are held back, %v; want 1", unstable, err)
		}
	})
}

// TestHangingTransactionsAreListed checks that a transaction unknown to its coordinator is listed for each partition in
// which it is open, with the command that aborts it there.
func TestHangingTransactionsAreListed(t *testing.T) {
	s := kafkatest.NewSite(t, kafkatest.Embedded(t))
	s.Fake.ControlKey(int16(kmsg.DescribeProducers), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		return longAgo(s, k.(*kmsg.DescribeProducersRequest)), nil, true
	})
	a, err := kafkaadmin.Open(s.Config)
	must(t, err)
	defer a.Close()
	hanging, err := a.Hanging(t.Context())
	if err != nil || len(hanging) != 2 {
		t.Fatalf("%v hang, %v", hanging, err)
	}
	for i, want := range []string{s.NS.Events() + " --partition 0 --start-offset 7", s.NS.Requests("a") + " --partition 1 --start-offset 7"} {
		if got := hanging[i].Abort(); !strings.HasSuffix(got, want) {
			t.Errorf("%q doesn't end with %q", got, want)
		}
	}
}

// longAgo returns a response in which an unknown producer left a transaction open in two partitions.
func longAgo(s *kafkatest.Site, request *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	answer := request.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, t := range request.Topics {
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			partition := kmsg.NewDescribeProducersResponseTopicPartition()
			partition.Partition = p
			if t.Topic == s.NS.Events() && p == 0 || t.Topic == s.NS.Requests("a") && p == 1 {
				producer := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				producer.ProducerID, producer.LastTimestamp, producer.CurrentTxnStartOffset = 4711, 1, 7
				partition.ActiveProducers = append(partition.ActiveProducers, producer)
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}
