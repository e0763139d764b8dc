package agentsession_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// answerOffsets answers an OffsetFetch request without commits. Partition 0 has an error, or is left out if code is 0.
func answerOffsets(req *kmsg.OffsetFetchRequest, code int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, g := range req.Groups {
		group := kmsg.NewOffsetFetchResponseGroup()
		group.Group = g.Group
		for _, t := range g.Topics {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, number := range t.Partitions {
				p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				p.Partition, p.Offset = number, -1
				if number == 0 {
					p.ErrorCode = code
				}
				if number != 0 || code != 0 {
					topic.Partitions = append(topic.Partitions, p)
				}
			}
			group.Topics = append(group.Topics, topic)
		}
		resp.Groups = append(resp.Groups, group)
	}
	return resp
}

// TestPartitionWhoseOffsetCantBeFetched checks a partition whose committed offset can't be fetched when it is assigned.
// The error is reported, and the session joins again and reads the partition.
func TestPartitionWhoseOffsetCantBeFetched(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]struct {
		err      *kerr.Error // nil: the partition is left out
		requests int32       // until the client gives up
	}{
		"not permitted":    {kerr.TopicAuthorizationFailed, 1},
		"unknown topic id": {kerr.UnknownTopicID, 4},
		"left out":         {nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := kafkatest.Embedded(t)
			r := newRequests(t, b, 2)
			r.Write(0, 0, 1)
			r.Write(1, 1, 2)
			var answered atomic.Int32
			b.Fake.ControlKey(int16(kmsg.OffsetFetch), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
				b.Fake.KeepControl()
				if answered.Add(1) > c.requests {
					return nil, nil, false
				}
				var code int16
				if c.err != nil {
					code = c.err.Code
				}
				return answerOffsets(k.(*kmsg.OffsetFetchRequest), code), nil, true
			})
			told := make(chan error, 1000)
			s := r.open(func(cfg *agentsession.Config) { cfg.Listener.TransientError = func(err error) { told <- err } })
			got := map[string]bool{}
			for len(got) < 2 {
				for _, value := range r.poll(s, 1) {
					got[value] = true
				}
			}
			if n := answered.Load(); n <= c.requests {
				t.Errorf("offsets were requested %d times: the test shows nothing", n)
			}
			var errs []error
			for len(told) > 0 {
				errs = append(errs, <-told)
			}
			if c.err != nil && !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, c.err) }) {
				t.Errorf("reported: %v", errs)
			}
		})
	}
}
