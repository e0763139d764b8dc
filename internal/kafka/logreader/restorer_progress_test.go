package logreader_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestReadWaitsForABrokerThatDoesNotSayWhatIsCommitted checks a read while no broker can say where the committed
// records end. The read waits, and reports no open transaction.
func TestReadWaitsForABrokerThatDoesNotSayWhatIsCommitted(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	const away = time.Second // longer than writing the markers of a transaction may take
	s := embedded(t)
	heldBack := &atomic.Bool{}
	r := s.restorer(t, &logreader.RestoreListener{Blocked: func(string, int32, int64, int64) { heldBack.Store(true) }})
	s.Transact(t, 0, kgo.TryCommit, "a", "b")
	s.awaitEnd(t, r, 0, 3)
	for way, read := range s.ways(t, r, []int64{0, 1}) {
		until := time.Now().Add(away)
		s.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
			s.Fake.KeepControl()
			request := k.(*kmsg.ListOffsetsRequest)
			if request.IsolationLevel == 0 || time.Now().After(until) {
				return nil, nil, false
			}
			return leaderlessError(request), nil, true
		})
		if values, err := read(); err != nil || !slices.Equal(values, []string{"a", "b"}) {
			t.Errorf("%s: %q, %v", way, values, err)
		}
	}
	if heldBack.Load() {
		t.Error("it was said that a transaction is open")
	}
}

// leaderlessError answers a ListOffsets request: no partition has a leader.
func leaderlessError(request *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, asked := range request.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = asked.Topic
		for _, part := range asked.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.ErrorCode = part.Partition, kerr.LeaderNotAvailable.Code
			topic.Partitions = append(topic.Partitions, p)
		}
		response.Topics = append(response.Topics, topic)
	}
	return response
}

// TestReadSaysHowFarItIs checks that a long read reports its progress, and the error that delays it.
func TestReadSaysHowFarItIs(t *testing.T) {
	t.Parallel() // it mostly waits
	type said struct {
		next, end int64
		trouble   bool
	}
	s := embedded(t)
	var all []said
	r := s.restorer(t, &logreader.RestoreListener{Progress: func(topic string, p int32, next, end int64, trouble error) {
		if topic != s.NS.Events() || p != 1 {
			t.Errorf("said of %s/%d", topic, p)
		}
		all = append(all, said{next, end, trouble != nil})
	}})
	s.Transact(t, 1, kgo.TryCommit, "a", "b")
	s.awaitEnd(t, r, 1, 3)
	if s.read(t, r, 1, 0); len(all) > 0 {
		t.Errorf("of a short read it was said: %v", all)
	}
	left := s.said(s.NS.Events(), 1<<30, nothingOf)
	time.AfterFunc(1500*time.Millisecond, func() { left.Store(0) })
	if s.read(t, r, 1, 0); len(all) != 1 || all[0] != (said{0, 3, true}) {
		t.Errorf("it was said: %v", all)
	}
}
