package kafkaadmin_test

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// TestFormatWithoutALeader: while no broker leads the definitions, the error names the partition, as those of other topics
// do, and doesn't end as a fault of the namespace.
func TestFormatWithoutALeader(t *testing.T) {
	t.Parallel()
	c, cfg := fake(t, kfake.NumBrokers(1))
	a, ctx := openAdmin(t, cfg), bounded(t)
	if _, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	definitions := cfg.Namespace.Definitions()
	leaveLeaderless(t, c, definitions)
	_, err := openAdmin(t, cfg).Format(ctx)
	if unled, is := errors.AsType[*logreader.UnavailableError](err); !is || unled.Topic != definitions || !slices.Equal(unled.Partitions, []int32{0}) {
		t.Errorf("%v", err)
	}
}

// leaveLeaderless makes brokers say that nobody leads the partition of a topic.
func leaveLeaderless(t *testing.T, c *kfake.Cluster, topic string) {
	t.Helper()
	host, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	must(t, err)
	port, err := strconv.ParseInt(text, 10, 32)
	must(t, err)
	c.ControlKey(int16(kmsg.Metadata), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		c.KeepControl()
		resp := k.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = host, int32(port)
		resp.Brokers, resp.ControllerID = append(resp.Brokers, broker), broker.NodeID
		of := kmsg.NewMetadataResponseTopic()
		of.Topic = &topic
		p := kmsg.NewMetadataResponseTopicPartition()
		p.ErrorCode, p.Leader = kerr.LeaderNotAvailable.Code, -1
		of.Partitions = append(of.Partitions, p)
		resp.Topics = append(resp.Topics, of)
		return resp, nil, true
	})
}
