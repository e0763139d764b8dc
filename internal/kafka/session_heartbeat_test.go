package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A rebalance is noticed by the next heartbeat, and a handover takes two. So a session's heartbeats
// are as frequent as those of a scheduler's workers: with three in a session timeout,
// notifications came back 6 s after events did.
func TestSessionsHeartbeatAsOftenAsWorkers(t *testing.T) {
	_, cfg := fake(t, kfake.SeedTopics(1, "t"))
	s, err := OpenSession(bounded(t), SessionConfig{Config: cfg, Group: "g", Topic: "t", SessionTimeout: DefaultSessionTimeout})
	must(t, err)
	if got, want := s.cl.OptValue(kgo.HeartbeatInterval).(time.Duration), heartbeatInterval(DefaultSessionTimeout); got != want {
		t.Errorf("a heartbeat each %v, want each %v", got, want)
	}
	must(t, s.Close(bounded(t)))
}
