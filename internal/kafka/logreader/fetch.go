package logreader

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	readCommitted   = 1  // the isolation level in a fetch request
	sessionlessOnly = -1 // the epoch that asks for no fetch session
)

// fetchRequest asks a leader for committed records of some of its partitions. Readers and followers fetch with it; the
// client's own fetches serve workers and sessions.
type fetchRequest struct{ *kmsg.FetchRequest }

// fetchResponse is the response to it.
type fetchResponse struct{ *kmsg.FetchResponse }

// newFetchRequest returns a request without partitions yet. A broker without records answers after wait.
func newFetchRequest(wait time.Duration) *fetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis = int32(wait / time.Millisecond)
	// Only the partitions have byte limits. kfake omits the aborted transactions of a response that reaches the
	// limit of the whole, and such a limit could starve the last partitions.
	request.MinBytes, request.MaxBytes = 1, math.MaxInt32
	request.IsolationLevel, request.SessionEpoch = readCommitted, sessionlessOnly
	return &fetchRequest{request}
}

// add asks for a partition from an offset on. The result is valid until the next add.
func (f *fetchRequest) add(at kafka.TopicPartition, id [16]byte, from int64, bytesMax int32) *kmsg.FetchRequestTopicPartition {
	i := slices.IndexFunc(f.Topics, func(t kmsg.FetchRequestTopic) bool { return t.Topic == at.Topic })
	if i < 0 {
		i = len(f.Topics)
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = at.Topic, id
		f.Topics = append(f.Topics, topic)
	}
	topic := &f.Topics[i]
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = at.Partition, from, bytesMax
	topic.Partitions = append(topic.Partitions, p)
	return &topic.Partitions[len(topic.Partitions)-1]
}

// send sends the request to a broker, and returns its response.
func (f *fetchRequest) send(ctx context.Context, client *kgo.Client, broker int32) (*fetchResponse, error) {
	response, err := client.Broker(int(broker)).Request(ctx, f.FetchRequest)
	if err != nil {
		return nil, err
	}
	return &fetchResponse{response.(*kmsg.FetchResponse)}, nil
}

// partition returns a partition of the response, or its error. It is nil if the response left it out.
func (f *fetchResponse) partition(at kafka.TopicPartition, id [16]byte) (*kmsg.FetchResponseTopicPartition, error) {
	if err := kerr.ErrorForCode(f.ErrorCode); err != nil {
		return nil, err
	}
	for i := range f.Topics {
		t := &f.Topics[i]
		// Versions from 13 on name topics only by id.
		if t.Topic != at.Topic && (t.Topic != "" || t.TopicID != id) {
			continue
		}
		for k := range t.Partitions {
			if p := &t.Partitions[k]; p.Partition == at.Partition {
				return p, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return nil, nil
}
