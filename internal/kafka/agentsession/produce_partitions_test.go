package agentsession

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestProducePartitions checks that the partitions of a produce request are found in each version of it, with the
// encoding of the client. Bytes that aren't a request are refused.
func TestProducePartitions(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	for version := int16(3); version <= req.MaxVersion(); version++ {
		for _, f := range []*kmsg.RequestFormatter{kmsg.NewRequestFormatter(), kmsg.NewRequestFormatter(kmsg.FormatterClientID("agent"))} {
			req := kmsg.NewPtrProduceRequest()
			topic := kmsg.NewProduceRequestTopic()
			topic.Topic = "waybill.replies"
			for _, p := range []int32{0, 7} {
				partition := kmsg.NewProduceRequestTopicPartition()
				partition.Partition, partition.Records = p, []byte("records")
				topic.Partitions = append(topic.Partitions, partition)
			}
			req.Topics = append(req.Topics, topic)
			req.SetVersion(version)
			b := f.AppendRequest(nil, req, 1)
			if ps, ok := producePartitions(b); !ok || !slices.Equal(ps, []int32{0, 7}) {
				t.Errorf("version %d: %d, %v", version, ps, ok)
			}
			if ps, ok := producePartitions(b[:len(b)/2]); ok {
				t.Errorf("half of version %d: %d", version, ps)
			}
		}
	}
	if _, ok := producePartitions([]byte{0, 0, 0, 2, 0, 0}); ok {
		t.Error("a request without a version is decoded")
	}
}
