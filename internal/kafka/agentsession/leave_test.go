package agentsession_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestLeavingAGroupThatHasGoneOnIsNoFailure checks a session that leaves after its group has rebalanced without it. It
// can't commit any more, and the partition's new owner gets the requests again. The failed commit is reported, but
// Close returns no error, so that an agent that is asked to stop exits with code 0.
func TestLeavingAGroupThatHasGoneOnIsNoFailure(t *testing.T) {
	b := kafkatest.Embedded(t)
	r := newRequests(t, b, 1)
	r.Write(0, 0, 1)
	var told atomic.Value
	s := r.open(func(c *agentsession.Config) {
		c.CommitEvery = time.Hour // only in Close
		c.Listener.TransientError = func(err error) { told.Store(err) }
	})
	r.poll(s, 1)
	s.Done(0, 0)
	b.Fake.ControlKey(int16(kmsg.OffsetCommit), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		b.Fake.KeepControl()
		req := k.(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range req.Topics {
			at := kmsg.NewOffsetCommitResponseTopic()
			at.Topic, at.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				answer := kmsg.NewOffsetCommitResponseTopicPartition()
				answer.Partition, answer.ErrorCode = p.Partition, kerr.IllegalGeneration.Code
				at.Partitions = append(at.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp, nil, true
	})
	if err := s.Close(bounded(t)); err != nil {
		t.Errorf("leaving failed: %v", err)
	}
	if err, _ := told.Load().(error); !errors.Is(err, kerr.IllegalGeneration) {
		t.Errorf("what could not be committed was told as %v", err)
	}
}
