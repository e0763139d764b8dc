package schedulerworker_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestPositionsAreCommittedByAGeneration checks that a transaction commits positions with the member id and its
// generation. They fence an owner that lost its partitions, wherever it stopped. Tests with a frozen worker don't show
// it, because its own client usually notices first. If the group refuses the generation, the transaction is aborted.
func TestPositionsAreCommittedByAGeneration(t *testing.T) {
	t.Parallel() // it mostly waits
	s := embedded(t)
	l := openWorker(t, s.worker("one"))
	untilAssigned(t, l, testPartitions)
	var mu sync.Mutex
	var named []string
	refuse := true
	s.Fake.ControlKey(int16(kmsg.TxnOffsetCommit), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		req := k.(*kmsg.TxnOffsetCommitRequest)
		if req.Generation < 0 || req.MemberID == "" {
			t.Errorf("positions were committed by generation %d, member %q: the group fences nobody by that", req.Generation, req.MemberID)
		}
		named = append(named, fmt.Sprint(req.MemberID, req.Generation))
		if !refuse {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, topic := range req.Topics {
			at := kmsg.NewTxnOffsetCommitResponseTopic()
			at.Topic, at.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				answer := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				answer.Partition, answer.ErrorCode = p.Partition, kerr.IllegalGeneration.Code
				at.Partitions = append(at.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp, nil, true
	})
	cl := s.Outside(t)
	kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
	rs := poll(t, l)
	if committed, err := l.Commit(t.Context(), s.Reflect(rs)); committed || err != nil {
		t.Fatalf("committed %v, %v: the group refused its generation", committed, err)
	}
	mu.Lock()
	refuse = false
	mu.Unlock()
	rs = poll(t, l)
	commit(t, l, len(rs), s.Reflect(rs))
	if seen := s.Reflected(t, 1); len(seen) != 1 || seen[s.Inboxes[3]+"/4/0"] != 1 {
		t.Errorf("events: %v", seen)
	}
	if mu.Lock(); len(named) < 2 {
		t.Errorf("positions were committed by %v", named)
	}
	mu.Unlock()
}
