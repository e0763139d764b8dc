package agentsession

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// TestSessionsHeartbeatAsOftenAsWorkers checks the heartbeat interval of sessions. A member learns of a rebalance from
// its next heartbeat, and moving a partition takes two rebalances. With only three heartbeats per session timeout,
// notifications resume seconds after events.
func TestSessionsHeartbeatAsOftenAsWorkers(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	must(t, err)
	t.Cleanup(broker.Close)
	cfg := kafka.Config{Brokers: broker.ListenAddrs(), Namespace: "test."}
	s, err := Open(t.Context(), Config{Config: cfg, Group: "g", Topic: "t", SessionTimeout: groupmember.DefaultSessionTimeout})
	must(t, err)
	if got, want := s.cl.OptValue(kgo.HeartbeatInterval).(time.Duration), groupmember.HeartbeatInterval(groupmember.DefaultSessionTimeout); got != want {
		t.Errorf("a heartbeat each %v, want each %v", got, want)
	}
	must(t, s.Close(t.Context()))
}
