package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/listener"
)

const (
	// returnTimeout is how long handlers may take to return, and their replies to be sent, once their
	// contexts were cancelled.
	returnTimeout = time.Second
	// closeTimeout bounds the last commit and leaving the group.
	closeTimeout = 10 * time.Second
	// The waits between tries to join the group again.
	rejoinWaitMin = 100 * time.Millisecond
	rejoinWaitMax = 5 * time.Second
	// rejoinRefusedMax is how long refusals are retried when the instance joins again. Credentials and ACLs may be
	// changed at run time.
	rejoinRefusedMax = time.Minute
)

// runner is the part of a run that survives a membership.
type runner struct {
	cfg      Config
	handler  Handler
	circuits *circuits
	// checking receives the result of a health check that hasn't returned yet; nil: none is running.
	checking chan error
	joined   bool // the group was joined before
}

// Run serves requests with h until ctx is done, and returns nil then. From that moment it accepts no new
// requests. It gives running handlers Config.Grace to finish, and leaves the group. Unfinished requests are
// left to another instance: those that wait for another call or for a circuit, at once.
//
// Otherwise it returns an error: of the configuration, of joining the group for the first time, of polling or leaving it,
// or about handlers that did not return. While the health check fails, Run stays out of the group and doesn't return. To
// join the group again, Run calls Config.Open until it succeeds, with backoff. It gives up if the error is permanent, or
// if the cluster refuses the instance for a minute.
func Run(ctx context.Context, cfg Config, h Handler) error {
	if err := cfg.applyDefaults(); err != nil {
		return err
	}
	if h == nil {
		return errors.New("agent: no handler")
	}
	cfg.Listener = *listener.Complete(&cfg.Listener)
	r := &runner{cfg: cfg, handler: h}
	r.circuits = &circuits{breaker: cfg.Breaker, listener: &r.cfg.Listener}
	for ctx.Err() == nil {
		if !r.waitUntilHealthy(ctx) {
			return nil
		}
		if err := r.joinAndServe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// recreatedTopic is the error of a session whose topic was deleted and created again. A new session reads the
// new topic.
type recreatedTopic interface {
	error
	Recreated() bool
}

func isRecreated(err error) bool {
	var e recreatedTopic
	return errors.As(err, &e) && e.Recreated()
}

// downstreamOf names the downstream of a request. fail isn't nil if the handler's Downstream panicked; the
// handler is not called then.
func (r *runner) downstreamOf(q Request) (name string, fail *Failure) {
	d, ok := r.handler.(Downstreamer)
	if !ok {
		return q.Operation, nil
	}
	defer func() {
		if v := recover(); v != nil {
			r.cfg.Listener.Panicked(q, v, debug.Stack())
			fail = &Failure{Code: CodePanic, NoEffect: true, Message: fmt.Sprintf("the handler's Downstream panicked: %v", v)}
		}
	}()
	return d.Downstream(q), nil
}

// joinAndServe joins the group and serves until ctx is done, the session fails or the health check does.
// Only a failed session is an error.
func (r *runner) joinAndServe(ctx context.Context) error {
	session, err := r.join(ctx)
	if session == nil {
		return err
	}
	handling, cancelHandlers := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelHandlers()
	sending, cancelSends := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelSends()
	m := &membership{runner: r, session: session, handling: handling, sending: sending, draining: make(chan struct{}), requests: map[position]struct{}{},
		handoff: make(chan job, r.cfg.Concurrency)}
	r.cfg.Listener.Joined()
	if s, ok := session.(CircuitReporter); ok {
		r.circuits.worst.subscribe(s.ReportCircuit)
	}

	polling, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchHealth(polling, stop)
	}()
	pollErr := m.pollLoop(polling)
	stop(pollErr) // nil: context.Canceled
	<-watched
	running := m.drain(cancelHandlers)
	cancelSends()
	left := m.leave()
	reason := context.Cause(polling)
	switch {
	case isRecreated(pollErr):
		pollErr, left = nil, nil // the old topic takes no commits; the next session reads the new one
	case pollErr == nil && ctx.Err() == nil:
		reason, left = errors.Join(reason, left), nil // the next session repeats what wasn't committed
	}
	err = errors.Join(pollErr, stillRunningError(running), left)
	r.cfg.Listener.Left(reason)
	return err
}

// join opens a session. If the group was joined before, it tries again after errors that aren't final. The session and
// the error are nil if ctx is done.
func (r *runner) join(ctx context.Context) (Session, error) {
	var refusedSince time.Time
	for wait := rejoinWaitMin; ; wait = min(2*wait, rejoinWaitMax) {
		session, err := r.cfg.Open(ctx)
		if err == nil {
			r.joined = true
			return session, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		err = fmt.Errorf("agent: join the group: %w", err)
		switch {
		case !isRefused(err):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		}
		if !r.joined || isPermanent(err) || !refusedSince.IsZero() && time.Since(refusedSince) > rejoinRefusedMax {
			return nil, err
		}
		r.cfg.Listener.JoinFailed(err, wait)
		if backoff.Sleep(ctx, wait) != nil {
			return nil, nil
		}
	}
}

// isRefused reports whether the cluster doesn't permit what an instance needs, such as by its ACLs.
func isRefused(err error) bool {
	var e interface{ Refused() bool }
	return errors.As(err, &e) && e.Refused()
}

// isPermanent reports whether another try can't succeed.
func isPermanent(err error) bool {
	var e interface{ Permanent() bool }
	return errors.As(err, &e) && e.Permanent()
}

// watchHealth calls stop after Health.Failures consecutive failures.
func (r *runner) watchHealth(ctx context.Context, stop context.CancelCauseFunc) {
	if r.cfg.Health.Check == nil {
		return
	}
	tick := time.NewTicker(r.cfg.Health.Every)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := r.checkHealth(ctx)
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		r.cfg.Listener.Unhealthy(err, failures)
		if failures >= r.cfg.Health.Failures {
			stop(fmt.Errorf("agent: the health check failed %d times: %w", failures, err))
			return
		}
	}
}

// waitUntilHealthy returns true once the health check succeeds, false if ctx is done first.
func (r *runner) waitUntilHealthy(ctx context.Context) bool {
	if r.cfg.Health.Check == nil {
		return true
	}
	tick := time.NewTicker(r.cfg.Health.Every)
	defer tick.Stop()
	for failures := 1; ; failures++ {
		err := r.checkHealth(ctx)
		if err == nil {
			return true
		}
		r.cfg.Listener.Unhealthy(err, failures)
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// checkHealth runs the health check. A check that doesn't return within Health.Every, as on a stalled disk,
// has failed. It is not called again before it returns.
func (r *runner) checkHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Health.Every)
	defer cancel()
	if r.checking == nil {
		returned := make(chan error, 1)
		go func() { returned <- r.cfg.Health.Check(ctx) }()
		r.checking = returned
	}
	select {
	case err := <-r.checking:
		r.checking = nil
		return err
	case <-ctx.Done():
		return fmt.Errorf("the check hasn't returned within %v: %w", r.cfg.Health.Every, ctx.Err())
	}
}
