package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// gatedClient adapts a client to inboxgate.Client. Nothing else may pause or resume a fetching client (forbidigo, in
// .golangci.yml).
type gatedClient struct{ client func() *kgo.Client }

// Pause implements inboxgate.Client.
func (c gatedClient) Pause(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		c.client().PauseFetchTopics(in.Topic)
		return
	}
	c.client().PauseFetchPartitions(map[string][]int32{in.Topic: {in.Partition}})
}

// Resume implements inboxgate.Client.
func (c gatedClient) Resume(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		c.client().ResumeFetchTopics(in.Topic)
		return
	}
	c.client().ResumeFetchPartitions(map[string][]int32{in.Topic: {in.Partition}})
}
