package kafkatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/suite"
)

// metadataTopic is the metadata log of KRaft's controllers. It has one partition.
const metadataTopic = "__cluster_metadata"

// Controller returns the index, counted from 0, of the active controller's node.
func (b *Broker) Controller(t testing.TB) int {
	t.Helper()
	id, err := b.controller(t)
	if err != nil {
		t.Fatalf("ask for the controller of the %s broker: %v", b.Kind, err)
	}
	return int(id) - 1
}

// Coordinator returns the index, counted from 0, of the node that coordinates a group.
func (b *Broker) Coordinator(t testing.TB, group string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	at := kadm.NewClient(b.Client(t)).FindGroupCoordinators(ctx, group)[group]
	if at.Err != nil {
		t.Fatalf("ask for the coordinator of group %s of the %s broker: %v", group, b.Kind, at.Err)
	}
	return int(at.NodeID) - 1
}

func (b *Broker) controller(t testing.TB) (id int32, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: metadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	answer, err := req.RequestWith(ctx, b.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		return 0, err
	}
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			return p.LeaderID, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return 0, fmt.Errorf("the answer says nothing about %s", metadataTopic)
}
