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

// awaitKnown waits until a session knows the end of a partition at the time of its assignment.
func (r *requests) awaitKnown(s *agentsession.Session, partition int32) {
	r.T.Helper()
	for s.MayHaveStarted(partition, 1<<60) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.Ctx.Done():
			r.T.Fatal("it never knows where the partition ended")
		}
	}
}

// TestInheritedIsWhatWasThereWhenThePartitionCame checks MayHaveStarted: a previous owner may have started the requests
// that were in the partition when it was assigned, and no later ones.
func TestInheritedIsWhatWasThereWhenThePartitionCame(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		r.Write(0, 0, 3)
		first := r.open()
		r.poll(first, 3)
		r.awaitKnown(first, 0)
		r.Write(0, 3, 5)
		r.poll(first, 2)
		for offset, want := range []bool{true, true, true, false, false} {
			if first.MayHaveStarted(0, int64(offset)) != want {
				t.Errorf("%d is inherited: %v", offset, !want)
			}
		}
		first.Done(0, 0)
		r.awaitCommit(0, 1)
		must(t, first.Close(r.Ctx))
		if !first.MayHaveStarted(0, 4) {
			t.Error("a partition that has gone is nobody's to say")
		}

		second := r.open()
		r.poll(second, 4)
		r.awaitKnown(second, 0)
		if !second.MayHaveStarted(0, 4) || second.MayHaveStarted(0, 5) {
			t.Errorf("the next owner inherits 4: %v, 5: %v", second.MayHaveStarted(0, 4), second.MayHaveStarted(0, 5))
		}
	})
}

// TestInheritedWhileItIsNotKnown checks that MayHaveStarted is true for every request while the end of the partition at
// its assignment is unknown.
func TestInheritedWhileItIsNotKnown(t *testing.T) {
	t.Parallel() // it mostly waits
	b := kafkatest.Embedded(t)
	r := newRequests(t, b, 1)
	r.Write(0, 0, 1)
	var refused atomic.Int32
	b.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		b.Fake.KeepControl()
		req := k.(*kmsg.ListOffsetsRequest)
		if req.Topics[0].Partitions[0].Timestamp != -1 || refused.Load() == 2 {
			return nil, nil, false
		}
		refused.Add(1)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		at := kmsg.NewListOffsetsResponseTopic()
		at.Topic = req.Topics[0].Topic
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.ErrorCode = kerr.UnknownServerError.Code
		at.Partitions = append(at.Partitions, p)
		resp.Topics = append(resp.Topics, at)
		return resp, nil, true
	})
	told := make(chan error, 10)
	s := r.open(func(c *agentsession.Config) { c.Listener.TransientError = func(err error) { told <- err } })
	r.poll(s, 1)
	for range 2 {
		select {
		case err := <-told:
			if !errors.Is(err, kerr.UnknownServerError) {
				t.Errorf("reported: %v", err)
			}
		case <-r.Ctx.Done():
			t.Fatal("nothing is told")
		}
		if !s.MayHaveStarted(0, 1) {
			t.Error("what may have been begun isn't taken for it")
		}
	}
	r.awaitKnown(s, 0)
	if !s.MayHaveStarted(0, 0) || s.MayHaveStarted(0, 1) {
		t.Errorf("inherits 0: %v, 1: %v", s.MayHaveStarted(0, 0), s.MayHaveStarted(0, 1))
	}
}
