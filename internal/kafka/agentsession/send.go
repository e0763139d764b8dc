package agentsession

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// repliesPerFlight is the maximum number of replies to a partition that are handed to the client at once.
const repliesPerFlight = 1024

// replies hands replies to the client in flights, one at a time for each partition. The flights of all partitions begin
// together (round), with all waiting replies. So a fast broker gets each reply at once, and a slow one gets larger flights.
// A partition that is unavailable delays replies to others by roundMax at most.
//
// The client can't cancel a single record: it checks only the context of a batch's first record, and if that has ended
// it fails every record that waits for the same partition. So replies wait here, where one that expires is dropped
// alone. A flight's deadline is the earliest deadline of its replies; those with time left are sent again. Two flights
// to one partition could share a batch, and so the context of one of them. See replyQueue.
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
	// onOwnersReply receives the request of each acknowledged reply of SendAsOwner, before its Send returns.
	onOwnersReply func(owner *ownedPartition, offset int64)
	// MaxBytes returns the topic's max.message.bytes; 0: unknown.
	maxBytes func(topic string) int
	// pool has replies whose result was received: nothing else refers to them.
	pool sync.Pool

	mu     sync.Mutex
	queues map[kafka.TopicPartition]*replyQueue
	topics map[string]*replyTopic
	round  *round // nil: none is in progress
	narrow kafka.NarrowTopics
}

// reply is a reply that a call of Send waits for.
type reply struct {
	ctx        context.Context
	record     kgo.Record
	partition  int32           // that the caller has chosen; negative: by the key
	owner      *ownedPartition // of SendAsOwner: it isn't sent once the partition is lost; else nil
	offset     int64           // of SendAsOwner: that of the request
	bytesMin   int             // its size before compression
	bytesMax   int             // upper bound of its size in a batch
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
	p.partition = p.record.Partition
	return p
}

// release returns a reply, whose result was received, to the pool and clears its references.
func (q *replies) release(p *reply) {
	p.ctx, p.record, p.flight, p.owner = nil, kgo.Record{}, nil, nil
	q.pool.Put(p)
}

// send queues a reply and waits for its result or until ctx ends. owner and offset are those of SendAsOwner; else
// owner is nil.
func (q *replies) send(ctx context.Context, rec *events.Record, owner *ownedPartition, offset int64) error {
	p := q.newReply(ctx, rec)
	p.owner, p.offset = owner, offset
	q.mu.Lock()
	if q.failIfLost(p) { // under the lock: see withdraw
		q.mu.Unlock()
		return <-p.result
	}
	q.enqueue(p)
	q.mu.Unlock()
	q.startFlights()
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

// removeWaiting removes waiting replies of a queue for its next flight. It drops those whose deadline has passed: their Send has
// returned. It fails those whose owner has lost the partition.
func (q *replies) removeWaiting(l *replyQueue) []*reply {
	var boarded []*reply
	q.narrow.DropExpired(time.Now())
	n, bytes := 0, kafka.BatchOverhead
	for ; n < len(l.waiting) && len(boarded) < repliesPerFlight; n++ {
		p := l.waiting[n]
		if deadlineError(p.ctx) != nil || q.failIfLost(p) {
			continue
		}
		if t, narrow := q.narrow[p.record.Topic]; narrow {
			if bytes += p.bytesMax; len(boarded) > 0 && bytes > t.MaxBytes {
				break
			}
		}
		boarded = append(boarded, p)
	}
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	return boarded
}

// failIfLost fails a waiting reply of SendAsOwner whose owner has lost the partition.
func (q *replies) failIfLost(p *reply) bool {
	lost := p.owner != nil && p.owner.ctx.Err() != nil
	if lost {
		p.result <- ErrPartitionLost
	}
	return lost
}

// withdraw fails the waiting replies whose owner has lost the partition. Such a reply that comes later fails, too. It
// returns channels that are closed when those in flight have their results.
func (q *replies) withdraw() (landed []<-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.queues {
		l.waiting = slices.DeleteFunc(l.waiting, q.failIfLost)
		if l.flight != nil && l.flight.hasLostOwner() {
			landed = append(landed, l.flight.landed)
		}
	}
	return landed
}

// flight is a set of replies that were handed to the client at once. It ends when the last of them has a result.
type flight struct {
	of     *replies
	to     kafka.TopicPartition // its queue
	round  *round
	ctx    context.Context // ends at by
	cancel context.CancelFunc
	by     time.Time // the earliest deadline of its replies; zero: none has one
	sent   time.Time
	// boarded are its replies, until they are handed to the client.
	boarded []*reply
	alone   bool              // it has a single reply
	owners  []*ownedPartition // of its replies of SendAsOwner
	landed  chan struct{}     // closed when it ends; nil if it has no owners

	mu            sync.Mutex
	left          int
	clockObserved bool // the clock observed an acknowledged record of it
	recreated     bool // its topic was recreated: the client knows the id of the deleted one
	resend        []*reply
	// tooLarge are replies that were refused as too large: the only one of the flight, or some that may have shared a
	// batch.
	tooLarge []*reply
}

func newFlight(q *replies, to kafka.TopicPartition, boarded []*reply) *flight {
	f := &flight{of: q, to: to, boarded: boarded, left: len(boarded), alone: len(boarded) == 1, by: earliestDeadline(boarded)}
	f.ctx, f.cancel = flightContext(f.by)
	for _, p := range boarded {
		if p.flight = f; p.owner != nil {
			f.owners = append(f.owners, p.owner)
		}
	}
	if len(f.owners) > 0 {
		f.landed = make(chan struct{})
	}
	return f
}

func (f *flight) hasLostOwner() bool {
	return slices.ContainsFunc(f.owners, func(o *ownedPartition) bool { return o.ctx.Err() != nil })
}

// produce hands the flight's replies to the client.
func (f *flight) produce() {
	f.sent = f.of.now()
	boarded := f.boarded
	f.boarded = nil // each may be reused once it has its result
	for _, p := range boarded {
		f.of.cl.TryProduce(f.ctx, &p.record, p.onProduced)
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
	if err == nil && p.owner != nil {
		f.of.onOwnersReply(p.owner, p.offset)
	}
	if kafka.IsRecreated(err) {
		f.recreated = true
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
	f.of.endFlight(f)
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
	return s.sendReply(ctx, &rec, nil, 0)
}

// SendAsOwner is Send for a reply that only the owner of its request's partition may send, because it says that the
// request had no effect: another owner may cause one.
//
//   - Once the partition is revoked or lost, a reply that wasn't handed to the client fails with ErrPartitionLost, and
//     is never written.
//   - A revocation waits for replies that were handed over, for at most half of its time. The request of one that is
//     acknowledged is Done, so that the commit of the revocation includes it.
func (s *Session) SendAsOwner(ctx context.Context, partition int32, offset int64, rec events.Record) error {
	s.mu.Lock()
	o := s.owned[partition]
	s.mu.Unlock()
	if o == nil {
		return fmt.Errorf("reply to %s: not sent: %w", rec.Topic, ErrPartitionLost)
	}
	return s.sendReply(ctx, &rec, o, offset)
}

func (s *Session) sendReply(ctx context.Context, rec *events.Record, owner *ownedPartition, offset int64) error {
	if err := deadlineError(ctx); err != nil {
		return fmt.Errorf("reply to %s: its deadline has passed, not sent: %w", rec.Topic, err)
	}
	err := s.replies.send(ctx, rec, owner, offset)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrPartitionLost) {
		return fmt.Errorf("reply to %s: not sent: %w", rec.Topic, err)
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
