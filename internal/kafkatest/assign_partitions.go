package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// AssignPartitions reassigns each partition of a namespace's topics to one node, which becomes its only replica. on
// returns the node's index, counted from 0.
func (b *Broker) AssignPartitions(t testing.TB, ns events.Namespace, on func(topic string, p int32) int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	admin := kadm.NewClient(b.Client(t))
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		t.Fatalf("list the topics of the %s broker: %v", b.Kind, err)
	}
	var moves kadm.AlterPartitionAssignmentsReq
	for name, topic := range topics {
		for p := range topic.Partitions {
			if ns.Owns(name) {
				moves.Assign(name, p, []int32{on(name, p) + 1})
			}
		}
	}
	moved, err := admin.AlterPartitionAssignments(ctx, moves)
	if err == nil {
		err = moved.Error()
	}
	if err != nil {
		t.Fatalf("move partitions of the %s broker: %v", b.Kind, err)
	}
}
