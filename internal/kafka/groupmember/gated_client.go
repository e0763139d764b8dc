package groupmember

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// GatedClient adapts a client to inboxgate.Client. Nothing else may pause or resume a fetching client (forbidigo, in
// .golangci.yml).
type GatedClient struct{ Client func() *kgo.Client }

// Pause implements inboxgate.Client.
func (c GatedClient) Pause(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		c.Client().PauseFetchTopics(in.Topic)
		return
	}
	c.Client().PauseFetchPartitions(map[string][]int32{in.Topic: {in.Partition}})
}

// Resume implements inboxgate.Client.
func (c GatedClient) Resume(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		c.Client().ResumeFetchTopics(in.Topic)
		return
	}
	c.Client().ResumeFetchPartitions(map[string][]int32{in.Topic: {in.Partition}})
}
