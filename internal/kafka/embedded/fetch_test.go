package embedded_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestFetchSessionsDontOutliveTheBroker checks that a fetch session from before a restart is not answered from another
// client's new session, which would stall the partitions of the first client.
func TestFetchSessionsDontOutliveTheBroker(t *testing.T) {
	ctx, dir := bounded(t), t.TempDir()
	mine, other := testNS.Events(), testNS.Definitions()
	fetch := func(cfg kafka.Config, session, epoch int32, topics ...string) *kmsg.FetchResponse {
		t.Helper()
		cl := client(t, cfg, kgo.MaxVersions(kversion.V2_8_0())) // before topics had ids (KIP-516)
		req := kmsg.NewPtrFetchRequest()
		req.SessionID, req.SessionEpoch = session, epoch
		for _, name := range topics {
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic = name
			p := kmsg.NewFetchRequestTopicPartition()
			p.PartitionMaxBytes = 1 << 20
			topic.Partitions = append(topic.Partitions, p)
			req.Topics = append(req.Topics, topic)
		}
		answer, err := cl.Broker(0).Request(ctx, req)
		must(t, err)
		return answer.(*kmsg.FetchResponse)
	}
	first, cfg := start(t, embedded.Options{DataDir: dir})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	before := fetch(cfg, 0, 0, mine)
	must(t, kerr.ErrorForCode(before.ErrorCode))
	must(t, first.Close())

	_, cfg = start(t, embedded.Options{DataDir: dir})
	must(t, kerr.ErrorForCode(fetch(cfg, 0, 0, other).ErrorCode))
	for range 2 { // one refusal must not be the last
		if after := fetch(cfg, max(before.SessionID, 1), 1); after.ErrorCode != kerr.FetchSessionIDNotFound.Code {
			t.Errorf("a session of the broker before is answered with code %d: %d topics", after.ErrorCode, len(after.Topics))
		}
	}
	if after := fetch(cfg, 0, 0, other); after.SessionID != 0 {
		t.Errorf("a fetch began session %d", after.SessionID)
	}
}
