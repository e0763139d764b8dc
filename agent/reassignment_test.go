package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// returningSession is a session whose partition comes back while the agent asks for it: the answer is that it is lost,
// and the request is delivered again.
type returningSession struct {
	*movingSession
	asked func() // called by the first question after lose
	lost  atomic.Bool
}

func (s *returningSession) HeldContext(p int32) context.Context {
	if !s.lost.Swap(false) {
		return s.movingSession.HeldContext(p)
	}
	s.asked()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	return gone
}

// If the partition of a request that waits for its next call comes back while the request is abandoned, the request is
// delivered again, and must not be ignored as one in progress.
func TestPartitionComesBackWhileARequestIsAbandoned(t *testing.T) {
	here := t.Context()
	s := &returningSession{movingSession: &movingSession{fakeSession: newFakeSession()}}
	s.held.Store(&here)
	rec, accepted, finished := testRecord(1, time.Now().Add(time.Hour)), make(chan struct{}), make(chan struct{})
	s.asked = func() {
		s.mu.Lock()
		s.ready = append(s.ready, rec, events.Record{Offset: 2, Value: []byte("malformed")})
		s.signal()
		s.mu.Unlock()
		select {
		case <-accepted:
		case <-time.After(200 * time.Millisecond): // it waits until the request was removed
		}
	}
	var calls atomic.Int32
	stop := start(t, s.fakeSession, Config{Open: func(context.Context) (Session, error) { return s, nil },
		Listener: Listener{
			Malformed: func(events.Record, error) { close(accepted) },
			Finished:  func(Request, events.Outcome, time.Duration) { close(finished) },
		},
	}, func(context.Context, Request) (any, error) {
		if calls.Add(1) == 1 {
			s.lost.Store(true)
			return nil, Transient(errors.New("busy"))
		}
		return nil, nil
	})
	s.deliverUntil(time.Now().Add(2*time.Hour), rec)
	select {
	case <-finished:
	case <-time.After(suite.Patience):
		t.Error("the request that was delivered again is ignored")
	}
	stop()
}
