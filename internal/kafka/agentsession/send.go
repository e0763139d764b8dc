package agentsession

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// repliesPerFlight is the maximum number of replies that are handed to the client at once.
const repliesPerFlight = 1024

// replies hands replies to the client in flights, one at a time. When a flight ends, the next takes all waiting
// replies. So a fast broker gets each reply at once, and a slow one gets larger flights.
//
// The client can't cancel a single record: it checks only the context of a batch's first record, and if that has ended
// it fails every record that waits for the same partition. So replies wait here, where one that expires is dropped
// alone. A flight's deadline is the earliest deadline of its replies; those with time left are sent again. Two flights
// at once could share a batch, and so the context of one of them.
//
// A topic that refuses a batch as too large gets smaller ones (see producer_split.go). While it is narrow, its part of
// a flight fits into one batch, or is a single reply. A reply that is refused although it was sent alone is too large
// itself.
type replies struct {
	cl *kgo.Client
	// now returns the process's clock when a flight starts. onAcknowledged receives the first acknowledged record of a
	// flight.
	now            func() time.Time
	onAcknowledged func(r *kgo.Record, sent time.Time)
	// MaxBytes returns the topic's max.message.bytes; 0: unknown.
	maxBytes func(topic string) int
	// pool has replies whose result was received: nothing else refers to them.
	pool sync.Pool

	mu       sync.Mutex
	waiting  []*reply
	inFlight bool
	deadline time.Time // of the flight; zero: none
	narrow   kafka.NarrowTopics
}

// reply is a reply that a call of Send waits for.
type reply struct {
	ctx        context.Context
	record     kgo.Record
	bytesMin   int // its size before compression
	bytesMax   int // upper bound of its size in a batch
	result     chan error
	flight     *flight // that contains it
	onProduced func(*kgo.Record, error)
}

// newReply returns a reply for a record. It may reuse a pooled one.
func (q *replies) newReply(ctx context.Context, rec *events.Record) *reply {
	p, ok := q.pool.Get().(*reply)
	if !ok {
		p = &reply{result: make(chan error, 1)}
		p.onProduced = func(r *kgo.Record, err error) { p.flight.onProduced(p, r, err) }
	}
	p.ctx, p.bytesMin, p.bytesMax = ctx, kafka.RecordBytesMin(rec), kafka.RecordBytesMax(rec)
	kafka.FillKgo(&p.record, rec)
	return p
}

// release returns a reply, whose result was received, to the pool and clears its references.
func (q *replies) release(p *reply) {
	p.ctx, p.record, p.flight = nil, kgo.Record{}, nil
	q.pool.Put(p)
}

// send queues a reply and waits for its result or until ctx ends.
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
		case err := <-p.result: // both are ready: the result counts
			return err
		default:
			return ctx.Err()
		}
	}
}

// startFlight starts a flight if none is in progress and replies wait.
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

// takeWaiting removes waiting replies for the next flight. It drops those whose deadline has passed: their Send has
// returned.
func (q *replies) takeWaiting() []*reply {
	var boarded []*reply
	q.narrow.DropExpired(time.Now())
	n, bytes := 0, kafka.BatchOverhead
	for ; n < len(q.waiting) && len(boarded) < repliesPerFlight; n++ {
		p := q.waiting[n]
		if deadlineError(p.ctx) != nil {
			continue
		}
		if t, narrow := q.narrow[p.record.Topic]; narrow {
			if bytes += p.bytesMax; len(boarded) > 0 && bytes > t.MaxBytes {
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

// flight is a set of replies that were handed to the client at once. It ends when the last of them has a result.
type flight struct {
	of     *replies
	ctx    context.Context // ends at the earliest deadline of its replies
	cancel context.CancelFunc
	sent   time.Time
	alone  bool // it has a single reply

	mu            sync.Mutex
	left          int
	clockObserved bool // the clock observed an acknowledged record of it
	// recreated is the topic that was recreated, so that the client knows the id of the deleted one; empty: none.
	recreated string
	resend    []*reply
	// tooLarge are replies that were refused as too large: the only one of the flight, or some that may have shared a
	// batch.
	tooLarge []*reply
}

// produce hands a flight to the client. by is its deadline; zero: none.
func (q *replies) produce(boarded []*reply, by time.Time) {
	f := &flight{of: q, sent: q.now(), left: len(boarded), alone: len(boarded) == 1}
	f.ctx, f.cancel = flightContext(by)
	for _, p := range boarded {
		p.flight = f
		q.cl.TryProduce(f.ctx, &p.record, p.onProduced)
	}
}

// onProduced is the client's callback for a reply. Once p has its result, p and its record r may be reused.
func (f *flight) onProduced(p *reply, r *kgo.Record, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.clockObserved {
		f.clockObserved = true
		f.of.onAcknowledged(r, f.sent)
	}
	if kafka.IsRecreated(err) {
		f.recreated = r.Topic
	}
	switch {
	case kafka.IsTooLarge(err):
		f.tooLarge = append(f.tooLarge, p)
	case err != nil && deadlineError(f.ctx) != nil && deadlineError(p.ctx) == nil && !errors.Is(err, kgo.ErrClientClosed):
		f.resend = append(f.resend, p) // another reply's deadline ended the flight
	default:
		p.result <- err
	}
	if f.left--; f.left == 0 {
		f.cancel()
		go f.end()
	}
}

// end runs after a flight has ended, on its own goroutine.
func (f *flight) end() {
	if len(f.tooLarge) > 0 {
		f.resend = append(f.of.narrowTopic(f.tooLarge, f.alone), f.resend...)
	}
	f.of.endFlight(f.resend, f.recreated)
}

// narrowTopic reduces the flights to a topic that refused replies as too large, and returns the replies to send again.
// A reply that was sent alone gets a *TooLargeError instead.
func (q *replies) narrowTopic(large []*reply, alone bool) (again []*reply) {
	topic := large[0].record.Topic
	q.mu.Lock()
	known, narrow := q.narrow[topic]
	q.mu.Unlock()
	if !alone || !narrow {
		most := q.maxBytes(topic)
		q.mu.Lock()
		q.narrow.Narrow(topic, most, time.Now())
		known = q.narrow[topic]
		q.mu.Unlock()
	}
	if !alone {
		return large
	}
	p := large[0]
	p.result <- &kafka.TooLargeError{Topic: topic, Bytes: p.bytesMin, Max: known.MaxBytes, Err: kerr.MessageTooLarge}
	return nil
}

// endFlight queues the replies with time left before all others and starts the next flight. The client forgets a
// recreated topic here, because no record of it is in flight.
func (q *replies) endFlight(again []*reply, remade string) {
	if remade != "" {
		q.cl.PurgeTopicsFromProducing(remade)
	}
	for _, p := range again {
		// The client has set fields of a record that it failed.
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

// flightContext returns a context with the deadline by; zero: none.
func flightContext(by time.Time) (context.Context, context.CancelFunc) {
	if !by.IsZero() {
		return context.WithDeadline(context.Background(), by)
	}
	return context.WithCancel(context.Background())
}

// earliestDeadline returns the earliest deadline of a flight's replies; zero: none has one.
func earliestDeadline(boarded []*reply) time.Time {
	var by time.Time
	for _, p := range boarded {
		if d, has := p.ctx.Deadline(); has && (by.IsZero() || d.Before(by)) {
			by = d
		}
	}
	return by
}

// deadlineError returns an error if ctx has ended or its deadline has passed. It compares the clock: if the process was
// stopped, the timer that ends a context fires late.
func deadlineError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if by, has := ctx.Deadline(); has && !time.Now().Before(by) {
		return context.DeadlineExceeded
	}
	return nil
}

// Send writes one reply. It returns when all in-sync replicas have it or when ctx ends, whichever is first. A negative
// Partition is chosen by the key. The deadline of ctx is the attempt's complete-by:
//
//   - A reply that was not handed to a connection before the deadline is never written: not by a retry, a reconnect or
//     from a buffer.
//   - A reply that was handed over may still arrive. The error is then that of ctx although the reply is in the log.
//     The scheduler decides by the order of the log.
//   - A batch that the topic refuses as too large is split. Only a reply that is too large by itself fails, with a
//     *TooLargeError, which no retry can fix.
//   - If one reply's deadline passes before the acknowledgement, others of its flight may be written twice: the client
//     can't cancel a single record. The scheduler counts the duplicate as not current, and it has no effect.
func (s *Session) Send(ctx context.Context, rec events.Record) error {
	if err := deadlineError(ctx); err != nil {
		return fmt.Errorf("reply to %s: its deadline has passed, not sent: %w", rec.Topic, err)
	}
	err := s.replies.send(ctx, &rec)
	if err == nil {
		return nil
	}
	if over := deadlineError(ctx); over != nil {
		return fmt.Errorf("reply to %s: its deadline passed before it was acknowledged: %w", rec.Topic, over)
	}
	if large, is := errors.AsType[*kafka.TooLargeError](err); is {
		return large
	}
	s.recordRefusal(err, time.Now())
	return kafka.WriteError(rec.Topic, err)
}

// recordRefusal records a reply that the cluster doesn't permit. After RefusedMax of such errors the session ends: it
// can't answer its requests, and another member may be permitted to.
func (s *Session) recordRefusal(err error, now time.Time) {
	if kafka.ClassOf(err) != kafka.ClassRefused {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.refusedReplies.Observe(now, kafka.RefusedGap)) > kafka.RefusedMax {
		s.repliesRefused = &kafka.RefusedError{Err: err, Persistent: true}
	}
}

// repliesError returns the error that ends the session because the cluster doesn't permit its replies.
func (s *Session) repliesError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repliesRefused
}
