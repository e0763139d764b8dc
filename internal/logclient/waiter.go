package logclient

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// trackedDefault bounds the tasks that are remembered although no call waits for them.
	trackedDefault = 10_000
	// idleTasksBytesMax bounds the memory of their folded events. Past it only the offset of a task's
	// first event is kept.
	idleTasksBytesMax = 64 << 20
	// forgetTriesMax bounds how many tracked tasks are examined for one to forget, each time
	// a task is added.
	forgetTriesMax = 4
	// silentAfter is how long a submitted task may have no event, after schedulers consumed the order, before its
	// history is searched: the task may have existed before the submission. Before they consume it there is nothing to
	// find.
	silentAfter = time.Second
	// consumedInterval is the pause between reads of the schedulers' committed offsets.
	consumedInterval = time.Second
	// searchFirst is how many offsets the first search goes back. Each further one goes
	// searchGrowth times as far.
	searchFirst, searchGrowth = 1 << 16, 8
	// searchPauseFactor times the duration of a search is the pause before the next one for
	// silent tasks: searches take at most a tenth of the time.
	searchPauseFactor = 9
	// scanPauseFactor times the duration of a scan of all waiting tasks is the least pause before the next one:
	// scans take at most a tenth of the time, also with millions of tasks.
	scanPauseFactor = 9
	// pollPauseMin and pollPauseMax bound the pause between two reads of the log's end. It
	// starts over when records arrive, and doubles otherwise.
	pollPauseMin = 5 * time.Millisecond
	pollPauseMax = 100 * time.Millisecond
	// concurrentReadsMax bounds the partitions that are read at once.
	concurrentReadsMax = 8
)

// Waiter is the one reader of the log behind all calls of Wait.
//
// It tracks the tasks that were submitted or waited for, and folds their events. It
// reads only partitions with a waiting call, each from the offset where it stopped. The
// first read begins at the log's end as of Open, because a task that this client submits
// has no earlier event. Other tasks, and orders that schedulers consumed without an event,
// are searched once, backwards from there.
//
// Folded events are bounded in bytes. A task that was evicted is read again from its first
// event on.
type Waiter struct {
	ns             events.Namespace
	partitionCount int32
	log            Log
	lookup         Lookup // nil: the log is searched
	silenceMax     time.Duration
	trackedMax     int
	ctx            context.Context
	cancel         context.CancelFunc
	wake           chan struct{} // makes readLoop poll now
	jobs           sync.WaitGroup
	readSlots      chan struct{} // bounds concurrent reads
	lookupSlots    chan struct{} // bounds concurrent lookups

	mu         sync.Mutex
	running    bool // readLoop was started
	closed     bool
	partitions []partitionReader
	tasks      map[string]*trackedTask
	recent     list.List // *trackedTask, the oldest first
	waiting    int       // tasks with a waiting call
	// idle are the tasks with folded events and no waiting call, the longest idle first.
	// idleBytes is what they take, and idleBytesMax its bound.
	idle                    list.List
	idleBytes, idleBytesMax int

	endsErr    error     // of the last read of the log's ends; nil: it succeeded
	endsReadAt time.Time // the last read that succeeded

	refusals refusalReader

	consumedDue     time.Time // when the consumed offsets are to be read next
	readingConsumed bool
}

// partitionReader is the state of one partition of the events.
type partitionReader struct {
	next         int64 // records below this offset were read
	owner        string
	reading      bool      // a goroutine reads the partition
	gotRecords   bool      // a read returned records since pollState asked last
	failingSince time.Time // zero: the last read succeeded
	readErr      error     // of the last read that failed since
	asOf         time.Time // what was read reflects the log at this instant, or later
	nextSearch   time.Time // silent tasks aren't searched before
	nextScan     time.Time // waiting tasks aren't scanned for silent ones before
	waiting      map[*trackedTask]struct{}
	changed      map[*trackedTask]struct{} // those of them that may have a result
}

// markHealthy records that the partition was read, or need not be.
func (p *partitionReader) markHealthy() { p.failingSince, p.readErr = time.Time{}, nil }

// trackedTask is a task that was submitted or waited for.
type trackedTask struct {
	taskFold
	id        string
	partition int32
	// submittedHere: the task was submitted by this client, so its events come after the
	// partition's next offset at that time, unless it existed before.
	submittedHere bool
	searched      bool          // the log was searched for it, to its start or to its first event
	idleElement   *list.Element // in waiter.idle; nil: it isn't there
	idleBytes     int           // its share of waiter.idleBytes
	evicted       bool          // since the present search began
	firstKnown    bool          // firstOffset is set
	firstOffset   int64         // of the task's first event that was folded

	submittedDigest string        // of the order that was acknowledged last; empty: none was
	submission      events.Record // where that order was written; without key, value and headers
	consumedAt      time.Time     // when schedulers were seen to have consumed it; zero: they weren't
	refusal         *RefusedError
	refusalsRead    bool // the dead letters were read up to refusalReader.next, for the order that was acknowledged last

	pending      *pendingWait // nil: no call waits
	lastJoined   time.Time    // when the last call of Wait began
	waitingSince time.Time    // when the first of the calls that wait began
}

// pendingWait is shared by all calls of Wait for one task.
type pendingWait struct {
	callers int
	lookup  lookupState
	done    chan struct{} // closed once task and err are set
	batches []func()      // called then, with the Waiter's lock held
	task    events.TaskView
	err     error
}

// Options of a Waiter. The zero value has defaults.
type Options struct {
	Lookup     Lookup        // nil: tasks are searched in the log
	SilenceMax time.Duration // how long the log may be unreadable before calls fail; zero: BrokerSilenceMax
	Tracked    int           // tasks that are remembered although no call waits for them; zero: 10,000
}

// NewWaiter returns a Waiter. ends are the ends of the events: tasks that are submitted from now on have no earlier
// event. Other tasks are looked up or searched.
func NewWaiter(ns events.Namespace, partitions int32, ends map[int32]int64, log Log, o Options) *Waiter {
	w := &Waiter{ns: ns, partitionCount: partitions, log: log, lookup: o.Lookup, wake: make(chan struct{}, 1),
		silenceMax: cmp.Or(o.SilenceMax, BrokerSilenceMax), trackedMax: cmp.Or(o.Tracked, trackedDefault),
		readSlots: make(chan struct{}, concurrentReadsMax), lookupSlots: make(chan struct{}, concurrentLookupsMax),
		partitions: make([]partitionReader, partitions), tasks: map[string]*trackedTask{}, idleBytesMax: idleTasksBytesMax}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	for p := range w.partitions {
		w.partitions[p] = partitionReader{next: ends[int32(p)], waiting: map[*trackedTask]struct{}{}, changed: map[*trackedTask]struct{}{}}
	}
	return w
}

func (w *Waiter) partitionOf(id string) int32 { return events.Partition([]byte(id), w.partitionCount) }

// BeforeWrite is called before an order is written: the events of a new task will come after the
// partition's present offset. Nothing else changes until the order is acknowledged, because an order
// that wasn't written says nothing about an existing task with its id.
func (w *Waiter) BeforeWrite(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.track(id); !t.searched && t.task == nil {
		t.submittedHere = true
	}
}

// AfterAck is called when the broker has acknowledged an order. It keeps which order was written, and where: a dead letter
// names that offset.
func (w *Waiter) AfterAck(id, digest string, r *events.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.track(id)
	t.submittedDigest, t.refusal, t.consumedAt = digest, nil, time.Time{}
	if v := t.pending; v != nil && v.lookup.digest == "" { // what was looked up may be the task of another order
		v.lookup.done, v.lookup.task = false, nil
	}
	t.submission = events.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time}
	t.refusalsRead = false
	w.refusals.expect()
	w.markChanged(t)
}

// markChanged makes the next read of the task's partition look for a result.
func (w *Waiter) markChanged(t *trackedTask) {
	if t.pending != nil {
		w.partitions[t.partition].changed[t] = struct{}{}
	}
}

// track finds a task or adds it. It forgets the oldest tasks without a waiting call past w.trackedMax.
func (w *Waiter) track(id string) *trackedTask {
	if t := w.tasks[id]; t != nil {
		return t
	}
	t := &trackedTask{id: id, partition: w.partitionOf(id)}
	w.tasks[id] = t
	w.recent.PushBack(t)
	for range forgetTriesMax {
		e := w.recent.Front()
		if w.recent.Len() <= w.trackedMax {
			break
		}
		if old := e.Value.(*trackedTask); old.pending != nil {
			w.recent.MoveToBack(e)
		} else {
			w.recent.Remove(e)
			w.evict(old)
			delete(w.tasks, old.id)
		}
	}
	return t
}

// applyRecord folds a record into its task.
func (w *Waiter) applyRecord(t *trackedTask, r *events.Record) {
	t.apply(r)
	if t.task != nil {
		t.refusal = nil // the order was redriven and accepted
		if t.task.Seq == 1 && t.next == r.Offset+1 {
			t.firstKnown, t.firstOffset = true, r.Offset
		}
	}
	w.markChanged(t)
	w.updateIdleBytes(t)
	w.evictIdle()
}

// updateIdleBytes adds a task to the idle ones, or removes it, as it has folded events and no
// waiting call.
func (w *Waiter) updateIdleBytes(t *trackedTask) {
	bytes := t.bytes
	if t.pending != nil {
		bytes = 0
	}
	w.idleBytes += bytes - t.idleBytes
	t.idleBytes = bytes
	switch {
	case bytes > 0 && t.idleElement == nil:
		t.idleElement = w.idle.PushBack(t)
	case bytes == 0 && t.idleElement != nil:
		w.idle.Remove(t.idleElement)
		t.idleElement = nil
	}
}

// evictIdle evicts idle tasks, the longest idle first, until they fit into idleBytesMax.
func (w *Waiter) evictIdle() {
	for w.idleBytes > w.idleBytesMax {
		w.evict(w.idle.Front().Value.(*trackedTask))
	}
}

// evict drops the folded events of a task. A later Wait reads them again.
func (w *Waiter) evict(t *trackedTask) {
	t.evicted, t.taskFold = true, taskFold{startMissing: true}
	w.updateIdleBytes(t)
}

// Wait blocks until the task has ended or is held.
func (w *Waiter) Wait(ctx context.Context, id string) (events.TaskView, error) {
	t, v, err := w.startWait(id)
	if err != nil {
		return events.TaskView{}, err
	}
	defer w.endWait(t, v)
	select {
	case <-v.done:
		return v.result()
	case <-ctx.Done():
	}
	select {
	case <-v.done:
		return v.result()
	default:
		return events.TaskView{}, w.timeoutError(t, ctx.Err())
	}
}

// result returns what Wait does. It is called when done is closed.
func (v *pendingWait) result() (events.TaskView, error) {
	if v.err != nil {
		return events.TaskView{}, v.err
	}
	return v.task, nil
}

func (w *Waiter) startWait(id string) (*trackedTask, *pendingWait, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.join(id)
}

// join starts a wait for a task, or joins the one that is pending.
func (w *Waiter) join(id string) (*trackedTask, *pendingWait, error) {
	if w.closed {
		return nil, nil, ErrClosed
	}
	t := w.track(id)
	t.lastJoined = time.Now()
	v := t.pending
	if v == nil {
		v = &pendingWait{done: make(chan struct{})}
		t.pending, t.waitingSince = v, t.lastJoined
		w.updateIdleBytes(t)
		w.waiting++
		part := &w.partitions[t.partition]
		if len(part.waiting) == 0 {
			part.markHealthy() // earlier errors say nothing about now: it wasn't read meanwhile
		}
		part.waiting[t] = struct{}{}
		if w.waiting == 1 {
			w.endsReadAt = t.lastJoined
			w.endsErr = nil
		}
	}
	v.callers++
	w.markChanged(t)
	if t.submission.Topic != "" && !t.refusalsRead {
		w.refusals.expect()
	}
	if t.task != nil && isResult(t.task.State, false) {
		w.resolve(t, t.lastJoined)
	}
	if !w.running {
		w.running = true
		w.jobs.Go(w.readLoop)
	}
	w.wakeReader()
	return t, v, nil
}

// wakeReader makes readLoop poll now.
func (w *Waiter) wakeReader() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Waiter) endWait(t *trackedTask, v *pendingWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.callers--; v.callers == 0 && t.pending == v {
		w.stopWaiting(t)
	}
}

func (w *Waiter) stopWaiting(t *trackedTask) {
	t.pending = nil
	w.waiting--
	delete(w.partitions[t.partition].waiting, t)
	delete(w.partitions[t.partition].changed, t)
	w.updateIdleBytes(t)
	w.evictIdle()
}

func (w *Waiter) timeoutError(t *trackedTask, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := "no event of it was found; check that a scheduler runs"
	if t.task != nil {
		seen = "it is " + string(t.task.State)
	} else if t.firstKnown {
		seen = "its state is unknown: its events must be read again"
	} else if w.refusals.err != nil {
		seen += " (the dead letters could not be read, so it may have been refused: " + w.refusals.err.Error() + ")"
	}
	troubles := []error{w.endsErr, w.partitions[t.partition].readErr}
	if v := t.pending; v != nil {
		troubles = append(troubles, v.lookup.err)
		if v.lookup.task != nil && t.task == nil {
			seen = "it is " + string(v.lookup.task.State)
		}
	}
	for _, trouble := range troubles {
		if trouble != nil {
			err = errors.Join(err, trouble)
		}
	}
	return fmt.Errorf("it has not ended yet, %s: %w", seen, err)
}

// isResult reports whether calls that wait for a task return in this state. It must have been read after they began if an
// operator may change it.
func isResult(s events.TaskState, readAfter bool) bool {
	return s.Terminal() && !mayChange(s) || mayChange(s) && readAfter
}

// mayChange reports whether calls return in this state although it isn't final: an operator may continue a held task, and
// undo a processed one.
func mayChange(s events.TaskState) bool { return s == events.StateError || s == events.StateProcessed }

// resolve completes the calls that wait for a task, if it has a result. The log was read as of
// the instant asOf or later. A refusal, or a state that isn't final, counts only if it was read after the last call
// began: an older one may be over by now.
func (w *Waiter) resolve(t *trackedTask, asOf time.Time) {
	v := t.pending
	if v == nil {
		return
	}
	switch {
	case t.err != nil:
		v.task, v.err = w.view(t), t.err
	case t.refusal == nil && t.mayBeEarlier(asOf):
		return
	case t.task != nil && t.submittedDigest != "" && t.task.Digest != t.submittedDigest:
		v.err = conflictError(t.id, t.task.State)
	case t.refusal != nil && asOf.After(t.lastJoined):
		v.err = t.refusal
	case t.task != nil && isResult(t.task.State, asOf.After(t.lastJoined)):
		v.task = w.view(t)
	default:
		var over bool
		if v.task, over, v.err = v.lookup.result(t); !over {
			return
		}
	}
	w.finish(t)
}

// mayBeEarlier reports whether a task that has ended may not be the one that is waited for: schedulers may have forgotten its
// id, and an order with the same id then begins another task. The log was read as of the instant asOf or later. It has the
// events of the order that was acknowledged last if it was read after schedulers consumed that order.
func (t *trackedTask) mayBeEarlier(asOf time.Time) bool {
	switch {
	case t.task == nil, !t.task.State.Terminal(), t.task.ForgetAt.IsZero(), asOf.Before(t.task.ForgetAt):
		return false
	case t.submission.Topic == "":
		return !asOf.After(t.lastJoined)
	default:
		return t.consumedAt.IsZero() || !asOf.After(t.consumedAt)
	}
}

// view returns a task as of the events that were read. It is zero if there were none.
func (w *Waiter) view(t *trackedTask) events.TaskView {
	if t.task == nil {
		return events.TaskView{}
	}
	return t.task.Clone().View(w.partitions[t.partition].owner, t.partition, w.partitions[t.partition].next)
}

// finish completes the calls that wait for a task, with the result in its pendingWait.
func (w *Waiter) finish(t *trackedTask) {
	v := t.pending
	w.stopWaiting(t)
	close(v.done)
	for _, ended := range v.batches {
		ended()
	}
}

// conflictError refuses an order whose id another order has.
func conflictError(id string, s events.TaskState) *RefusedError {
	return &RefusedError{Task: id, State: s, Reason: string(events.ReasonIDConflict) + ": a task with this id and another body exists already"}
}

// Close ends the reader and all waiting calls, which return ErrClosed.
func (w *Waiter) Close() {
	w.mu.Lock()
	w.closed = true
	w.failAll(ErrClosed)
	w.mu.Unlock()
	w.cancel()
	w.jobs.Wait()
}

// failAll ends all waiting calls with an error.
func (w *Waiter) failAll(err error) {
	for p := range w.partitions {
		w.failPartition(&w.partitions[p], err)
	}
}

func (w *Waiter) failPartition(part *partitionReader, err error) {
	for t := range part.waiting {
		t.pending.err = err
		w.finish(t)
	}
}
