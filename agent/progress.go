package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
)

// ErrOver is the error of Progress once the attempt is over: at its complete-by, after a silence of a whole heartbeat,
// when the process leaves the group, or when the handler has returned. It is also the cause of the handler's context
// after a silence. The handler should stop: a reply is probably ignored, and the next attempt may be running.
var ErrOver = errors.New("agent: the attempt is over")

// Progress reports how far a handler's work has got: value is encoded as JSON, at most events.MaxProgressBytes; nil is
// a sign of life without a value. ctx is the handler's context, or one made from it.
//
// Progress doesn't wait for a broker. It keeps the newest value and sends it as soon as the one before was acknowledged,
// at most once in a little more than a third of the heartbeat (in 10 s without one). So a handler may call it as often
// as it likes. If the step has a heartbeat (Request.Heartbeat), the handler must call it at least as often. ctx is done
// when no report was acknowledged for a whole heartbeat, since the attempt has then expired. The handler isn't called
// for it again, and its result is ignored.
//
// Report work that was done, and only from the work itself: reports from a ticker would keep the attempt of a worker
// that hangs alive. The last value of an attempt is in the Request of the next one, if it was recorded.
//
// The error is or wraps ErrOver if the attempt is over. Other errors are about value or ctx; nothing was reported.
func Progress(ctx context.Context, value any) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return errors.New("agent: Progress: the context is not a handler's context, nor derived from one")
	}
	b, err := encodeProgress(value)
	if err != nil {
		return err
	}
	return c.progress.report(ctx, b)
}

func encodeProgress(value any) (json.RawMessage, error) {
	b, err := encodeOutput(value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("agent: progress: %w", err)
	case len(b) > events.MaxProgressBytes:
		return nil, fmt.Errorf("agent: progress: %d bytes; at most %d", len(b), events.MaxProgressBytes)
	}
	if err := events.CheckJSON(b); err != nil {
		return nil, fmt.Errorf("agent: progress: %w", err)
	}
	return b, nil
}

// Pending returns the error of a handler whose work goes on elsewhere. value is reported as by Progress. The handler is
// called again with the same request after that time, and needs no slot of Config.Concurrency until then. If the process
// ends meanwhile, another instance is called with the request. A value that Progress would refuse is reported as nil.
// While 4,096 requests of an instance wait in this way, it starts no further ones.
func Pending(value any, after time.Duration) error {
	return pendingOf(value, after)
}

// pendingOf returns a PendingError whose value can be reported and whose wait is at least pendingMin.
func pendingOf(value any, after time.Duration) *PendingError {
	b, err := encodeProgress(value)
	if err != nil {
		b = json.RawMessage("null")
	}
	return &PendingError{b, max(after, pendingMin)}
}

// pendingMin is the least time until a pending request is called again.
const pendingMin = 10 * time.Millisecond

// PendingError is the error that Pending returns. The package treats one that a handler made as Pending does.
type PendingError struct {
	Value json.RawMessage // one JSON value of at most events.MaxProgressBytes; empty: null
	After time.Duration   // until the handler is called again
}

func (*PendingError) Error() string { return "agent: the work is in progress" }

// call is the context of a call of the handler.
type call struct {
	context.Context
	*progress
}

type callKey struct{}

// Value returns the call itself for callKey.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// progress sends what the handler of a request reports. It lives as long as the execution of the request, which may
// call the handler several times.
type progress struct {
	membership *membership
	req        *Request
	clock      *clock
	// first is the context of the first call, which most requests have alone: one object of memory holds it all.
	first call

	mu       sync.Mutex
	ctx      context.Context // of the sends; nil: nothing was reported yet
	cancel   context.CancelFunc
	ended    bool // nothing more is sent
	latest   json.RawMessage
	at       time.Time   // when latest was reported
	unsent   bool        // latest is to be sent
	sending  bool        // a goroutine sends
	number   int         // of reports that were acknowledged
	sentAt   time.Time   // when the send of the last one began
	silentBy time.Time   // when a silence ends the attempt; zero: the handler wasn't called yet
	over     *time.Timer // ends the running call at silentBy; nil: none runs, or there is no heartbeat
}

// ProgressEvery returns the least time between two sends of Progress. Two fifths of a heartbeat are a little more than
// the third in which the scheduler records one report. So a report that arrives a little faster than the one before isn't
// too early.
func (r *Request) ProgressEvery() time.Duration {
	if r.Heartbeat > 0 {
		return r.Heartbeat * 2 / 5
	}
	return events.PlainProgressEvery
}

// startCall is called when a call of the handler begins. A silence then ends it by cancel; nil: there is no heartbeat.
func (p *progress) startCall(cancel context.CancelCauseFunc) {
	if cancel == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silentBy.IsZero() {
		p.silentBy = time.Now().Add(p.req.Heartbeat)
	}
	p.over = time.AfterFunc(time.Until(p.silentBy), func() { cancel(ErrOver) })
}

// returned is called when the call has returned, or isn't waited for any longer.
func (p *progress) returned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		p.over.Stop()
		p.over = nil
	}
}

// silent reports whether no report was acknowledged for a whole heartbeat. The attempt has expired then.
func (p *progress) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silentAt(time.Now())
}

// silentAt is silent at now. p.mu is held.
func (p *progress) silentAt(now time.Time) bool {
	return p.req.Heartbeat > 0 && !p.silentBy.IsZero() && !now.Before(p.silentBy)
}

// end is called when nothing more is to be sent: before the reply, and when the request is left.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended = true; p.cancel != nil {
		p.cancel()
	}
}

// report keeps a value, and sends it soon. ctx is the context that the handler used.
func (p *progress) report(ctx context.Context, value json.RawMessage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrOver, context.Cause(ctx))
	case p.ended || p.silentAt(now):
		return ErrOver
	}
	p.latest, p.at, p.unsent = value, now, true
	if p.ctx == nil {
		p.ctx, p.cancel = context.WithTimeout(p.membership.handling, p.clock.timeLeft(p.req.CompleteBy))
	}
	if !p.sending {
		p.sending = true
		p.membership.workers.Go(p.send)
	}
	return nil
}

// send sends the newest value until everything is sent, one at a time.
func (p *progress) send() {
	for {
		value, at, wait, more := p.next()
		if !more {
			return
		}
		if wait > 0 {
			_ = backoff.Sleep(p.ctx, wait)
			continue
		}
		began := time.Now()
		err := p.sendOne(value)
		p.sent(at, began, err)
		if err != nil {
			_ = backoff.Sleep(p.ctx, sendWaitMin)
		}
	}
}

// next returns the newest unsent value, and how long to wait before it is sent. more is false if there is nothing to
// send. A value that is returned without a wait counts as sent.
func (p *progress) next() (value json.RawMessage, at time.Time, wait time.Duration, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unsent || p.ended || p.ctx.Err() != nil {
		p.sending = false
		return nil, at, 0, false
	}
	if p.number > 0 {
		wait = time.Until(p.sentAt.Add(p.req.ProgressEvery()))
	}
	if wait <= 0 {
		p.unsent = false
	}
	return p.latest, p.at, wait, true
}

// sent records the result of a send that began at began, of a value that was reported at at.
func (p *progress) sent(at, began time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.unsent = true // or a newer value, if there is one
		return
	}
	p.number++
	p.sentAt, p.silentBy = began, at.Add(p.req.Heartbeat)
	if p.over != nil {
		p.over.Reset(time.Until(p.silentBy))
	}
}

// sendOne sends a value once. The clock is read right before, as for replies.
func (p *progress) sendOne(value json.RawMessage) error {
	m := p.membership
	left := p.req.CompleteBy.Sub(p.clock.now())
	if left <= 0 {
		p.cancel()
		return ErrOver
	}
	ctx, cancel := context.WithTimeout(p.ctx, left)
	defer cancel()
	a := attempt{req: p.req}
	reply := a.replyWith(events.Reply{Outcome: events.Progress, Body: value}).reply
	rec := m.replyRecord(p.req, &reply)
	for i := range rec.Headers {
		if h := &rec.Headers[i]; h.Key == events.HeaderID { // each report has an id of its own
			h.Value = strconv.AppendInt(append(h.Value[:len(h.Value):len(h.Value)], '/'), int64(p.number+1), 10)
		}
	}
	err := m.session.Send(ctx, rec)
	switch {
	case err == nil:
		m.cfg.Listener.Progressed(*p.req)
	case ctx.Err() == nil:
		m.cfg.Listener.SendFailed(*p.req, err)
	}
	return err
}
