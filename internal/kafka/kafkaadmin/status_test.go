package kafkaadmin

import (
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/events"
)

// TestCopies checks the replica status in metadata: missing brokers, under-replicated partitions, and partitions below
// min.insync.replicas, which refuse writes. Topics of other namespaces are ignored.
func TestCopies(t *testing.T) {
	topic := func(name string, ps ...kadm.PartitionDetail) kadm.TopicDetail {
		d := kadm.TopicDetail{Topic: name, Partitions: kadm.PartitionDetails{}}
		for i, p := range ps {
			p.Partition = int32(i)
			d.Partitions[p.Partition] = p
		}
		return d
	}
	all := []int32{1, 2, 3}
	meta := kadm.Metadata{Brokers: kadm.BrokerDetails{{NodeID: 1}, {NodeID: 2}}, Topics: kadm.TopicDetails{
		"waybill.events": topic("waybill.events",
			kadm.PartitionDetail{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}},
			kadm.PartitionDetail{Leader: 2, Replicas: all, ISR: []int32{2, 1}},
			kadm.PartitionDetail{Leader: 1, Replicas: all, ISR: []int32{1}},
			kadm.PartitionDetail{Leader: -1, Replicas: []int32{3}, ISR: []int32{3}}),
		"waybill.tasks": topic("waybill.tasks", kadm.PartitionDetail{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}),
		"other":         topic("other", kadm.PartitionDetail{Leader: 1, Replicas: []int32{1, 9}, ISR: []int32{1}}),
	}}
	c := replicaStatusOf(meta, events.Namespace(events.DefaultNamespace).Owns)
	if !slices.Equal(c.MissingBrokers, []int32{3}) {
		t.Errorf("gone: %v", c.MissingBrokers)
	}
	if !maps.EqualFunc(c.UnderReplicated, map[string][]int32{"waybill.events": {1, 2}}, slices.Equal) {
		t.Errorf("behind: %v", c.UnderReplicated)
	}
	c.addUnderMinISR(meta, "waybill.events", 2)
	if !maps.EqualFunc(c.UnderMinISR, map[string][]int32{"waybill.events": {2}}, slices.Equal) {
		t.Errorf("too few: %v", c.UnderMinISR)
	}
}
