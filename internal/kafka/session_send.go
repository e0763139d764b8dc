package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
type replies struct {
	cl *kgo.Client
	// sending gives the instant of the process's clock at which a flight begins;
	// wrote is told of a record of it that is acknowledged.
	sending func() time.Time
	wrote   func(r *kgo.Record, sent time.Time)

	mu      sync.Mutex
	waiting []*reply
	flying  bool
	by      time.Time // the flight's; zero: it has all the time
}

// reply is one that Send waits for.
type reply struct {
	ctx    context.Context
	record *kgo.Record
	result chan error // of one place
}

// send queues a reply and waits for its end or that of its time.
func (q *replies) send(ctx context.Context, rec *kgo.Record) error {
	p := &reply{ctx: ctx, record: rec, result: make(chan error, 1)}
	q.mu.Lock()
	q.waiting = append(q.waiting, p)
	q.mu.Unlock()
	q.fly()
	select {
	case err := <-p.result:
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
func (q *replies) fly() {
	q.mu.Lock()
	var flight []*reply
	if !q.flying {
		flight = q.board()
		q.flying, q.by = len(flight) > 0, earliest(flight)
	}
	q.mu.Unlock()
	if len(flight) > 0 {
		q.produce(flight)
	}
}

// board takes what waits and still has time; who has none has gone.
func (q *replies) board() []*reply {
	var flight []*reply
	n := 0
	for ; n < len(q.waiting) && len(flight) < repliesPerFlight; n++ {
		if timeOver(q.waiting[n].ctx) == nil {
			flight = append(flight, q.waiting[n])
		}
	}
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	return flight
}

// produce hands a flight to the client. It ends when the last record of it has.
func (q *replies) produce(flight []*reply) {
	ctx, cancel := flightContext(flight)
	sent := q.sending()
	var mu sync.Mutex
	left, again := len(flight), []*reply(nil)
	for _, p := range flight {
		q.cl.TryProduce(ctx, p.record, func(r *kgo.Record, err error) {
			if err == nil {
				q.wrote(r, sent)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && timeOver(ctx) != nil && timeOver(p.ctx) == nil && !errors.Is(err, kgo.ErrClientClosed) {
				again = append(again, p) // another's time ended
			} else {
				p.result <- err
			}
			if left--; left == 0 {
				cancel()
				go q.landed(again)
			}
		})
	}
}

// landed lets the next flight go; what has time left goes first.
func (q *replies) landed(again []*reply) {
	for _, p := range again {
		// The client has set fields of a record that it gave up.
		p.record = &kgo.Record{Topic: p.record.Topic, Partition: p.record.Partition, Key: p.record.Key, Value: p.record.Value, Headers: p.record.Headers}
	}
	q.mu.Lock()
	q.flying = false
	if len(again) > 0 {
		q.waiting = append(again, q.waiting...)
	}
	q.mu.Unlock()
	q.fly()
}

// flightContext ends with the earliest deadline of a flight's replies.
func flightContext(flight []*reply) (context.Context, context.CancelFunc) {
	if by := earliest(flight); !by.IsZero() {
		return context.WithDeadline(context.Background(), by)
	}
	return context.WithCancel(context.Background())
}

// earliest is the first deadline of a flight's replies; zero: none has one.
func earliest(flight []*reply) time.Time {
	var by time.Time
	for _, p := range flight {
		if d, has := p.ctx.Deadline(); has && (by.IsZero() || d.Before(by)) {
			by = d
		}
	}
	return by
}

// timeOver is why nothing may be sent under ctx any more. The clock decides: in a
// process that was stopped the timer that ends a context comes late.
func timeOver(ctx context.Context) error {
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
//   - When the time of one reply ends unacknowledged, others that were handed
//     over with it may be written twice: the client can't take back one alone.
//     The second is not current and is counted, no more.
func (s *Session) Send(ctx context.Context, rec events.Record) error {
	if err := timeOver(ctx); err != nil {
		return fmt.Errorf("reply to %s: its time is over, not sent: %w", rec.Topic, err)
	}
	err := s.replies.send(ctx, toKgo(&rec))
	if err == nil {
		return nil
	}
	if over := timeOver(ctx); over != nil {
		return fmt.Errorf("reply to %s: its time ended before it was acknowledged: %w", rec.Topic, over)
	}
	return produceError(rec.Topic, err)
}
