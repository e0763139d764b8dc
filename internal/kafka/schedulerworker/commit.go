package schedulerworker

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
	"github.com/waybill-run/waybill/internal/kafka"
)

// ProduceError says that one record of a Commit was refused and that the transaction was certainly rolled back. The
// other records may be fine.
type ProduceError struct {
	// Index of the record in the output; the first one if several failed.
	Index int
	Topic string
	Err   error // a *TooLargeError if the topic does not take a record of that size
	alone bool  // no other record to its topic was in flight
}

func (e *ProduceError) Error() string {
	return fmt.Sprintf("output record %d, to topic %s: %v", e.Index, e.Topic, e.Err)
}

func (e *ProduceError) Unwrap() error { return e.Err }

// RecordIndex returns Index, for callers that match the error by its methods.
func (e *ProduceError) RecordIndex() int { return e.Index }

// Permanent reports whether the record or its topic is the cause (too large, no such topic or partition, not
// authorized), so that a retry fails too. Otherwise the cluster did not accept it in time.
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

// Commit writes the output and commits the positions of everything polled since the last Commit or Abort, in one
// transaction. Each record goes to the partition that it names, or by its key if that is negative. On success each has
// its Partition and Offset.
//
// Results:
//
//   - (true, nil): committed.
//   - (false, nil): certainly rolled back. Poll returns the records again, so decisions from them must be dropped.
//   - (false, *ProduceError): the same, because of one record.
//   - any other error: the outcome is unknown, or the worker was fenced. Close it, open a new one and restore: only the
//     log shows the outcome.
//
// The output must be acknowledged within a third of the transaction timeout. ctx is for shutdown: if it ends during a
// Commit, the outcome is unknown.
//
// Commit panics if nothing was polled, because the group's generation would not fence such a transaction.
func (l *Worker) Commit(ctx context.Context, out []events.Record) (committed bool, err error) {
	l.inCommit.Lock()
	defer l.inCommit.Unlock()
	if err := l.checkOpen(); err != nil {
		return false, err
	}
	if l.polled == 0 {
		panic(fmt.Sprintf("kafka: worker %q commits %d records but polled none", l.cfg.Owner, len(out)))
	}
	if l.mustAbort || l.assignmentChanged() {
		return false, l.rollBack(ctx, "a partition was reassigned after its records were polled")
	}
	began := time.Now()
	sent := l.cfg.Clock.ProcessNow()
	if err := l.session.Begin(); err != nil {
		return false, l.fail("begin a transaction", err)
	}
	written, refused, err := l.produce(ctx, out)
	switch {
	case refused != nil:
		if err := l.rollBack(ctx, refused.Error()); err != nil {
			return false, err
		}
		if kafka.IsTopicMissing(refused) && refused.Topic != l.cfg.Namespace.Events() { // no record of the topic is in flight
			l.session.Client().PurgeTopicsFromProducing(refused.Topic)
		}
		if kafka.IsTooLarge(refused) {
			if refused.Err = l.narrowTopic(ctx, out, refused); refused.Err == nil {
				return false, nil // the records are polled again, and the output is written in smaller batches
			}
		}
		return false, refused
	case errors.Is(err, kerr.TransactionAbortable):
		return false, l.rollBack(ctx, err.Error())
	case err != nil:
		return false, l.fail("write the transaction's output", err)
	}

	if told, err := l.clockWasRight(ctx, written, sent); err != nil {
		return false, l.rollBack(ctx, err.Error())
	} else if !told {
		return false, l.rollBack(ctx, fmt.Sprintf("its decisions used a wrong clock, which is off by %v", l.cfg.Clock.Offset()))
	}

	l.positions.beginCommit(l.lastEvents(written))
	bounded, cancel := context.WithTimeout(kgo.PreTxnCommitFnContext(ctx, l.markCommit), l.cfg.TransactionTimeout)
	defer cancel()
	committed, err = l.session.End(bounded, kgo.TryCommit)
	l.positions.endCommit(err == nil && committed)
	if err != nil {
		return false, l.fail("end a transaction", err)
	}
	if !committed {
		l.onAborted("the group rebalanced, or the broker rolled back")
		return false, nil
	}
	for i := range out {
		out[i].Partition, out[i].Offset = written[i].Partition, written[i].Offset
	}
	clear(l.arena[:len(out)])
	now := time.Now()
	l.lastCommit.Store(l.sinceOpened(now))
	l.waiting.Store(0)
	l.cfg.Listener.Committed(l.polled, len(out), now.Sub(began))
	l.resetPolled()
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

// commitMarkers commits the positions after markers without later records. Otherwise the group would seem to lag until
// the next transaction. It consumes the markers, so the group's generation fences it too.
func (l *Worker) commitMarkers(ctx context.Context) error {
	l.inCommit.Lock()
	defer l.inCommit.Unlock()
	if err := l.checkOpen(); err != nil {
		return err
	}
	if l.assignmentChanged() {
		return l.rollBack(ctx, "a partition was reassigned after its markers were passed")
	}
	if err := l.session.Begin(); err != nil {
		return l.fail("begin a transaction", err)
	}
	bounded, cancel := context.WithTimeout(kgo.PreTxnCommitFnContext(ctx, l.markCommit), l.cfg.TransactionTimeout)
	defer cancel()
	if committed, err := l.session.End(bounded, kgo.TryCommit); err != nil {
		return l.fail("end a transaction", err)
	} else if !committed {
		l.onAborted("the group rebalanced, or the broker rolled back") // the markers come again
		return nil
	}
	l.resetPolled()
	return nil
}

// Abort rolls back: Poll returns everything polled since the last Commit or Abort again. Errors mean the same as those
// of Commit.
func (l *Worker) Abort(ctx context.Context) error {
	l.inCommit.Lock()
	defer l.inCommit.Unlock()
	if err := l.checkOpen(); err != nil {
		return err
	}
	return l.rollBack(ctx, "the caller aborted it")
}

// assignmentChanged reports whether a partition was lost after its records were polled, even if it was assigned again.
func (l *Worker) assignmentChanged() bool {
	owned := l.balancer.Assigned()
	for p, n := range l.polledFrom {
		if now, ok := owned[p]; !ok || now != n {
			return true
		}
	}
	return false
}

// rollBack aborts the transaction and resets the positions to the committed ones.
func (l *Worker) rollBack(ctx context.Context, why string) error {
	bounded, cancel := context.WithTimeout(ctx, l.cfg.TransactionTimeout)
	defer cancel()
	if _, err := l.session.End(bounded, kgo.TryAbort); err != nil {
		return l.fail("roll back a transaction", err)
	}
	l.onAborted(why)
	return nil
}

func (l *Worker) onAborted(why string) {
	l.cfg.Listener.Aborted(l.polled, why)
	l.resetPolled()
}

func (l *Worker) resetPolled() {
	l.polled, l.mustAbort, l.sawMarkers = 0, false, false
	clear(l.polledFrom)
}

// checkOpen returns the error of a worker that has failed or is closed.
func (l *Worker) checkOpen() error {
	if l.failure == nil && l.closed.Load() {
		l.failure = fmt.Errorf("worker %q is closed", l.cfg.Owner)
	}
	return l.failure
}

func (l *Worker) fail(doing string, err error) error {
	l.failure = fmt.Errorf("worker %q: %s: %w (outcome unknown: close the worker, open a new one, restore)", l.cfg.Owner, doing, kafka.FinalError(l.unfenced(err)))
	return l.failure
}

// output tracks the produced records of one transaction.
type output struct {
	arena   []kgo.Record
	records []*kgo.Record // pointers into arena
	done    chan struct{} // closed when all of a wave are acknowledged, or one failed

	mu     sync.Mutex
	acked  []bool
	left   int // of the wave
	failed int // index of the first that failed, -1: none
	err    error
	closed bool
}

// onProduced is the client's callback for each record. All records share it: a closure for each would be most of a
// worker's garbage.
func (o *output) onProduced(r *kgo.Record, err error) {
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

// index returns the index of a record in arena.
func (o *output) index(r *kgo.Record) int {
	return int((uintptr(unsafe.Pointer(r)) - uintptr(unsafe.Pointer(unsafe.SliceData(o.arena)))) / unsafe.Sizeof(*r))
}

// outcome returns the first failure. If records of a wave (nil: all) are not acknowledged yet, it returns overdue for
// the first of them.
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

// startWave prepares for a wave of n records.
func (o *output) startWave(n int) (done chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left, o.done = n, make(chan struct{})
	o.closed = n == 0
	if o.closed {
		close(o.done)
	}
	return o.done
}

// clockWasRight reports whether the clock was right when the output of a transaction was decided (see
// brokerclock.Clock.WasRight).
func (l *Worker) clockWasRight(ctx context.Context, written []*kgo.Record, sent time.Time) (bool, error) {
	clock := l.cfg.Clock
	if clock == nil || len(written) == 0 || !l.cfg.Namespace.Owns(written[0].Topic) {
		return true, nil
	}
	return clock.WasRight(ctx, l.session.Client(), l.decidedBy, written[0].Topic, written[0].Partition, sent)
}

// produce writes the output and waits for its acknowledgement. refused: one record can't be written. err: the producer
// can't continue.
func (l *Worker) produce(ctx context.Context, out []events.Record) (records []*kgo.Record, refused *ProduceError, err error) {
	if len(out) == 0 {
		return nil, nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, l.flushMax())
	defer cancel()
	o := &output{arena: slices.Grow(l.arena[:0], len(out))[:len(out)], records: make([]*kgo.Record, len(out)), acked: make([]bool, len(out)), failed: -1}
	l.arena = nil
	for i := range out {
		o.records[i] = &o.arena[i]
		kafka.FillKgo(o.records[i], &out[i])
	}
	waves := l.narrow.Waves(out, time.Now())
	if waves == nil {
		waves = [][]int{nil}
	}
	for _, wave := range waves {
		index, err := l.produceWave(ctx, bounded, o, wave)
		switch {
		case ctx.Err() != nil:
			return nil, nil, fmt.Errorf("stopped while output was being written: %w", ctx.Err())
		case err == nil:
		case fatalToProducer(err):
			return nil, nil, err
		default:
			return nil, &ProduceError{Index: index, Topic: out[index].Topic, Err: err, alone: l.narrow.IsAlone(out, wave, index)}, nil
		}
	}
	l.arena = o.arena // the client no longer uses it
	return o.records, nil, nil
}

// produceWave sends the records of a wave (nil: all) and waits for their acknowledgement.
func (l *Worker) produceWave(ctx, bounded context.Context, o *output, wave []int) (index int, err error) {
	client, settle := l.session.Client(), o.onProduced
	var done chan struct{}
	if wave == nil {
		done = o.startWave(len(o.records))
		for _, r := range o.records {
			client.Produce(bounded, r, settle)
		}
	} else {
		done = o.startWave(len(wave))
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

// fatalToProducer reports whether an error concerns the producer, not the record.
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
