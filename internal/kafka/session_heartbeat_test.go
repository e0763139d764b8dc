package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestSessionsHeartbeatAsOftenAsWorkers checks the heartbeat interval of sessions. A member learns of a rebalance from
// its next heartbeat, and moving a partition takes two rebalances. With only three heartbeats per session timeout,
// notifications resume seconds after events.
func TestSessionsHeartbeatAsOftenAsWorkers(t *testing.T) {
	_, cfg := fake(t, kfake.SeedTopics(1, "t"))
	s, err := OpenSession(bounded(t), SessionConfig{Config: cfg, Group: "g", Topic: "t", SessionTimeout: DefaultSessionTimeout})
	must(t, err)
	if got, want := s.cl.OptValue(kgo.HeartbeatInterval).(time.Duration), HeartbeatInterval(DefaultSessionTimeout); got != want {
		t.Errorf("a heartbeat each %v, want each %v", got, want)
	}
	must(t, s.Close(bounded(t)))
}
