package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
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
	// circuitChanged is closed when the circuit that refused the last call changes; nil: none refused it.
	circuitChanged <-chan struct{}
	// overran receives the result of a call that hadn't returned at complete-by; nil: each call has returned.
	overran <-chan result
}

// execute works on a request until its reply is acknowledged, its complete-by is over, or it is left to another
// instance. It reports whether the request still has its slot.
func (m *membership) execute(j job, loop *watchdog.Loop) (hasSlot bool) {
	e := execution{membership: m, job: j, loop: loop, clock: m.newClock(j.appended), attempt: attempt{retry: &m.cfg.Retry}, hasSlot: true}
	e.attempt.req = &e.req
	e.run()
	e.endContext()
	e.endProgress()
	return e.hasSlot
}

func (e *execution) run() {
	m, j := e.membership, e.job
	now := e.clock.startBroker
	next := e.attempt.start(now)
	if next.action == actDrop {
		m.cfg.Listener.Late(j.req, now.Sub(j.req.CompleteBy))
		m.finish(j.at)
		return
	}
	for {
		switch next.action {
		case actCall:
			next = e.call(now)
		case actWait:
			if next = e.waitForNextCall(next); next.action == actCall {
				now = e.clock.now()
			}
		case actReply:
			e.endProgress()
			e.sendReply(next.reply)
			return
		case actDrop:
			e.drop()
			return
		case actAbandon:
			m.abandon(j)
			return
		case actLeft:
			return
		default:
			panic(fmt.Sprintf("agent: action %d of request %s", next.action, j.req.ID))
		}
	}
}

// drop finishes the request without a reply. A call that overran uses its slot for as long as it runs.
func (e *execution) drop() {
	if e.overran != nil {
		e.cfg.Listener.Overran(e.req)
	}
	e.cfg.Listener.Dropped(e.req)
	e.finish(e.at)
	if e.overran == nil {
		return
	}
	e.endProgress()
	e.loop.End()
	<-e.overran
	e.loop.Begin()
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

// waitForNextCall parks the request, waits as next says, and decides what follows. For another call the request has a
// slot again.
func (e *execution) waitForNextCall(next decision) decision {
	if e.hasSlot = !e.park(next.wait); e.hasSlot {
		return decision{action: actReply, reply: next.reply}
	}
	if then := e.waitParked(next); then.action != actCall {
		e.endParked(next.wait)
		return then
	}
	slotWait := e.req.CompleteBy.Sub(e.clock.now()) - tryDurationMin
	if e.hasSlot = e.unwatched(func() bool { return e.unpark(next.wait, slotWait) }); e.hasSlot {
		if e.abandonIfLost(e.job) {
			return decision{action: actLeft}
		}
		return e.attempt.start(e.clock.now())
	}
	if e.isDraining() {
		return decision{action: actAbandon}
	}
	return decision{action: actReply, reply: next.reply}
}

// waitParked waits as next says and decides what follows.
func (e *execution) waitParked(next decision) decision {
	d := next.until.Sub(e.clock.now())
	switch {
	case !e.unwatched(func() bool { return e.waitOrLeave(d, e.circuitChanged) }):
		return decision{action: actAbandon}
	case e.abandonIfLost(e.job):
		return decision{action: actLeft}
	case e.silent():
		return decision{action: actDrop}
	}
	return e.attempt.start(e.clock.now())
}

// unwatched waits with the watchdog suspended, and returns what wait returns.
func (e *execution) unwatched(wait func() bool) bool {
	e.loop.End()
	defer e.loop.Begin()
	return wait()
}

// partitionLost reports whether the request's partition was reassigned.
func (e *execution) partitionLost() bool {
	h, ok := e.session.(PartitionHolder)
	return ok && h.HeldContext(e.at.partition).Err() != nil
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
func (e *execution) silent() bool { return e.progress != nil && e.progress.silent() }

// call asks the circuit and calls the handler once. After a silence it doesn't call, and ignores the result of the call
// that was silent. It sets circuitChanged and overran.
func (e *execution) call(now time.Time) (next decision) {
	e.circuitChanged = nil
	if e.silent() {
		return decision{action: actDrop}
	}
	a := e.attempt
	if e.malformed != nil {
		e.attempt, next = a.afterCall(result{fail: e.malformed}, now, false)
		return next
	}
	e.loop.End()
	name, fail := e.downstreamOf(*a.req)
	e.loop.Begin()
	if fail != nil {
		e.attempt, next = a.afterCall(result{fail: fail}, now, false)
		return next
	}
	k := e.circuits.forDownstream(name, a.req.Kind)
	verdict, openFor, changed := k.allow()
	if verdict == nil {
		e.attempt, next = a.circuitOpen(openFor, k.name, now)
		e.circuitChanged = changed
		return next
	}
	left := min(a.req.CompleteBy.Sub(now), e.clock.timeLeft(a.req.CompleteBy)) // code since the clock was read took time too
	e.beginContext(e.handling, left)
	returned, from := make(chan result, 1), time.Now()
	go e.callHandler(e.callContext(), *a.req, returned)
	e.loop.End()
	r, ok := awaitResult(e.ctx, returned, from.Add(left))
	e.progress.returned()
	e.loop.Begin()
	if !ok {
		verdict(k.classify(finishedCall{result: result{fail: &Failure{}}, took: left, left: left})) // a handler that hasn't returned counts as timed out
		e.overran = returned
		return decision{action: actDrop}
	}
	leaving := e.handling.Err() != nil
	verdict(k.classify(finishedCall{result: r, took: time.Since(from), left: left, leaving: leaving}))
	now = e.clock.now()
	if e.silent() {
		return decision{action: actDrop}
	}
	if r.pending != nil {
		e.keepProgress(r.pending)
	}
	if e.attempt, next = a.afterCall(r, now, leaving); next.action == actWait && r.pending == nil {
		e.cfg.Listener.Retried(*a.req, r.fail, e.attempt.tries, next.until.Sub(now))
	}
	if next.action != actReply {
		e.endContext()
	}
	return next
}

// callContext returns the context of a call of the handler. It is done with e.ctx, or after a silence.
func (e *execution) callContext() context.Context {
	ctx, cancel := e.ctx, context.CancelCauseFunc(nil)
	if e.req.Heartbeat > 0 {
		ctx, cancel = context.WithCancelCause(e.ctx) // it ends with e.ctx
	}
	if e.progress != nil {
		e.progress.startCall(cancel)
		return &call{ctx, e.progress}
	}
	p := &progress{membership: e.membership, req: &e.req, clock: &e.clock}
	p.first = call{ctx, p}
	p.startCall(cancel)
	e.progress = p
	return &p.first
}

// keepProgress reports the value of a pending request. If the attempt is over, the handler learns it in its next call.
func (e *execution) keepProgress(p *PendingError) { _ = e.progress.report(e.handling, p.Value) }

func (e *execution) endProgress() {
	if e.progress != nil {
		e.progress.end()
	}
}

// beginContext replaces the execution's context by one that is done with its parent, or after left.
func (e *execution) beginContext(parent context.Context, left time.Duration) {
	e.endContext()
	e.ctx, e.cancel = context.WithTimeout(parent, left)
}

func (e *execution) endContext() {
	if e.cancel != nil {
		e.cancel()
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
func (e *execution) sendReply(reply events.Reply) {
	rec, large := e.replyRecord(&e.req, &reply), false
	for wait := sendWaitMin; ; wait = min(2*wait, sendWaitMax) {
		left := e.req.CompleteBy.Sub(e.clock.now())
		if left <= 0 {
			e.cfg.Listener.Dropped(e.req)
			e.finish(e.at)
			return
		}
		if reportsNoEffect(&reply) && e.abandonIfLost(e.job) {
			return
		}
		if reply.Effect == events.EffectNone && e.mayHaveStarted(e.at) {
			reply.Effect = events.EffectUnknown
			rec = e.replyRecord(&e.req, &reply)
		}
		err := e.send(rec, left, reportsNoEffect(&reply))
		if smaller, is := shrinkReply(&reply, err, large); is {
			e.cfg.Listener.SendFailed(e.req, err)
			reply, rec, large = smaller, e.replyRecord(&e.req, &smaller), true
			continue
		} else if large && isTooLarge(err) {
			e.cfg.Listener.SendFailed(e.req, err)
			e.cfg.Listener.Dropped(e.req)
			e.finish(e.at)
			return
		}
		if err == nil {
			e.cfg.Listener.Finished(e.req, reply.Outcome, time.Since(e.clock.startLocal))
			e.finish(e.at)
			if reportsNoEffect(&reply) {
				e.session.CommitSoon()
			}
			return
		}
		if errors.Is(e.ctx.Err(), context.Canceled) && e.sending.Err() == nil {
			continue // the grace is over, which ends the call's context; replies may be sent until sending is done
		}
		if reportsNoEffect(&reply) && e.partitionLost() {
			continue
		}
		e.cfg.Listener.SendFailed(e.req, err)
		resendWait := min(wait, e.req.CompleteBy.Sub(e.clock.now()))
		if !e.unwatched(func() bool { return backoff.Sleep(e.sending, resendWait) == nil }) {
			e.abandon(e.job)
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

// send sends within left. It reuses the context of the call if that ends in time: a new one would cost as
// much as the call. noEffect: the reply reports no effect.
func (e *execution) send(rec events.Record, left time.Duration, noEffect bool) error {
	if !e.contextEndsWithin(left) {
		e.beginContext(e.sending, left)
	}
	e.loop.End()
	var err error
	if h, ok := e.session.(PartitionHolder); ok && noEffect {
		err = h.SendAsOwner(e.ctx, e.at.partition, e.at.offset, rec)
	} else {
		err = e.session.Send(e.ctx, rec)
	}
	e.loop.Begin()
	if err != nil {
		return fmt.Errorf("agent: send a reply: %w", errors.Join(err, e.ctx.Err()))
	}
	return nil
}

// contextEndsWithin reports whether the execution's context is not done and will be after left, or before. Its
// deadline may be later than that, because the clock was corrected since the call began.
func (e *execution) contextEndsWithin(left time.Duration) bool {
	if e.ctx == nil || e.ctx.Err() != nil {
		return false
	}
	by, ok := e.ctx.Deadline()
	return ok && time.Until(by) <= left+clockResolution
}
