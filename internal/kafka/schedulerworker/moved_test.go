package schedulerworker

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestCommitOfAPartitionThatWentAndCameBack checks a partition that is reassigned and returns between a poll and its
// commit. The client sees no difference, but another owner may have changed the state behind the decision. So the
// transaction is aborted, and the record is polled again.
func TestCommitOfAPartitionThatWentAndCameBack(t *testing.T) {
	const partitions = 2
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second), kfake.SeedTopics(partitions, "in", "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	l, err := Open(ctx, Config{Config: kafka.Config{Brokers: cluster.ListenAddrs(), Namespace: "t."}, Group: "g", Owner: "o",
		Topics: []string{"in"}, Partitions: partitions, SessionTimeout: 5 * time.Second, TransactionTimeout: 10 * time.Second, FetchMaxWait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "in", Partition: 1, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	poll := func() events.Record {
		t.Helper()
		for {
			rs, err := l.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for p := range l.Assigned() {
				l.Resume(p, inboxgate.PausedForRestore)
			}
			if len(rs) > 0 {
				return rs[0]
			}
		}
	}
	first := poll()
	before := l.Assigned()[1]
	for _, owned := range [][]int32{{0}, {0, 1}} { // like two assignments by the group leader
		given := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "in", Partitions: owned}}}
		if _, err := l.balancer.ParseSyncAssignment(given.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if after := l.Assigned()[1]; after == before {
		t.Fatalf("the partition's number is %d still", after)
	}
	out := []events.Record{{Topic: "out", Partition: 1, Value: []byte("decided")}}
	if committed, err := l.Commit(ctx, out); committed || err != nil {
		t.Fatalf("committed %v, %v: what was polled is of an assignment that is over", committed, err)
	}
	if again := poll(); again.Offset != first.Offset {
		t.Fatalf("offset %d came after the rollback, want %d again", again.Offset, first.Offset)
	}
	if committed, err := l.Commit(ctx, out); !committed || err != nil {
		t.Fatalf("committed %v, %v", committed, err)
	}
}
