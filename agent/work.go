package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The waits between sends of a reply that isn't acknowledged.
const (
	sendWaitMin = 50 * time.Millisecond
	sendWaitMax = time.Second
)

// work takes one request to its end: a reply, silence, or another instance.
func (m *member) work(j job) {
	now := m.clockFrom(j.appended)
	began := now()
	a := attempt{req: j.req, retry: m.cfg.Retry}
	n := a.begin(began)
	if n.do == doStop {
		m.cfg.Listener.late(j.req, began.Sub(j.req.CompleteBy))
		m.done(j.at)
		return
	}
	m.cfg.Listener.started(j.req)
	var wake <-chan struct{}
	for {
		switch n.do {
		case doCall:
			var overran <-chan result
			if a, n, wake, overran = m.call(a, now); overran != nil {
				m.cfg.Listener.overran(j.req)
				m.cfg.Listener.dropped(j.req)
				m.done(j.at)
				<-overran // its place is taken for as long as it runs
				return
			}
		case doWait:
			n = m.wait(a, n.at, wake, now)
		case doReply:
			m.reply(j, n.reply, began, now)
			return
		case doStop:
			m.cfg.Listener.dropped(j.req)
			m.done(j.at)
			return
		case doLeave:
			m.abandon(j)
			return
		default:
			panic(fmt.Sprintf("agent: move %d of request %s", n.do, j.req.ID))
		}
	}
}

// clock is the broker's time.
type clock func() time.Time

// clockFrom is the broker's time for one request: as it is corrected, but never
// behind what has passed here since now. A process that was stopped can find
// requests from before its stop first, and take their age for a difference of
// clocks; its attempts would then seem to have time left. And never behind the
// instant at which the broker took the request: a process that has just started
// on a machine whose clock is behind would leave its handlers that much time.
func (m *member) clockFrom(appended time.Time) clock {
	began, start := m.cfg.Clock(), time.Now()
	if began.Before(appended) {
		began = appended
	}
	return func() time.Time {
		at := began.Add(time.Since(start))
		if corrected := m.cfg.Clock(); corrected.After(at) {
			return corrected
		}
		return at
	}
}

// wait is until at, by the broker's clock, or until wake is closed.
func (m *member) wait(a attempt, at time.Time, wake <-chan struct{}, now clock) next {
	t := time.NewTimer(at.Sub(now()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-m.handling.Done():
		return next{do: doLeave}
	}
	return a.begin(now())
}

// call asks the circuit and calls the handler once. overran, if not nil, is
// where the handler's result will come: it hadn't returned at complete-by.
func (m *member) call(a attempt, clock clock) (_ attempt, n next, wake <-chan struct{}, overran <-chan result) {
	k := m.circuits.of(m.downstream(a.req))
	verdict, openFor, changed := k.allow()
	now := clock()
	if verdict == nil {
		a, n = a.refused(openFor, k.name, now)
		return a, n, changed, nil
	}
	left := a.req.CompleteBy.Sub(now)
	ctx, cancel := context.WithTimeout(m.handling, left)
	defer cancel()
	returned, from := make(chan result, 1), time.Now()
	go m.protect(ctx, a.req, returned)
	r, ok := receive(ctx, returned, from.Add(left))
	if !ok {
		verdict(k.judge(call{result: result{fail: &Failure{}}, took: left, left: left})) // not returned is not answered
		return a, next{do: doStop}, nil, returned
	}
	leaving := m.handling.Err() != nil
	verdict(k.judge(call{result: r, took: time.Since(from), left: left, leaving: leaving}))
	now = clock()
	if a, n = a.after(r, now, leaving); n.do == doWait {
		m.cfg.Listener.retried(a.req, r.fail, a.tries, n.at.Sub(now))
	}
	return a, n, nil, nil
}

// receive waits for a result until ctx, that of the call, is over: that is at until, unless
// the process's grace ends before, and then it still waits until then. At the last instant the
// result comes first.
func receive(ctx context.Context, returned <-chan result, until time.Time) (result, bool) {
	select {
	case r := <-returned:
		return r, true
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		select {
		case r := <-returned:
			return r, true
		case <-t.C:
		}
	}
	select {
	case r := <-returned:
		return r, true
	default:
		return result{}, false
	}
}

// protect calls the handler and survives it.
func (m *member) protect(ctx context.Context, r Request, returned chan<- result) {
	res := result{fail: &Failure{Code: CodePanic, Message: "the handler ended its goroutine"}}
	defer func() {
		if v := recover(); v != nil {
			m.cfg.Listener.panicked(r, v, debug.Stack())
			res.fail.Message = fmt.Sprintf("the handler panicked: %v", v)
		}
		returned <- res
	}()
	res = resultOf(m.handler.Handle(ctx, r))
}

// reply sends until it is acknowledged or the time is over. The clock is read
// right before each send: a process that was stopped in between sends nothing.
//
// That nothing happened is for the last one who has the attempt to say. So it is
// not said once the partition is another's, who may be at it; and it is committed
// at once, so that nobody makes the attempt again if this process dies.
func (m *member) reply(j job, reply events.Reply, began time.Time, now clock) {
	rec := reply.Record(m.cfg.Namespace, m.cfg.Source)
	if j.req.Traceparent != "" {
		rec.Headers = append(rec.Headers, events.Header{Key: events.HeaderTraceparent, Value: []byte(j.req.Traceparent)})
	}
	for wait := sendWaitMin; ; wait = min(2*wait, sendWaitMax) {
		left := j.req.CompleteBy.Sub(now())
		if left <= 0 {
			m.cfg.Listener.dropped(j.req)
			m.done(j.at)
			return
		}
		if nothingHappened(&reply) && m.lost(j) {
			return
		}
		err := m.send(rec, left)
		if err == nil {
			m.cfg.Listener.finished(j.req, reply.Outcome, now().Sub(began))
			m.done(j.at)
			if nothingHappened(&reply) {
				m.session.CommitSoon()
			}
			return
		}
		m.cfg.Listener.sendFailed(j.req, err)
		t := time.NewTimer(min(wait, j.req.CompleteBy.Sub(now())))
		select {
		case <-t.C:
		case <-m.sending.Done():
			t.Stop()
			m.abandon(j)
			return
		}
	}
}

func (m *member) send(rec events.Record, left time.Duration) error {
	ctx, cancel := context.WithTimeout(m.sending, left)
	defer cancel()
	if err := m.session.Send(ctx, rec); err != nil {
		return fmt.Errorf("agent: send a reply: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}
