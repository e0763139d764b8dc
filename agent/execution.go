package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/watchdog"
)

// The waits between sends of a reply that isn't acknowledged.
const (
	sendWaitMin = 50 * time.Millisecond
	sendWaitMax = time.Second
)

// clockResolution is that of the brokers' timestamps.
const clockResolution = time.Millisecond

// shortenedMessageMax bounds the message of an error in a reply that was too large, in bytes.
const shortenedMessageMax = 256

// execution is a request in progress, from its start to its reply or its end.
type execution struct {
	*membership
	job
	clock    clock
	attempt  attempt
	hasSlot  bool      // false while it is parked or waits for a slot
	progress *progress // nil: the handler wasn't called yet
	// loop is the worker's watchdog. It is suspended, by End and Begin, in code that may take any time.
	loop *watchdog.Loop
	// ctx is that of the last call, and then of its reply.
	ctx    context.Context
	cancel context.CancelFunc
}

// execute works on a request until its reply is acknowledged, its complete-by is over, or it is left to another
// instance. It reports whether the request still has its slot.
func (m *membership) execute(j job, loop *watchdog.Loop) (placed bool) {
	t := execution{membership: m, job: j, loop: loop, clock: m.newClock(j.appended), attempt: attempt{retry: &m.cfg.Retry}, hasSlot: true}
	t.attempt.req = &t.req
	t.run()
	t.endContext()
	t.endProgress()
	return t.hasSlot
}

func (t *execution) run() {
	m, j := t.membership, t.job
	now := t.clock.startBroker
	n := t.attempt.start(now)
	if n.action == actDrop {
		m.cfg.Listener.Late(j.req, now.Sub(j.req.CompleteBy))
		m.finish(j.at)
		return
	}
	m.cfg.Listener.Started(j.req)
	var wake <-chan struct{}
	for {
		switch n.action {
		case actCall:
			var overran <-chan result
			if n, wake, overran = t.call(now); overran != nil {
				m.cfg.Listener.Overran(j.req)
				m.cfg.Listener.Dropped(j.req)
				m.finish(j.at)
				t.endProgress()
				t.loop.End()
				<-overran // its slot is used for as long as it runs
				t.loop.Begin()
				return
			}
		case actWait:
			if n = t.waitForNextCall(n, wake); n.action == actCall {
				now = t.clock.now()
			}
		case actReply:
			t.endProgress()
			t.sendReply(n.reply)
			return
		case actDrop:
			m.cfg.Listener.Dropped(j.req)
			m.finish(j.at)
			return
		case actAbandon:
			m.abandon(j)
			return
		case actLeft:
			return
		default:
			panic(fmt.Sprintf("agent: move %d of request %s", n.action, j.req.ID))
		}
	}
}

// clock is the brokers' time for one request. It follows the corrected clock, with two lower bounds:
//
//   - the local time since the request started. A process that was stopped first reads old requests and
//     may take their age for a difference of clocks, so that its attempts seem to have time left.
//   - the instant at which the broker appended the request. A process that has just started on a machine
//     whose clock is behind would otherwise give its handlers too much time.
type clock struct {
	corrected   func() time.Time
	startBroker time.Time // brokers' time at the start
	startLocal  time.Time // local time at the start
}

func (m *membership) newClock(appended time.Time) clock {
	c := clock{m.cfg.Clock, m.cfg.Clock(), time.Now()}
	if c.startBroker.Before(appended) {
		c.startBroker = appended
	}
	return c
}

// timeLeft is the time until an instant, without corrections since the start.
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

// waitForNextCall parks the request, waits as n says, and decides what follows. For another call the request has a slot
// again.
func (t *execution) waitForNextCall(n decision, wake <-chan struct{}) decision {
	if t.hasSlot = !t.park(n.wait); t.hasSlot {
		return decision{action: actReply, reply: n.reply}
	}
	if then := t.waitParked(n, wake); then.action != actCall {
		t.endParked(n.wait)
		return then
	}
	if t.unparkUnwatched(n.wait, t.req.CompleteBy.Sub(t.clock.now())-tryDurationMin) {
		if t.abandonIfLost(t.job) {
			return decision{action: actLeft}
		}
		return t.attempt.start(t.clock.now())
	}
	if t.isDraining() {
		return decision{action: actAbandon}
	}
	return decision{action: actReply, reply: n.reply}
}

// waitParked waits as n says and decides what follows.
func (t *execution) waitParked(n decision, wake <-chan struct{}) decision {
	switch {
	case !t.waitUnwatched(n.until.Sub(t.clock.now()), wake):
		return decision{action: actAbandon}
	case t.abandonIfLost(t.job):
		return decision{action: actLeft}
	case t.silent():
		return decision{action: actDrop}
	}
	return t.attempt.start(t.clock.now())
}

// waitUnwatched is waitOrLeave with the watchdog suspended.
func (t *execution) waitUnwatched(d time.Duration, wake <-chan struct{}) bool {
	t.loop.End()
	defer t.loop.Begin()
	return t.waitOrLeave(d, wake)
}

// unparkUnwatched is unpark with the watchdog suspended.
func (t *execution) unparkUnwatched(from waitReason, d time.Duration) bool {
	t.loop.End()
	defer t.loop.Begin()
	t.hasSlot = t.unpark(from, d)
	return t.hasSlot
}

// partitionLost reports whether the request's partition was reassigned.
func (t *execution) partitionLost() bool {
	h, ok := t.session.(PartitionHolder)
	return ok && h.HeldContext(t.at.partition).Err() != nil
}

// waitOrLeave waits for d or until wake is closed. False: the instance leaves the group.
func (m *membership) waitOrLeave(d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-m.draining:
		return false
	}
	return true
}

func (m *membership) isDraining() bool {
	select {
	case <-m.draining:
		return true
	default:
		return false
	}
}

// silent reports whether a silence has ended the attempt.
func (t *execution) silent() bool { return t.progress != nil && t.progress.silent() }

// call asks the circuit and calls the handler once. After a silence it doesn't call, and ignores the result of the call
// that was silent. If overran isn't nil, the handler had not returned at complete-by; overran receives its result.
// wake, if not nil, is closed when the circuit changes.
func (t *execution) call(now time.Time) (n decision, wake <-chan struct{}, overran <-chan result) {
	if t.silent() {
		return decision{action: actDrop}, nil, nil
	}
	a := t.attempt
	if t.malformed != nil {
		t.attempt, n = a.afterCall(result{fail: t.malformed}, now, false)
		return n, nil, nil
	}
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
	left := min(a.req.CompleteBy.Sub(now), t.clock.timeLeft(a.req.CompleteBy)) // code since the clock was read took time too
	t.beginContext(t.handling, left)
	returned, from := make(chan result, 1), time.Now()
	go t.callHandler(t.callContext(), *a.req, returned)
	t.loop.End()
	r, ok := awaitResult(t.ctx, returned, from.Add(left))
	t.progress.returned()
	t.loop.Begin()
	if !ok {
		verdict(k.classify(finishedCall{result: result{fail: &Failure{}}, took: left, left: left})) // a handler that hasn't returned counts as timed out
		return decision{action: actDrop}, nil, returned
	}
	leaving := t.handling.Err() != nil
	verdict(k.classify(finishedCall{result: r, took: time.Since(from), left: left, leaving: leaving}))
	now = t.clock.now()
	if t.silent() {
		return decision{action: actDrop}, nil, nil
	}
	if r.pending != nil {
		t.keepProgress(r.pending)
	}
	if t.attempt, n = a.afterCall(r, now, leaving); n.action == actWait && r.pending == nil {
		t.cfg.Listener.Retried(*a.req, r.fail, t.attempt.tries, n.until.Sub(now))
	}
	if n.action != actReply {
		t.endContext()
	}
	return n, nil, nil
}

// callContext returns the context of a call of the handler. It is done with t.ctx, or after a silence.
func (t *execution) callContext() context.Context {
	ctx, cancel := t.ctx, context.CancelCauseFunc(nil)
	if t.req.Heartbeat > 0 {
		ctx, cancel = context.WithCancelCause(t.ctx) // it ends with t.ctx
	}
	if t.progress != nil {
		t.progress.begin(cancel)
		return &call{ctx, t.progress}
	}
	p := &progress{membership: t.membership, req: t.req, clock: t.clock}
	p.first = call{ctx, p}
	p.begin(cancel)
	t.progress = p
	return &p.first
}

// keepProgress reports the value of a pending request. If the attempt is over, the handler learns it in its next call.
func (t *execution) keepProgress(p *PendingError) { _ = t.progress.report(t.handling, p.Value) }

func (t *execution) endProgress() {
	if t.progress != nil {
		t.progress.end()
	}
}

// beginContext replaces the execution's context by one that is done with its parent, or after left.
func (t *execution) beginContext(parent context.Context, left time.Duration) {
	t.endContext()
	t.ctx, t.cancel = context.WithTimeout(parent, left)
}

func (t *execution) endContext() {
	if t.cancel != nil {
		t.cancel()
	}
}

// awaitResult waits for a result until the instant until, at which ctx, the call's context, is done. If ctx was
// cancelled before, because the process's grace is over, it still waits until then. At the last instant a
// result wins.
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

// callHandler calls the handler and recovers from panics and from runtime.Goexit.
func (m *membership) callHandler(ctx context.Context, r Request, returned chan<- result) {
	var res result
	survived := false
	defer func() {
		if !survived {
			res.fail = &Failure{Code: CodePanic, Message: "the handler ended its goroutine"}
		}
		if v := recover(); v != nil {
			m.cfg.Listener.Panicked(r, v, debug.Stack())
			res.fail.Message = fmt.Sprintf("the handler panicked: %v", v)
		}
		returned <- res
	}()
	output, err := m.handler.Handle(ctx, r)
	res = resultOf(r.Kind, output, err)
	survived = true
}

// sendReply sends a reply until it is acknowledged or complete-by is over. The clock is read right before each
// send, so that a process that was stopped in between sends nothing late.
//
// A reply without effect must come from the last instance that works on the attempt:
//
//   - It is not sent once the partition was reassigned, because the new owner may be calling the handler. See
//     PartitionHolder.SendAsOwner.
//   - After it is acknowledged, its offset is committed at once. Otherwise another instance would repeat the
//     attempt if this process dies.
//   - A failure without effect only covers the calls of this instance. If a previous owner may have started the
//     request, the effect is reported as unknown. A rejection is an answer of the service for the key, and
//     covers those calls too.
func (t *execution) sendReply(reply events.Reply) {
	rec, large := t.replyRecord(&t.req, &reply), false
	for wait := sendWaitMin; ; wait = min(2*wait, sendWaitMax) {
		left := t.req.CompleteBy.Sub(t.clock.now())
		if left <= 0 {
			t.cfg.Listener.Dropped(t.req)
			t.finish(t.at)
			return
		}
		if reportsNoEffect(&reply) && t.abandonIfLost(t.job) {
			return
		}
		if reply.Effect == events.EffectNone && t.mayHaveStarted(t.at) {
			reply.Effect = events.EffectUnknown
			rec = t.replyRecord(&t.req, &reply)
		}
		err := t.send(rec, left, reportsNoEffect(&reply))
		if smaller, is := shrinkReply(&reply, err, large); is {
			t.cfg.Listener.SendFailed(t.req, err)
			reply, rec, large = smaller, t.replyRecord(&t.req, &smaller), true
			continue
		} else if large && isTooLarge(err) {
			t.cfg.Listener.SendFailed(t.req, err)
			t.cfg.Listener.Dropped(t.req)
			t.finish(t.at)
			return
		}
		if err == nil {
			t.cfg.Listener.Finished(t.req, reply.Outcome, time.Since(t.clock.startLocal))
			t.finish(t.at)
			if reportsNoEffect(&reply) {
				t.session.CommitSoon()
			}
			return
		}
		if errors.Is(t.ctx.Err(), context.Canceled) && t.sending.Err() == nil {
			continue // the grace is over, which ends the call's context; replies may be sent until sending is done
		}
		if reportsNoEffect(&reply) && t.partitionLost() {
			continue
		}
		t.cfg.Listener.SendFailed(t.req, err)
		if !t.waitToResendUnwatched(min(wait, t.req.CompleteBy.Sub(t.clock.now()))) {
			t.abandon(t.job)
			return
		}
	}
}

// replyRecord encodes a reply.
func (m *membership) replyRecord(req *Request, reply *events.Reply) events.Record {
	rec := reply.Record(m.cfg.Namespace, m.cfg.Source)
	if req.Traceparent != "" {
		rec.Headers = append(rec.Headers, events.Header{Key: events.HeaderTraceparent, Value: []byte(req.Traceparent)})
	}
	return rec
}

// tooLarge is the error of a session for a record that is too large for its topic, in bytes.
type tooLarge interface {
	error
	TooLarge() (bytes, most int)
}

func isTooLarge(err error) bool {
	_, large := errors.AsType[tooLarge](err)
	return large
}

// shrinkReply returns a smaller reply in place of one that is too large for its topic. An output becomes a failure
// with unknown effect, because the work was done. An error loses its details. False: err is another error, or the
// reply was shrunk before.
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

// waitToResendUnwatched is waitToResend with the watchdog suspended.
func (t *execution) waitToResendUnwatched(d time.Duration) bool {
	t.loop.End()
	defer t.loop.Begin()
	return t.waitToResend(d)
}

// waitToResend waits for d before another send. False: sending is over.
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

// send sends within left. It reuses the context of the call if that ends in time: a new one would cost as
// much as the call. noEffect: the reply reports no effect.
func (t *execution) send(rec events.Record, left time.Duration, noEffect bool) error {
	if !t.contextEndsWithin(left) {
		t.beginContext(t.sending, left)
	}
	t.loop.End()
	var err error
	if h, ok := t.session.(PartitionHolder); ok && noEffect {
		err = h.SendAsOwner(t.ctx, t.at.partition, t.at.offset, rec)
	} else {
		err = t.session.Send(t.ctx, rec)
	}
	t.loop.Begin()
	if err != nil {
		return fmt.Errorf("agent: send a reply: %w", errors.Join(err, t.ctx.Err()))
	}
	return nil
}

// contextEndsWithin reports whether the execution's context is not done and will be after left, or before. Its
// deadline may be later than that, because the clock was corrected since the call began.
func (t *execution) contextEndsWithin(left time.Duration) bool {
	if t.ctx == nil || t.ctx.Err() != nil {
		return false
	}
	by, ok := t.ctx.Deadline()
	return ok && time.Until(by) <= left+clockResolution
}
