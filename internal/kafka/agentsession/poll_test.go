package agentsession_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestPollReturnsWithinItsBound checks that a Poll without records returns within its bound, also when the session is
// paused or no broker is reachable. A health check relies on it: a Poll that takes longer hangs.
func TestPollReturnsWithinItsBound(t *testing.T) {
	t.Parallel() // it mostly waits
	b := kafkatest.Embedded(t)
	r := newRequests(t, b, 1)
	s := r.open(func(c *agentsession.Config) { c.PollWait = 300 * time.Millisecond })
	r.Write(0, 0, 1)
	r.poll(s, 1)
	returns := func(when string) {
		t.Helper()
		begun := time.Now()
		if rs, err := s.Poll(r.Ctx); err != nil || len(rs) > 0 {
			t.Errorf("%s: %v, %v", when, rs, err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: it took %s", when, took)
		}
	}
	returns("nothing to read")
	s.Pause()
	r.Write(0, 1, 2)
	returns("paused")
	s.Resume()
	r.poll(s, 1)
	b.Fake.Close()
	for range 3 {
		returns("no broker")
	}
}
