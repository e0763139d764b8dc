package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/internal/suite"
)

// CommitOffset commits an offset for a group without members.
func (b *Broker) CommitOffset(t testing.TB, group, topic string, partition int32, at int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1})
	if err := kadm.NewClient(b.Client(t)).CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatalf("commit an offset of group %s: %v", group, err)
	}
}
