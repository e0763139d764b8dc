package logreader

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// TestFetchesThatFail checks the handling of fetch errors. After a leader change or a broker failure, the fetch is
// retried with a growing backoff. Errors that no retry fixes end the follower.
func TestFetchesThatFail(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	f, now := fetcher{client: client}, time.Now()
	fresh := func() *partitionReader {
		return &partitionReader{at: kafka.TopicPartition{Topic: "t", Partition: 3}, batches: newBatchReader("t", 3, 0, true), leader: noBroker}
	}

	r := fresh()
	for wait, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		err := []error{kerr.NotLeaderForPartition, errors.New("connection refused"), kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch}[wait%4]
		if failed := f.retryLater(r, err, now); failed != nil || r.retryAt.Sub(now) != want*time.Millisecond {
			t.Errorf("failure %d, %v: again after %v, %v, want %v", wait+1, err, r.retryAt.Sub(now), failed, want)
		}
	}
	if r.resetBackoff(); r.backoff != 0 || r.retryAt.After(now) {
		t.Errorf("one that is well waits until %v", r.retryAt)
	}
	for _, err := range []error{kerr.TopicAuthorizationFailed, kerr.SaslAuthenticationFailed, kgo.ErrClientClosed, kerr.UnsupportedCompressionType} {
		if failed := f.retryLater(fresh(), err, now); !errors.Is(failed, err) {
			t.Errorf("%v: %v", err, failed)
		}
	}
	for _, err := range []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID} {
		r, waited := fresh(), time.Duration(0)
		for f.retryLater(r, err, now) == nil {
			waited += r.backoff
		}
		if waited < 10*time.Second || waited > 20*time.Second {
			t.Errorf("%v: ended the follower after %v", err, waited)
		}
	}
}

// TestAnswersForPartitionsThatWent checks that an error in a response for a partition that was reassigned doesn't end
// the follower. The next owner handles it.
func TestAnswersForPartitionsThatWent(t *testing.T) {
	f := &Follower{balancer: groupmember.NewBalancer(4)}
	r := &partitionReader{at: kafka.TopicPartition{Topic: "t", Partition: 3}, assignment: 7, batches: newBatchReader("t", 3, 0, true), leader: noBroker}
	for _, err := range []error{kerr.OffsetOutOfRange, kerr.TopicAuthorizationFailed} {
		if failed := f.handlePartition(t.Context(), partitionResponse{partitionReader: r, err: err}); failed != nil {
			t.Errorf("%v: %v", err, failed)
		}
	}
}

// TestAnswersThatSayNothing checks a response that omits a partition, and one of a lagging leader. Neither changes the
// known end of the log, and the partition that was omitted isn't fetched again immediately.
func TestAnswersThatSayNothing(t *testing.T) {
	f := &Follower{balancer: groupmember.NewBalancer(4), progress: map[string]map[int32]partitionProgress{"t": {3: {position: 5, highWatermark: 9, tail: 9}}}}
	f.balancer.OwnAll()
	r := &partitionReader{at: kafka.TopicPartition{Topic: "t", Partition: 3}, assignment: 1, batches: newBatchReader("t", 3, 5, true), leader: noBroker}
	lags := kmsg.NewFetchResponseTopicPartition()
	lags.Partition, lags.HighWatermark, lags.LastStableOffset = 3, 4, 4
	for _, p := range []*kmsg.FetchResponseTopicPartition{nil, &lags} {
		if err := f.handlePartition(t.Context(), partitionResponse{partitionReader: r, partition: p}); err != nil || r.batches.position != 5 {
			t.Errorf("it goes on at %d, %v", r.batches.position, err)
		}
		if tail, _ := f.Tail("t", 3); tail != 9 {
			t.Errorf("committed records end at %d, it says now", tail)
		}
		if waits := r.retryAt.After(time.Now()); waits != (p == nil) {
			t.Errorf("partition %v: waits: %v", p, waits)
		}
	}
}
