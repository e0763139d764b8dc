package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// repliesPerFlight bounds what is handed to the client at once.
const repliesPerFlight = 1024

// replies hands replies to the client in flights, one at a time: all that wait,
// as soon as the flight before has landed. While the broker is quick a reply
// flies alone and at once; while it is slow, the next flight takes all that have
// come since.
//
// The client can't take back one record: it looks at the context of the first
// of a batch, and fails with it all that waits for the same partition. So what
// waits, waits here, where a reply whose time ends is dropped alone; and a
// flight ends with the earliest time of those in it, those with time left fly
// again. Two flights at once would share a batch, and one's context.
//
// A topic that refuses a batch as too large gets smaller ones (see producer_split.go): while it is narrow, a flight has
// no more bytes than the topic takes as one batch, or one reply. A reply that is refused though it flew alone is too
// large itself.
type replies struct {
	cl *kgo.Client
	// sending gives the instant of the process's clock at which a flight begins;
	// wrote is told of the first record of it that is acknowledged.
	now            func() time.Time
	onAcknowledged func(r *kgo.Record, sent time.Time)
	// most asks what a topic takes as one batch; 0: that can't be found out.
	maxBytes func(topic string) int
	// landedBefore are replies whose result was taken: nobody else knows of them.
	pool sync.Pool

	mu       sync.Mutex
	waiting  []*reply
	inFlight bool
	deadline time.Time // the flight's; zero: it has all the time
	narrow   narrowTopics
}

// reply is one that Send waits for.
type reply struct {
	ctx        context.Context
	record     kgo.Record
	bytesMin   int        // bytes of it, before compression
	bytesMax   int        // that it takes in a batch, at most
	result     chan error // of one place
	flight     *flight    // that it is in
	onProduced func(*kgo.Record, error)
}

// reply is one for a record, which may have been another's.
func (q *replies) newReply(ctx context.Context, rec *events.Record) *reply {
	p, ok := q.pool.Get().(*reply)
	if !ok {
		p = &reply{result: make(chan error, 1)}
		p.onProduced = func(r *kgo.Record, err error) { p.flight.onProduced(p, r, err) }
	}
	p.ctx, p.bytesMin, p.bytesMax = ctx, recordBytesMin(rec), recordBytesMax(rec)
	fillKgo(&p.record, rec)
	return p
}

// release takes one back whose result was taken; what it refers to goes.
func (q *replies) release(p *reply) {
	p.ctx, p.record, p.flight = nil, kgo.Record{}, nil
	q.pool.Put(p)
}

// send queues a reply and waits for its end or that of its time.
func (q *replies) send(ctx context.Context, rec *events.Record) error {
	p := q.newReply(ctx, rec)
	q.mu.Lock()
	q.waiting = append(q.waiting, p)
	q.mu.Unlock()
	q.startFlight()
	select {
	case err := <-p.result:
		q.release(p)
		return err
	case <-ctx.Done():
		select {
		case err := <-p.result: // both at once: what happened counts
			return err
		default:
			return ctx.Err()
		}
	}
}

// fly starts a flight if none is under way and anything waits.
func (q *replies) startFlight() {
	q.mu.Lock()
	var boarded []*reply
	if !q.inFlight {
		boarded = q.takeWaiting()
		q.inFlight, q.deadline = len(boarded) > 0, earliestDeadline(boarded)
	}
	by := q.deadline
	q.mu.Unlock()
	if len(boarded) > 0 {
		q.produce(boarded, by)
	}
}

// board takes what waits and still has time; who has none has gone.
func (q *replies) takeWaiting() []*reply {
	var boarded []*reply
	q.narrow.dropExpired(time.Now())
	n, bytes := 0, batchOverhead
	for ; n < len(q.waiting) && len(boarded) < repliesPerFlight; n++ {
		p := q.waiting[n]
		if deadlineError(p.ctx) != nil {
			continue
		}
		if t, narrow := q.narrow[p.record.Topic]; narrow {
			if bytes += p.bytesMax; len(boarded) > 0 && bytes > t.maxBytes {
				break
			}
		}
		boarded = append(boarded, p)
	}
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	return boarded
}

// flight is what was handed to the client at once. It ends when the last record of it has.
type flight struct {
	of     *replies
	ctx    context.Context // until the earliest time of those in it
	cancel context.CancelFunc
	sent   time.Time
	alone  bool // it has one reply

	mu            sync.Mutex
	left          int
	clockObserved bool // of a record that is there
	// remade is their topic where it isn't the one that the client knows, else "".
	recreated string
	resend    []*reply
	// large are refused as too large: one that flew alone, or those that may have been in a batch with others.
	tooLarge []*reply
}

// produce hands a flight to the client, until by if that isn't zero.
func (q *replies) produce(boarded []*reply, by time.Time) {
	f := &flight{of: q, sent: q.now(), left: len(boarded), alone: len(boarded) == 1}
	f.ctx, f.cancel = flightContext(by)
	for _, p := range boarded {
		p.flight = f
		q.cl.TryProduce(f.ctx, &p.record, p.onProduced)
	}
}

// land is the client's promise for a reply: what became of it. Once p has its result it
// is another's, and its record r with it.
func (f *flight) onProduced(p *reply, r *kgo.Record, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.clockObserved {
		f.clockObserved = true
		f.of.onAcknowledged(r, f.sent)
	}
	if isRecreated(err) {
		f.recreated = r.Topic
	}
	switch {
	case isTooLarge(err):
		f.tooLarge = append(f.tooLarge, p)
	case err != nil && deadlineError(f.ctx) != nil && deadlineError(p.ctx) == nil && !errors.Is(err, kgo.ErrClientClosed):
		f.resend = append(f.resend, p) // another's time ended
	default:
		p.result <- err
	}
	if f.left--; f.left == 0 {
		f.cancel()
		go f.end()
	}
}

// landed is for a flight that has ended.
func (f *flight) end() {
	if len(f.tooLarge) > 0 {
		f.resend = append(f.of.narrowTopic(f.tooLarge, f.alone), f.resend...)
	}
	f.of.endFlight(f.resend, f.recreated)
}

// split is for replies that were refused as too large: it has smaller flights, and returns those that are to fly again. One that
// was alone gets its error.
func (q *replies) narrowTopic(large []*reply, alone bool) (again []*reply) {
	topic := large[0].record.Topic
	q.mu.Lock()
	known, narrow := q.narrow[topic]
	q.mu.Unlock()
	if !alone || !narrow {
		most := q.maxBytes(topic)
		q.mu.Lock()
		q.narrow.narrow(topic, most, time.Now())
		known = q.narrow[topic]
		q.mu.Unlock()
	}
	if !alone {
		return large
	}
	p := large[0]
	p.result <- &TooLargeError{Topic: topic, Bytes: p.bytesMin, Max: known.maxBytes, Err: kerr.MessageTooLarge}
	return nil
}

// landed lets the next flight go; what has time left goes first. A topic that was made anew
// is forgotten by the client: nothing is on its way.
func (q *replies) endFlight(again []*reply, remade string) {
	if remade != "" {
		q.cl.PurgeTopicsFromProducing(remade)
	}
	for _, p := range again {
		// The client has set fields of a record that it gave up.
		r := &p.record
		*r = kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	q.mu.Lock()
	q.inFlight = false
	if len(again) > 0 {
		q.waiting = append(again, q.waiting...)
	}
	q.mu.Unlock()
	q.startFlight()
}

// flightContext ends at by; zero: it doesn't.
func flightContext(by time.Time) (context.Context, context.CancelFunc) {
	if !by.IsZero() {
		return context.WithDeadline(context.Background(), by)
	}
	return context.WithCancel(context.Background())
}

// earliest is the first deadline of a flight's replies; zero: none has one.
func earliestDeadline(boarded []*reply) time.Time {
	var by time.Time
	for _, p := range boarded {
		if d, has := p.ctx.Deadline(); has && (by.IsZero() || d.Before(by)) {
			by = d
		}
	}
	return by
}

// deadlineError is why nothing may be sent under ctx any more. The clock decides: in a
// process that was stopped the timer that ends a context comes late.
func deadlineError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if by, has := ctx.Deadline(); has && !time.Now().Before(by) {
		return context.DeadlineExceeded
	}
	return nil
}

// Send writes one reply and returns when all in-sync replicas have it, or when
// ctx ends, whichever is first; a negative Partition is that of the key. The
// deadline of ctx is the attempt's complete-by:
//
//   - What has not been handed to a connection by then is never written:
//     not by a retry, not after a reconnect, not from a buffer.
//   - What has been may arrive, as anything that is on its way; the error is
//     then that of ctx although the reply is in the log. The scheduler judges
//     by the order of the log.
//   - A batch that the topic refuses as too large is split. Only a reply that the topic doesn't take by itself
//     fails, with a *TooLargeError: no other try can help.
//   - When the time of one reply ends unacknowledged, others that were handed
//     over with it may be written twice: the client can't take back one alone.
//     The second is not current and is counted, no more.
func (s *Session) Send(ctx context.Context, rec events.Record) error {
	if err := deadlineError(ctx); err != nil {
		return fmt.Errorf("reply to %s: its time is over, not sent: %w", rec.Topic, err)
	}
	err := s.replies.send(ctx, &rec)
	if err == nil {
		return nil
	}
	if over := deadlineError(ctx); over != nil {
		return fmt.Errorf("reply to %s: its time ended before it was acknowledged: %w", rec.Topic, over)
	}
	if large, is := errors.AsType[*TooLargeError](err); is {
		return large
	}
	s.recordRefusal(err, time.Now())
	return produceError(rec.Topic, err)
}

// notPermitted takes in the error of a reply. Replies that the cluster doesn't permit end the session after a bound: its
// requests are answered by nobody, and others may be permitted to.
func (s *Session) recordRefusal(err error, now time.Time) {
	if classOf(err) != refused {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.refusedReplies.observe(now, refusedGap)) > refusedMax {
		s.repliesRefused = &RefusedError{Err: err, Persistent: true}
	}
}

// permitted is the error of a session whose replies the cluster doesn't permit.
func (s *Session) repliesError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repliesRefused
}
