package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// refusal is an error of a cluster that doesn't permit an instance what it needs.
type refusal struct{ permanent bool }

func (refusal) Error() string     { return "not permitted" }
func (refusal) Refused() bool     { return true }
func (r refusal) Permanent() bool { return r.permanent }

// rejoin runs an agent whose health fails for a while. open returns the error of joining the group again, and close that
// of leaving it. It returns the error of Run, or errStillRunning.
func rejoin(t *testing.T, cfg Config, open func() error, close error) (sessions int, err error) {
	t.Helper()
	var sick atomic.Bool
	cfg.Source = "test"
	cfg.Open = func(context.Context) (Session, error) {
		if sessions > 0 {
			if err := open(); err != nil {
				return nil, err
			}
		}
		sessions++
		return &unclosable{newFakeSession(), close}, nil
	}
	cfg.Health = Health{Every: time.Second, Failures: 3, Check: func(context.Context) error {
		if sick.Load() {
			return errors.New("disk full")
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, HandlerFunc(completes)) }()
	time.Sleep(10 * time.Second)
	sick.Store(true)
	time.Sleep(5 * time.Second)
	sick.Store(false)
	time.Sleep(5 * time.Minute)
	select {
	case err = <-ended:
		cancel()
	default:
		err = errStillRunning
		cancel()
		if ended := <-ended; ended != nil && close == nil {
			t.Errorf("Run: %v", ended)
		}
	}
	return sessions, err
}

var errStillRunning = errors.New("the agent runs")

// unclosable is a session whose Close may fail.
type unclosable struct {
	*fakeSession
	err error
}

func (s *unclosable) Close(ctx context.Context) error {
	return errors.Join(s.fakeSession.Close(ctx), s.err)
}

// TestRejoin checks which errors end an agent that joins its group again.
func TestRejoin(t *testing.T) {
	unreachable := errors.New("dial tcp: connection refused")
	for name, c := range map[string]struct {
		err      error
		lasts    time.Duration // from the first try to join again
		sessions int
		ends     bool
	}{
		"brokers that restart":      {unreachable, 2 * time.Minute, 2, false},
		"brokers that stay away":    {unreachable, time.Hour, 1, false},
		"ACLs that are repaired":    {refusal{}, 30 * time.Second, 2, false},
		"ACLs that stay wrong":      {refusal{}, time.Hour, 1, true},
		"an error that is final":    {refusal{permanent: true}, time.Hour, 1, true},
		"the group is joined again": {nil, 0, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var first time.Time
				failed := 0
				cfg := Config{Listener: Listener{JoinFailed: func(err error, wait time.Duration) {
					if failed++; !errors.Is(err, c.err) || wait <= 0 || wait > rejoinWaitMax {
						t.Errorf("%v, again after %v", err, wait)
					}
				}}}
				sessions, err := rejoin(t, cfg, func() error {
					if first.IsZero() {
						first = time.Now()
					}
					if time.Since(first) < c.lasts {
						return c.err
					}
					return nil
				}, nil)
				if sessions != c.sessions || errors.Is(err, errStillRunning) == c.ends || c.ends && !errors.Is(err, c.err) {
					t.Errorf("%d sessions, %v", sessions, err)
				}
				if failed > 5*60/4 {
					t.Errorf("%d tries in five minutes", failed)
				}
			})
		})
	}
}

// TestHealthFailsWhileBrokersAreUnavailable checks that an agent that can't leave its group joins it again.
func TestHealthFailsWhileBrokersAreUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable := errors.New("dial tcp: connection refused")
		var left error
		cfg := Config{Listener: Listener{Left: func(reason error) {
			if left == nil {
				left = reason
			}
		}}}
		sessions, err := rejoin(t, cfg, func() error { return nil }, unreachable)
		if sessions != 2 || !errors.Is(err, errStillRunning) || !errors.Is(left, unreachable) {
			t.Errorf("%d sessions, %v; left: %v", sessions, err, left)
		}
	})
}
