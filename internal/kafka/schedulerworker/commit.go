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
func (w *Worker) Commit(ctx context.Context, out []events.Record) (committed bool, err error) {
	w.inCommit.Lock()
	defer w.inCommit.Unlock()
	if err := w.checkOpen(); err != nil {
		return false, err
	}
	if w.polled == 0 {
		panic(fmt.Sprintf("kafka: worker %q commits %d records but polled none", w.cfg.Owner, len(out)))
	}
	if w.mustAbort || w.assignmentChanged() {
		return false, w.rollBack(ctx, "a partition was reassigned after its records were polled")
	}
	began := time.Now()
	sent := w.cfg.Clock.ProcessNow()
	if err := w.session.Begin(); err != nil {
		return false, w.fail("begin a transaction", err)
	}
	written, refused, err := w.produce(ctx, out)
	switch {
	case refused != nil:
		if err := w.rollBack(ctx, refused.Error()); err != nil {
			return false, err
		}
		if kafka.IsTopicMissing(refused) && refused.Topic != w.cfg.Namespace.Events() { // no record of the topic is in flight
			w.session.Client().PurgeTopicsFromProducing(refused.Topic)
		}
		if kafka.IsTooLarge(refused) {
			if refused.Err = w.narrowTopic(ctx, out, refused); refused.Err == nil {
				return false, nil // the records are polled again, and the output is written in smaller batches
			}
		}
		return false, refused
	case errors.Is(err, kerr.TransactionAbortable):
		return false, w.rollBack(ctx, err.Error())
	case err != nil:
		return false, w.fail("write the transaction's output", err)
	}

	if told, err := w.clockWasRight(ctx, written, sent); err != nil {
		return false, w.rollBack(ctx, err.Error())
	} else if !told {
		return false, w.rollBack(ctx, fmt.Sprintf("its decisions used a wrong clock, which is off by %v", w.cfg.Clock.Offset()))
	}

	w.positions.beginCommit(w.lastEvents(written))
	bounded, cancel := context.WithTimeout(kgo.PreTxnCommitFnContext(ctx, w.markCommit), w.cfg.TransactionTimeout)
	defer cancel()
	committed, err = w.session.End(bounded, kgo.TryCommit)
	w.positions.endCommit(err == nil && committed)
	if err != nil {
		return false, w.fail("end a transaction", err)
	}
	if !committed {
		w.onAborted("the group rebalanced, or the broker rolled back")
		return false, nil
	}
	for i := range out {
		out[i].Partition, out[i].Offset = written[i].Partition, written[i].Offset
	}
	clear(w.arena[:len(out)])
	now := time.Now()
	w.lastCommit.Store(w.sinceOpened(now))
	w.waiting.Store(0)
	w.cfg.Listener.Committed(w.polled, len(out), now.Sub(began))
	w.resetPolled()
	return true, nil
}

// lastEvents are the offsets of the last events that were written, by partition.
func (w *Worker) lastEvents(written []*kgo.Record) map[int32]int64 {
	topic, last := w.cfg.Namespace.Events(), map[int32]int64{}
	for _, r := range written {
		if r.Topic == topic {
			last[r.Partition] = max(last[r.Partition], r.Offset)
		}
	}
	return last
}

// commitMarkers commits the positions after markers without later records. Otherwise the group would seem to lag until
// the next transaction. It consumes the markers, so the group's generation fences it too.
func (w *Worker) commitMarkers(ctx context.Context) error {
	w.inCommit.Lock()
	defer w.inCommit.Unlock()
	if err := w.checkOpen(); err != nil {
		return err
	}
	if w.assignmentChanged() {
		return w.rollBack(ctx, "a partition was reassigned after its markers were passed")
	}
	if err := w.session.Begin(); err != nil {
		return w.fail("begin a transaction", err)
	}
	bounded, cancel := context.WithTimeout(kgo.PreTxnCommitFnContext(ctx, w.markCommit), w.cfg.TransactionTimeout)
	defer cancel()
	if committed, err := w.session.End(bounded, kgo.TryCommit); err != nil {
		return w.fail("end a transaction", err)
	} else if !committed {
		w.onAborted("the group rebalanced, or the broker rolled back") // the markers come again
		return nil
	}
	w.resetPolled()
	return nil
}

// Abort rolls back: Poll returns everything polled since the last Commit or Abort again. Errors mean the same as those
// of Commit.
func (w *Worker) Abort(ctx context.Context) error {
	w.inCommit.Lock()
	defer w.inCommit.Unlock()
	if err := w.checkOpen(); err != nil {
		return err
	}
	return w.rollBack(ctx, "the caller aborted it")
}

// assignmentChanged reports whether a partition was lost after its records were polled, even if it was assigned again.
func (w *Worker) assignmentChanged() bool {
	owned := w.balancer.Assigned()
	for p, n := range w.polledFrom {
		if now, ok := owned[p]; !ok || now != n {
			return true
		}
	}
	return false
}

// rollBack aborts the transaction and resets the positions to the committed ones.
func (w *Worker) rollBack(ctx context.Context, why string) error {
	bounded, cancel := context.WithTimeout(ctx, w.cfg.TransactionTimeout)
	defer cancel()
	if _, err := w.session.End(bounded, kgo.TryAbort); err != nil {
		return w.fail("roll back a transaction", err)
	}
	w.onAborted(why)
	return nil
}

func (w *Worker) onAborted(why string) {
	w.cfg.Listener.Aborted(w.polled, why)
	w.resetPolled()
}

func (w *Worker) resetPolled() {
	w.polled, w.mustAbort, w.sawMarkers = 0, false, false
	clear(w.polledFrom)
}

// checkOpen returns the error of a worker that has failed or is closed.
func (w *Worker) checkOpen() error {
	if w.failure == nil && w.closed.Load() {
		w.failure = fmt.Errorf("worker %q is closed", w.cfg.Owner)
	}
	return w.failure
}

func (w *Worker) fail(doing string, err error) error {
	w.failure = fmt.Errorf("worker %q: %s: %w (outcome unknown: close the worker, open a new one, restore)", w.cfg.Owner, doing, kafka.FinalError(w.unfenced(err)))
	return w.failure
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
func (w *Worker) clockWasRight(ctx context.Context, written []*kgo.Record, sent time.Time) (bool, error) {
	clock := w.cfg.Clock
	if clock == nil || len(written) == 0 || !w.cfg.Namespace.Owns(written[0].Topic) {
		return true, nil
	}
	return clock.WasRight(ctx, w.session.Client(), w.decidedBy, written[0].Topic, written[0].Partition, sent)
}

// produce writes the output and waits for its acknowledgement. refused: one record can't be written. err: the producer
// can't continue.
func (w *Worker) produce(ctx context.Context, out []events.Record) (records []*kgo.Record, refused *ProduceError, err error) {
	if len(out) == 0 {
		return nil, nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, w.flushMax())
	defer cancel()
	o := &output{arena: slices.Grow(w.arena[:0], len(out))[:len(out)], records: make([]*kgo.Record, len(out)), acked: make([]bool, len(out)), failed: -1}
	w.arena = nil
	for i := range out {
		o.records[i] = &o.arena[i]
		kafka.FillKgo(o.records[i], &out[i])
	}
	waves := w.narrow.Waves(out, time.Now())
	if waves == nil {
		waves = [][]int{nil}
	}
	for _, wave := range waves {
		index, err := w.produceWave(ctx, bounded, o, wave)
		switch {
		case ctx.Err() != nil:
			return nil, nil, fmt.Errorf("stopped while output was being written: %w", ctx.Err())
		case err == nil:
		case fatalToProducer(err):
			return nil, nil, err
		default:
			return nil, &ProduceError{Index: index, Topic: out[index].Topic, Err: err, alone: w.narrow.IsAlone(out, wave, index)}, nil
		}
	}
	w.arena = o.arena // the client no longer uses it
	return o.records, nil, nil
}

// produceWave sends the records of a wave (nil: all) and waits for their acknowledgement.
func (w *Worker) produceWave(ctx, bounded context.Context, o *output, wave []int) (index int, err error) {
	client, settle := w.session.Client(), o.onProduced
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
	return o.outcome(wave, fmt.Errorf("not acknowledged within %v: %w", w.flushMax(), context.DeadlineExceeded))
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
