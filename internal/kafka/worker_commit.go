package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// ProduceError says that one record of a Commit was not accepted, and that
// the whole transaction was rolled back for certain. Nothing else of the
// output need be wrong.
type ProduceError struct {
	// Index is the record's place in the output; the first one, if several
	// failed.
	Index int
	Topic string
	Err   error // a *TooLargeError if the topic does not take a record of that size
	alone bool  // no other record to its topic was on its way
}

func (e *ProduceError) Error() string {
	return fmt.Sprintf("output record %d, to topic %s: %v", e.Index, e.Topic, e.Err)
}

func (e *ProduceError) Unwrap() error { return e.Err }

// RecordIndex is Index, for callers that know the error by its methods.
func (e *ProduceError) RecordIndex() int { return e.Index }

// Permanent reports whether the record, or its topic, is at fault (too large,
// no such topic or partition, not authorised), so that it would fail again;
// else the cluster did not take it in time.
func (e *ProduceError) Permanent() bool {
	for _, permanent := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID,
		kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.PolicyViolation,
	} {
		if errors.Is(e.Err, permanent) {
			return true
		}
	}
	// The client has no named error for a partition that the topic lacks.
	return strings.HasPrefix(e.Err.Error(), "invalid record partitioning choice")
}

// Commit writes out, and commits with it the positions of everything polled
// since the last Commit or Abort: all or nothing. Each record goes to the
// partition that it names, or if that is negative to the one of its key; on
// success each has its Partition and Offset.
//
// (true, nil): done. (false, nil): rolled back for certain; what was polled
// comes again from Poll, so what was decided from it must be forgotten.
// (false, *ProduceError): the same, because of one record. Any other error:
// the outcome is unknown, or the worker was fenced; Close it, open a new one and
// restore: only the log says what happened.
//
// Output is given a third of the transaction timeout to be acknowledged. ctx
// is for shutting down: ending it within a Commit leaves the outcome unknown.
//
// Commit panics if nothing was polled: the group would not fence such a
// transaction (measured: written after the takeover by 5 of 19 frozen owners).
func (l *Worker) Commit(ctx context.Context, out []events.Record) (committed bool, err error) {
	l.inCommit.Lock()
	defer l.inCommit.Unlock()
	if err := l.ended(); err != nil {
		return false, err
	}
	if l.polled == 0 {
		panic(fmt.Sprintf("kafka: worker %q commits %d records but polled none", l.cfg.Owner, len(out)))
	}
	if l.skipped || l.moved() {
		return false, l.rewind(ctx, "a partition went since its records were polled")
	}
	began := time.Now()
	sent := l.cfg.processTime()
	if err := l.session.Begin(); err != nil {
		return false, l.fail("begin a transaction", err)
	}
	written, refused, err := l.produce(ctx, out)
	switch {
	case refused != nil:
		if err := l.rewind(ctx, refused.Error()); err != nil {
			return false, err
		}
		if topicGone(refused) && refused.Topic != l.cfg.Namespace.Events() { // nothing is on its way
			l.session.Client().PurgeTopicsFromProducing(refused.Topic)
		}
		if isTooLarge(refused) {
			if refused.Err = l.split(ctx, out, refused); refused.Err == nil {
				return false, nil // it comes again, and is written in smaller batches
			}
		}
		return false, refused
	case errors.Is(err, kerr.TransactionAbortable):
		return false, l.rewind(ctx, err.Error())
	case err != nil:
		return false, l.fail("write the transaction's output", err)
	}

	if told, err := l.timeTold(ctx, written, sent); err != nil {
		return false, l.rewind(ctx, err.Error())
	} else if !told {
		return false, l.rewind(ctx, fmt.Sprintf("it was decided by a clock that was wrong; it is off by %v", l.cfg.Clock.Offset()))
	}

	l.positions.writes(l.lastEvents(written))
	bounded, cancel := context.WithTimeout(kgo.PreTxnCommitFnContext(ctx, l.mark), l.cfg.TransactionTimeout)
	defer cancel()
	committed, err = l.session.End(bounded, kgo.TryCommit)
	l.positions.wrote(err == nil && committed)
	if err != nil {
		return false, l.fail("end a transaction", err)
	}
	if !committed {
		l.settled("the group rebalanced, or the broker rolled back")
		return false, nil
	}
	for i := range out {
		out[i].Partition, out[i].Offset = written[i].Partition, written[i].Offset
	}
	clear(l.room[:len(out)])
	now := time.Now()
	l.lastCommit.Store(l.age(now))
	l.waiting.Store(0)
	if l.cfg.Listener.Committed != nil {
		l.cfg.Listener.Committed(l.polled, len(out), now.Sub(began))
	}
	l.clear()
	return true, nil
}

// lastEvents are the offsets of the last events that were written, by partition.
func (l *Worker) lastEvents(written []*kgo.Record) map[int32]int64 {
	topic, last := l.cfg.Namespace.Events(), map[int32]int64{}
	for _, r := range written {
		if r.Topic == topic {
			last[r.Partition] = max(last[r.Partition], r.Offset)
		}
	}
	return last
}

// pass commits the positions after markers that nothing has followed for a while: the next
// transaction would, but without one the group seems to lag. It consumes the markers, so
// the group's generation fences it, too.
func (l *Worker) pass(ctx context.Context) error {
	l.inCommit.Lock()
	defer l.inCommit.Unlock()
	if err := l.ended(); err != nil {
		return err
	}
	if l.moved() {
		return l.rewind(ctx, "a partition went since its markers were passed")
	}
	if err := l.session.Begin(); err != nil {
		return l.fail("begin a transaction", err)
	}
	bounded, cancel := context.WithTimeout(kgo.PreTxnCommitFnContext(ctx, l.mark), l.cfg.TransactionTimeout)
	defer cancel()
	if committed, err := l.session.End(bounded, kgo.TryCommit); err != nil {
		return l.fail("end a transaction", err)
	} else if !committed {
		l.settled("the group rebalanced, or the broker rolled back") // the markers come again
		return nil
	}
	l.clear()
	return nil
}

// Abort gives back everything polled since the last Commit or Abort: it comes
// again from Poll. An error means the same as that of Commit.
func (l *Worker) Abort(ctx context.Context) error {
	l.inCommit.Lock()
	defer l.inCommit.Unlock()
	if err := l.ended(); err != nil {
		return err
	}
	return l.rewind(ctx, "the caller gave it back")
}

// moved reports whether a partition was lost since records of it were polled,
// even if it came back.
func (l *Worker) moved() bool {
	owned := l.balancer.Assigned()
	for p, n := range l.polledFrom {
		if now, ok := owned[p]; !ok || now != n {
			return true
		}
	}
	return false
}

// rewind rolls back and sets the positions to the committed ones.
func (l *Worker) rewind(ctx context.Context, why string) error {
	bounded, cancel := context.WithTimeout(ctx, l.cfg.TransactionTimeout)
	defer cancel()
	if _, err := l.session.End(bounded, kgo.TryAbort); err != nil {
		return l.fail("roll back a transaction", err)
	}
	l.settled(why)
	return nil
}

func (l *Worker) settled(why string) {
	if l.cfg.Listener.Aborted != nil {
		l.cfg.Listener.Aborted(l.polled, why)
	}
	l.clear()
}

func (l *Worker) clear() {
	l.polled, l.skipped, l.passed = 0, false, false
	clear(l.polledFrom)
}

// ended is why the worker can do nothing more, if so.
func (l *Worker) ended() error {
	if l.broken == nil && l.closed.Load() {
		l.broken = fmt.Errorf("worker %q is closed", l.cfg.Owner)
	}
	return l.broken
}

func (l *Worker) fail(doing string, err error) error {
	l.broken = fmt.Errorf("worker %q: %s: %w (outcome unknown: close the worker, open a new one, restore)", l.cfg.Owner, doing, finalError(l.unfenced(err)))
	return l.broken
}

// output is the records of one transaction on their way.
type output struct {
	room    []kgo.Record
	records []*kgo.Record // those in room
	done    chan struct{} // closed when all of a wave are acknowledged, or one failed

	mu     sync.Mutex
	acked  []bool
	left   int // of the wave
	failed int // index of the first that failed, -1: none
	err    error
	closed bool
}

// settle is the client's promise for each record. One for all: a function for each would
// be the most of what a worker leaves to the collector.
func (o *output) settle(r *kgo.Record, err error) {
	i := o.index(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left--
	switch {
	case err == nil:
		o.acked[i] = true
	case o.failed < 0:
		o.failed, o.err = i, err
	}
	if (o.left == 0 || o.failed >= 0) && !o.closed {
		o.closed = true
		close(o.done)
	}
}

// index of a record in the room.
func (o *output) index(r *kgo.Record) int {
	return int((uintptr(unsafe.Pointer(r)) - uintptr(unsafe.Pointer(unsafe.SliceData(o.room)))) / unsafe.Sizeof(*r))
}

// outcome is the first failure; overdue is the error of what is not
// acknowledged of a wave (nil: of all), if the time is over.
func (o *output) outcome(wave []int, overdue error) (index int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed >= 0 {
		return o.failed, o.err
	}
	if o.left > 0 {
		for i, acked := range o.acked {
			if !acked && (wave == nil || slices.Contains(wave, i)) {
				return i, overdue
			}
		}
	}
	return -1, nil
}

// begin is before a wave of n records is sent.
func (o *output) begin(n int) (done chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left, o.done = n, make(chan struct{})
	o.closed = n == 0
	if o.closed {
		close(o.done)
	}
	return o.done
}

// produce writes out and waits until the broker has all of it. Refused: one
// record can't be written; err: the producer can't go on.
func (l *Worker) produce(ctx context.Context, out []events.Record) (records []*kgo.Record, refused *ProduceError, err error) {
	if len(out) == 0 {
		return nil, nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, l.flushMax())
	defer cancel()
	o := &output{room: slices.Grow(l.room[:0], len(out))[:len(out)], records: make([]*kgo.Record, len(out)), acked: make([]bool, len(out)), failed: -1}
	l.room = nil
	for i := range out {
		o.records[i] = &o.room[i]
		toKgoAt(o.records[i], &out[i])
	}
	waves := l.narrow.waves(out, time.Now())
	if waves == nil {
		waves = [][]int{nil}
	}
	for _, wave := range waves {
		index, err := l.produceWave(ctx, bounded, o, wave)
		switch {
		case ctx.Err() != nil:
			return nil, nil, fmt.Errorf("stopped while output was on its way: %w", ctx.Err())
		case err == nil:
		case fatalToProducer(err):
			return nil, nil, err
		default:
			return nil, &ProduceError{Index: index, Topic: out[index].Topic, Err: err, alone: l.narrow.alone(out, wave, index)}, nil
		}
	}
	l.room = o.room // the client has done with it
	return o.records, nil, nil
}

// produceWave sends the records of a wave (nil: all), and waits for them.
func (l *Worker) produceWave(ctx, bounded context.Context, o *output, wave []int) (index int, err error) {
	client, settle := l.session.Client(), o.settle
	var done chan struct{}
	if wave == nil {
		done = o.begin(len(o.records))
		for _, r := range o.records {
			client.Produce(bounded, r, settle)
		}
	} else {
		done = o.begin(len(wave))
		for _, i := range wave {
			client.Produce(bounded, o.records[i], settle)
		}
	}
	select {
	case <-done:
	case <-bounded.Done():
	}
	return o.outcome(wave, fmt.Errorf("not acknowledged within %v: %w", l.flushMax(), context.DeadlineExceeded))
}

// fatalToProducer are the errors of a record that say something about the
// producer, not about the record.
func fatalToProducer(err error) bool {
	for _, fatal := range []error{
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID,
		kerr.OutOfOrderSequenceNumber, kerr.TransactionCoordinatorFenced, kerr.TransactionalIDAuthorizationFailed,
		kerr.InvalidTxnState, kerr.ClusterAuthorizationFailed, kerr.TransactionAbortable, kgo.ErrClientClosed,
	} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}
