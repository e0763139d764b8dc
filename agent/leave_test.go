package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that wait for another call or for a circuit are left to other instances as soon as the process leaves. Only
// running handlers get the grace.
func TestWaitingRequestsAreLeftAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var abandoned atomic.Int32
		stop := start(t, s, Config{Concurrency: 2, Grace: time.Minute, Breaker: Breaker{Failures: 1, OpenFor: time.Hour},
			Listener: Listener{Abandoned: func(Request) { abandoned.Add(1) }}},
			func(_ context.Context, r Request) (any, error) {
				switch number(r.Task) {
				case 0:
					return nil, Pending(nil, time.Hour)
				case 1:
					return nil, RetryAfter(errors.New("busy"), time.Hour)
				}
				return nil, nil
			})
		for n := range 3 { // the last one waits for the circuit
			s.deliver(testRecord(n, time.Now().Add(24*time.Hour)))
			advance(time.Second)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took != 0 || abandoned.Load() != 3 || len(s.calls().done) != 0 {
			t.Errorf("left after %v, %d abandoned, done %v", took, abandoned.Load(), s.calls().done)
		}
	})
}
