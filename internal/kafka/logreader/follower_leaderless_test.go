package logreader_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestFollowerBeginsBesideAPartitionThatSaysNothing checks that a newly assigned partition whose offsets can't be
// listed, such as one without a leader, doesn't block the others. It counts as caught up only once its end is known.
func TestFollowerBeginsBesideAPartitionThatSaysNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	s := embedded(t)
	cl := s.Outside(t)
	kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 0, "a"), kafkatest.Input(s.NS.Events(), 1, "b"))
	var heals atomic.Bool
	s.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		if heals.Load() {
			return nil, nil, false
		}
		req := k.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		at := kmsg.NewListOffsetsResponseTopic()
		at.Topic = s.NS.Events()
		for _, p := range req.Topics[0].Partitions {
			answer := kmsg.NewListOffsetsResponseTopicPartition()
			answer.Partition, answer.Offset = p.Partition, 0
			switch {
			case p.Partition == 1:
				answer.ErrorCode = kerr.UnknownServerError.Code
			case p.Partition == 0 && p.Timestamp == -1:
				answer.Offset = 1
			}
			at.Partitions = append(at.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, at)
		return resp, nil, true
	})
	cfg := s.follower()
	cfg.Start = func(context.Context, string, int32) (int64, bool, error) { return 0, true, nil }
	f := openFollower(t, cfg)
	got := map[string]bool{}
	take := func(rs []events.Record) {
		for _, r := range rs {
			got[string(r.Value)] = true
		}
	}
	follow(t, f, "both", func(rs []events.Record) bool {
		take(rs)
		return got["a"] && got["b"]
	})
	if end, ok := f.HighWatermark(s.NS.Events(), 0); !ok || end != 1 {
		t.Errorf("of the partition beside it %d, %v is known", end, ok)
	}
	if end, ok := f.HighWatermark(s.NS.Events(), 1); ok {
		t.Errorf("it ended at %d, and nobody has said so", end)
	}
	if at, ok := f.Position(s.NS.Events(), 1); !ok || at != 1 {
		t.Errorf("it was read to %d, %v", at, ok)
	}
	heals.Store(true)
	follow(t, f, "its end", func([]events.Record) bool { return caughtUp(f, s.NS.Events(), testPartitions) })
}
