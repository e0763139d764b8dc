package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/turns"
)

// The waits between sends of a reply that isn't acknowledged.
const (
	sendWaitMin = 50 * time.Millisecond
	sendWaitMax = time.Second
)

// clockExact is finer than the broker's time, which comes in whole milliseconds.
const clockResolution = time.Millisecond

// shrunkBytesMax bounds what is left of an error's message in a reply that was too large.
const shortenedMessageMax = 256

// turn is a request that was begun, until its end.
type execution struct {
	*membership
	job
	clock   clock
	attempt attempt
	hasSlot bool // it has a place of the pool
	// loop is the worker's: its turn is suspended in what may take any time.
	loop *turns.Loop
	// ctx is the last call's, and then of the reply to it.
	ctx    context.Context
	cancel context.CancelFunc
}

// work takes one request to its end: a reply, silence, or another instance. It reports whether the request still
// has its place.
func (m *membership) execute(j job, loop *turns.Loop) (placed bool) {
	t := execution{membership: m, job: j, loop: loop, clock: m.newClock(j.appended), attempt: attempt{retry: &m.cfg.Retry}, hasSlot: true}
	t.attempt.req = &t.req
	t.run()
	t.endContext()
	if !t.hasSlot {
		m.endParked()
	}
	return t.hasSlot
}

func (t *execution) run() {
	m, j := t.membership, t.job
	now := t.clock.startBroker
	n := t.attempt.start(now)
	if n.action == actDrop {
		m.cfg.Listener.late(j.req, now.Sub(j.req.CompleteBy))
		m.finish(j.at)
		return
	}
	m.cfg.Listener.started(j.req)
	var wake <-chan struct{}
	for {
		switch n.action {
		case actCall:
			var overran <-chan result
			if n, wake, overran = t.call(now); overran != nil {
				m.cfg.Listener.overran(j.req)
				m.cfg.Listener.dropped(j.req)
				m.finish(j.at)
				t.loop.End()
				<-overran // its place is taken for as long as it runs
				t.loop.Begin()
				return
			}
		case actWait:
			if n = t.waitForNextCall(n, wake); n.action == actCall {
				now = t.clock.now()
			}
		case actReply:
			t.sendReply(n.reply)
			return
		case actDrop:
			m.cfg.Listener.dropped(j.req)
			m.finish(j.at)
			return
		case actAbandon:
			m.abandon(j)
			return
		default:
			panic(fmt.Sprintf("agent: move %d of request %s", n.action, j.req.ID))
		}
	}
}

// clock is the broker's time for one request: as it is corrected, but never
// behind what has passed here since it began. A process that was stopped can find
// requests from before its stop first, and take their age for a difference of
// clocks; its attempts would then seem to have time left. And never behind the
// instant at which the broker took the request: a process that has just started
// on a machine whose clock is behind would leave its handlers that much time.
type clock struct {
	corrected   func() time.Time
	startBroker time.Time // the broker's time, when
	startLocal  time.Time // the process's was this
}

func (m *membership) newClock(appended time.Time) clock {
	c := clock{m.cfg.Clock, m.cfg.Clock(), time.Now()}
	if c.startBroker.Before(appended) {
		c.startBroker = appended
	}
	return c
}

// left is the time until an instant if nothing has been corrected since it began.
func (c *clock) timeLeft(until time.Time) time.Duration {
	return until.Sub(c.startBroker) - time.Since(c.startLocal)
}

func (c *clock) now() time.Time {
	at := c.startBroker.Add(time.Since(c.startLocal))
	if corrected := c.corrected(); corrected.After(at) {
		return corrected
	}
	return at
}

// pause waits, without a place where that can be done. It says what is to be done then: the next call, with a place.
func (t *execution) waitForNextCall(n decision, wake <-chan struct{}) decision {
	if t.hasSlot {
		t.hasSlot = !t.park()
	}
	if t.hasSlot && n.forCircuit {
		return decision{action: actReply, reply: n.reply} // others could be called in its place
	}
	if !t.waitUnwatched(n.until.Sub(t.clock.now()), wake) {
		return decision{action: actAbandon}
	}
	if t.partitionLost() {
		return decision{action: actAbandon}
	}
	then := t.attempt.start(t.clock.now())
	if then.action != actCall || t.hasSlot {
		return then
	}
	if t.unparkUnwatched(t.req.CompleteBy.Sub(t.clock.now()) - tryDurationMin) {
		return t.attempt.start(t.clock.now())
	}
	if t.handling.Err() != nil {
		return decision{action: actAbandon}
	}
	return decision{action: actReply, reply: n.reply}
}

// waited is wait, outside of the worker's turn.
func (t *execution) waitUnwatched(d time.Duration, wake <-chan struct{}) bool {
	t.loop.End()
	defer t.loop.Begin()
	return t.waitOrLeave(d, wake)
}

// unparked is unpark, outside of the worker's turn.
func (t *execution) unparkUnwatched(d time.Duration) bool {
	t.loop.End()
	defer t.loop.Begin()
	t.hasSlot = t.unpark(d)
	return t.hasSlot
}

// lostPartition reports whether the request's partition is another instance's.
func (t *execution) partitionLost() bool {
	h, ok := t.session.(PartitionHolder)
	return ok && h.HeldContext(t.at.partition).Err() != nil
}

// wait is for d or until wake is closed; false: the process leaves.
func (m *membership) waitOrLeave(d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-m.handling.Done():
		return false
	}
	return true
}

// call asks the circuit and, at now, calls the handler once. overran, if not nil, is
// where the handler's result will come: it hadn't returned at complete-by.
func (t *execution) call(now time.Time) (n decision, wake <-chan struct{}, overran <-chan result) {
	a := t.attempt
	t.loop.End()
	name, fail := t.downstreamOf(*a.req)
	t.loop.Begin()
	if fail != nil {
		t.attempt, n = a.afterCall(result{fail: fail}, now, false)
		return n, nil, nil
	}
	k := t.circuits.forDownstream(name, a.req.Kind)
	verdict, openFor, changed := k.allow()
	if verdict == nil {
		t.attempt, n = a.circuitOpen(openFor, k.name, now)
		return n, changed, nil
	}
	left := min(a.req.CompleteBy.Sub(now), t.clock.timeLeft(a.req.CompleteBy)) // what came between took time
	t.beginContext(t.handling, left)
	returned, from := make(chan result, 1), time.Now()
	go t.callHandler(t.ctx, *a.req, returned)
	t.loop.End()
	r, ok := awaitResult(t.ctx, returned, from.Add(left))
	t.loop.Begin()
	if !ok {
		verdict(k.classify(finishedCall{result: result{fail: &Failure{}}, took: left, left: left})) // not returned is not answered
		return decision{action: actDrop}, nil, returned
	}
	leaving := t.handling.Err() != nil
	verdict(k.classify(finishedCall{result: r, took: time.Since(from), left: left, leaving: leaving}))
	now = t.clock.now()
	if t.attempt, n = a.afterCall(r, now, leaving); n.action == actWait {
		t.cfg.Listener.retried(*a.req, r.fail, t.attempt.tries, n.until.Sub(now))
	}
	if n.action != actReply {
		t.endContext()
	}
	return n, nil, nil
}

// beginContext makes the context of what comes next: it ends with its parent, and when
// the time that is left has passed.
func (t *execution) beginContext(parent context.Context, left time.Duration) {
	t.endContext()
	t.ctx, t.cancel = context.WithTimeout(parent, left)
}

func (t *execution) endContext() {
	if t.cancel != nil {
		t.cancel()
	}
}

// receive waits for a result until ctx, that of the call, is over: that is at until, unless
// the process's grace ends before, and then it still waits until then. At the last instant the
// result comes first.
func awaitResult(ctx context.Context, returned <-chan result, until time.Time) (result, bool) {
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
func (m *membership) callHandler(ctx context.Context, r Request, returned chan<- result) {
	var res result
	survived := false
	defer func() {
		if !survived {
			res.fail = &Failure{Code: CodePanic, Message: "the handler ended its goroutine"}
		}
		if v := recover(); v != nil {
			m.cfg.Listener.panicked(r, v, debug.Stack())
			res.fail.Message = fmt.Sprintf("the handler panicked: %v", v)
		}
		returned <- res
	}()
	res = resultOf(m.handler.Handle(ctx, r))
	survived = true
}

// reply sends until it is acknowledged or the time is over. The clock is read
// right before each send: a process that was stopped in between sends nothing.
//
// That nothing happened is for the last one who has the attempt to say. So it is
// not said once the partition is another's, who may be at it; and it is committed
// at once, so that nobody makes the attempt again if this process dies. A failure
// without effect is that of the calls made here, and nobody knows of those that were
// made where the partition was before. A rejection is the service's word, by its key.
func (t *execution) sendReply(reply events.Reply) {
	rec, large := t.replyRecord(&reply), false
	for wait := sendWaitMin; ; wait = min(2*wait, sendWaitMax) {
		left := t.req.CompleteBy.Sub(t.clock.now())
		if left <= 0 {
			t.cfg.Listener.dropped(t.req)
			t.finish(t.at)
			return
		}
		if reportsNoEffect(&reply) && t.abandonIfLost(t.job) {
			return
		}
		if reply.Effect == events.EffectNone && t.mayHaveStarted(t.at) {
			reply.Effect = events.EffectUnknown
			rec = t.replyRecord(&reply)
		}
		err := t.send(rec, left)
		if smaller, is := shrinkReply(&reply, err, large); is {
			t.cfg.Listener.sendFailed(t.req, err)
			reply, rec, large = smaller, t.replyRecord(&smaller), true
			continue
		} else if large && isTooLarge(err) {
			t.cfg.Listener.sendFailed(t.req, err)
			t.cfg.Listener.dropped(t.req)
			t.finish(t.at)
			return
		}
		if err == nil {
			t.cfg.Listener.finished(t.req, reply.Outcome, time.Since(t.clock.startLocal))
			t.finish(t.at)
			if reportsNoEffect(&reply) {
				t.session.CommitSoon()
			}
			return
		}
		if errors.Is(t.ctx.Err(), context.Canceled) && t.sending.Err() == nil {
			continue // the call's context ended with the grace; a reply has until the end of sending
		}
		t.cfg.Listener.sendFailed(t.req, err)
		if !t.waitToResendUnwatched(min(wait, t.req.CompleteBy.Sub(t.clock.now()))) {
			t.abandon(t.job)
			return
		}
	}
}

// record is a reply's.
func (t *execution) replyRecord(reply *events.Reply) events.Record {
	rec := reply.Record(t.cfg.Namespace, t.cfg.Source)
	if t.req.Traceparent != "" {
		rec.Headers = append(rec.Headers, events.Header{Key: events.HeaderTraceparent, Value: []byte(t.req.Traceparent)})
	}
	return rec
}

// tooLarge is the error of a session whose replies' topic doesn't take one, whatever becomes of others.
type tooLarge interface {
	error
	TooLarge() (bytes, most int)
}

func isTooLarge(err error) bool {
	_, large := errors.AsType[tooLarge](err)
	return large
}

// shrunk is what is replied in place of a reply that its topic doesn't take. An output becomes a failure whose effect
// is unknown, as one that no reply takes does: the work was done. An error loses its details. False: it is no such
// error, or what was shrunk already.
func shrinkReply(r *events.Reply, err error, already bool) (events.Reply, bool) {
	large, is := errors.AsType[tooLarge](err)
	if !is || already {
		return *r, false
	}
	smaller := *r
	if r.Outcome == events.Completed {
		smaller.Outcome, smaller.Effect, smaller.RetryAfter = events.Failed, events.EffectUnknown, 0
		smaller.Body = (&Failure{Code: events.CodeTooLarge, Message: "output: " + large.Error()}).errorObject()
		return smaller, true
	}
	was := r.Failure()
	smaller.Body = (&Failure{Code: was.Code, Message: fmt.Sprintf("%s (shortened: %v)", truncate(was.Message, shortenedMessageMax), large)}).errorObject()
	return smaller, true
}

// patient is patience, outside of the worker's turn.
func (t *execution) waitToResendUnwatched(d time.Duration) bool {
	t.loop.End()
	defer t.loop.Begin()
	return t.waitToResend(d)
}

// patience waits before another send; false: the process leaves.
func (m *membership) waitToResend(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-m.sending.Done():
		return false
	}
}

// send goes by the context of the call that is replied to, if that ends in time: to
// make another would cost as much as the call.
func (t *execution) send(rec events.Record, left time.Duration) error {
	if !t.contextEndsWithin(left) {
		t.beginContext(t.sending, left)
	}
	t.loop.End()
	err := t.session.Send(t.ctx, rec)
	t.loop.Begin()
	if err != nil {
		return fmt.Errorf("agent: send a reply: %w", errors.Join(err, t.ctx.Err()))
	}
	return nil
}

// endsWithin reports whether there is a context, not at its end, that ends when the
// time that is left has passed, or before: the clock may have been corrected since
// the call began, by more than it is ever exact to.
func (t *execution) contextEndsWithin(left time.Duration) bool {
	if t.ctx == nil || t.ctx.Err() != nil {
		return false
	}
	by, ok := t.ctx.Deadline()
	return ok && time.Until(by) <= left+clockResolution
}
