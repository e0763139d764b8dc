package waybill

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// trackedMax is how many tasks that nobody waits for are remembered.
	trackedMax = 10_000
	// keptBytes bounds what is kept of them. Of more than that only is known where
	// they begin.
	idleTasksBytesMax = 64 << 20
	// forgetMax is how many of them are looked at for one to forget, each time
	// one is added.
	forgetTriesMax = 4
	// silence is how long a submitted task may show no event before the dead letters are
	// looked through: it may have been refused. It may have ended before it was submitted, too:
	// its history is looked for where it shows none for as long after schedulers have
	// consumed it. Before that there is nothing to look for.
	silentAfter = time.Second
	// consumedEvery is how often it is asked what schedulers have consumed.
	consumedInterval = time.Second
	// backFirst is how far back, in offsets, a task is looked for first; then each time so many times
	// as far.
	searchFirst, searchGrowth = 1 << 16, 8
	// searchRest times what a look took is the pause before the next one for silent tasks.
	searchPauseFactor = 9
	// refusalsEvery is how often the dead letters are looked through for
	// what stays silent.
	refusalsInterval = 5 * time.Second
	// pollPauseMin and pollPauseMax bound the pause between two questions
	// for what is new: short after news, then doubling.
	pollPauseMin = 5 * time.Millisecond
	pollPauseMax = 100 * time.Millisecond
	// readsMax is how many partitions are read at once.
	concurrentReadsMax = 8
)

// watch is the one reader of the log behind all calls of Wait.
//
// It remembers the tasks that were submitted or waited for, and folds their
// events. It reads only partitions in which somebody waits, each from the offset
// where it stopped, the first time from the log's end as it was when the client
// was opened: a task that this client submitted begins after that. Any other
// task, and one of which schedulers have made nothing, is looked for from there back, once, as far
// as it takes. What is folded is bounded in bytes: of a task that had to go the
// partition is read again, from its first event on.
type waiter struct {
	ns             events.Namespace
	partitionCount int32
	log            eventLog
	ctx            context.Context
	cancel         context.CancelFunc
	wake           chan struct{} // something is to be looked at
	jobs           sync.WaitGroup
	readSlots      chan struct{} // bounds what is read at once

	mu         sync.Mutex
	running    bool
	closed     bool
	partitions []partitionReader
	tasks      map[string]*trackedTask
	recent     list.List // *tracked, the oldest first
	waiting    int       // tasks that are waited for
	// Those of which something was folded and that nobody waits for, the longest first;
	// what they take, and at most.
	idle                    list.List
	idleBytes, idleBytesMax int

	endsErr    error     // since the last answer of the brokers
	endsReadAt time.Time // the last answer of the brokers

	refusalsDue     time.Time // when the dead letters are due to be looked at
	readingRefusals bool
	refusalsErr     error

	consumedDue     time.Time // when it is due to be asked what was consumed
	readingConsumed bool
}

// part is what is known of a partition. While it is busy a goroutine reads it.
type partitionReader struct {
	next         int64 // below it everything was read
	owner        string
	reading      bool
	gotRecords   bool      // the last read brought something
	failingSince time.Time // since when reads fail; zero: they don't
	readErr      error     // of the last that failed since
	asOf         time.Time // what was read reflects the log as it was then, at least
	nextSearch   time.Time // silent tasks aren't looked for before
	waiting      map[*trackedTask]struct{}
}

// well: it was read, or need not be.
func (p *partitionReader) markHealthy() { p.failingSince, p.readErr = time.Time{}, nil }

// tracked is a task that was submitted or waited for.
type trackedTask struct {
	taskFold
	id        string
	partition int32
	// expected: its events come after the offset where the partition's reader
	// was when it was submitted. searched: it was looked for, as far back as it takes.
	submittedHere, searched bool
	idleElement             *list.Element // in watch.idle; nil: it isn't there
	idleBytes               int           // what it is counted with there
	evicted                 bool          // since a search for it began
	firstKnown              bool          // it is known where its first event is
	firstOffset             int64         // there
	submittedDigest         string        // of the order that was acknowledged last; empty: none was
	submission              events.Record // the submission as it was acknowledged, without its contents
	consumedAt              time.Time     // when it was found that a scheduler has consumed that; zero: it wasn't
	refusal                 *RefusedError
	pending                 *pendingWait // what is waited for; nil: nobody waits
	lastJoined              time.Time
	waitingSince            time.Time // when the first of those that wait joined
}

// verdict is what calls of Wait for one task share.
type pendingWait struct {
	callers int
	done    chan struct{} // closed when task and err are set
	task    Task
	err     error
}

func newWaiter(ns events.Namespace, partitions int32, ends map[int32]int64, log eventLog) *waiter {
	w := &waiter{ns: ns, partitionCount: partitions, log: log, wake: make(chan struct{}, 1), readSlots: make(chan struct{}, concurrentReadsMax),
		partitions: make([]partitionReader, partitions), tasks: map[string]*trackedTask{}, idleBytesMax: idleTasksBytesMax}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	for p := range w.partitions {
		w.partitions[p] = partitionReader{next: ends[int32(p)], waiting: map[*trackedTask]struct{}{}}
	}
	return w
}

func (w *waiter) partitionOf(id string) int32 { return events.Partition([]byte(id), w.partitionCount) }

// expect remembers where the log is before an order is submitted: the events of a new task come after.
// Nothing else is known of an order until it is acknowledged: one that wasn't written says nothing of the
// task that is there under its id.
func (w *waiter) recordPosition(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.track(id); !t.searched && t.task == nil {
		t.submittedHere = true
	}
}

// acknowledged remembers which order was written, and where: a dead letter would name it.
func (w *waiter) recordAcknowledged(id, digest string, r *events.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.track(id)
	t.submittedDigest, t.refusal, t.consumedAt = digest, nil, time.Time{}
	t.submission = events.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time}
}

// track finds a task, or remembers it from now on; the oldest that nobody
// waits for are forgotten.
func (w *waiter) track(id string) *trackedTask {
	if t := w.tasks[id]; t != nil {
		return t
	}
	t := &trackedTask{id: id, partition: w.partitionOf(id)}
	w.tasks[id] = t
	w.recent.PushBack(t)
	for range forgetTriesMax {
		e := w.recent.Front()
		if w.recent.Len() <= trackedMax {
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

// fold adds a record to its task.
func (w *waiter) applyRecord(t *trackedTask, r *events.Record) {
	before := t.bytes
	t.apply(r)
	if t.task != nil {
		t.refusal = nil // the dead letter was written again since
	}
	if before == 0 && t.bytes > 0 {
		t.firstKnown, t.firstOffset = true, r.Offset
	}
	w.updateIdleBytes(t)
	w.evictIdle()
}

// weigh counts what is kept of a task while nobody waits for it.
func (w *waiter) updateIdleBytes(t *trackedTask) {
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

// shed empties tasks that nobody waits for, while they take too much.
func (w *waiter) evictIdle() {
	for w.idleBytes > w.idleBytesMax {
		w.evict(w.idle.Front().Value.(*trackedTask))
	}
}

// empty forgets what was folded of a task. Who waits for it later has it read anew.
func (w *waiter) evict(t *trackedTask) {
	t.evicted, t.taskFold = true, taskFold{startMissing: true}
	w.updateIdleBytes(t)
}

// wait waits for a task's end or hold.
func (w *waiter) wait(ctx context.Context, id string) (Task, error) {
	t, v, err := w.startWait(id)
	if err != nil {
		return Task{}, err
	}
	defer w.endWait(t, v)
	select {
	case <-v.done:
		return v.task, v.err
	case <-ctx.Done():
	}
	select {
	case <-v.done:
		return v.task, v.err
	default:
		return Task{}, w.timeoutError(t, ctx.Err())
	}
}

func (w *waiter) startWait(id string) (*trackedTask, *pendingWait, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
			part.markHealthy() // nobody has read it meanwhile
		}
		part.waiting[t] = struct{}{}
		if w.waiting == 1 {
			w.endsReadAt = t.lastJoined
			w.endsErr = nil
		}
	}
	v.callers++
	if t.task != nil && t.task.State.Terminal() {
		w.resolve(t, t.lastJoined)
	}
	if !w.running {
		w.running = true
		w.jobs.Go(w.readLoop)
	}
	w.wakeReader()
	return t, v, nil
}

// look has the reader look at once.
func (w *waiter) wakeReader() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *waiter) endWait(t *trackedTask, v *pendingWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.callers--; v.callers == 0 && t.pending == v {
		w.stopWaiting(t)
	}
}

func (w *waiter) stopWaiting(t *trackedTask) {
	t.pending = nil
	w.waiting--
	delete(w.partitions[t.partition].waiting, t)
	w.updateIdleBytes(t)
	w.evictIdle()
}

func (w *waiter) timeoutError(t *trackedTask, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := "nothing of it was seen; does a scheduler run?"
	if t.task != nil {
		seen = "it is " + string(t.task.State)
	} else if t.firstKnown {
		seen = "its events are to be read again"
	} else if w.refusalsErr != nil {
		seen += " (whether it was refused is not known: " + w.refusalsErr.Error() + ")"
	}
	for _, trouble := range []error{w.endsErr, w.partitions[t.partition].readErr} {
		if trouble != nil {
			err = errors.Join(err, trouble)
		}
	}
	return fmt.Errorf("not ended in time, %s: %w", seen, err)
}

// settle gives those that wait for a task their answer, if there is one. What
// was read reflects the log as it was at the instant asOf, at least: a hold, or a refusal,
// counts only if it was there after they came, for it may have ended since it was seen.
func (w *waiter) resolve(t *trackedTask, asOf time.Time) {
	v := t.pending
	if v == nil {
		return
	}
	switch {
	case t.err != nil:
		v.err = t.err
	case t.task != nil && t.submittedDigest != "" && t.task.Digest != t.submittedDigest:
		v.err = &RefusedError{Task: t.id, State: t.task.State,
			Reason: string(events.ReasonIDConflict) + ": a task with this id is there already, with another body"}
	case t.refusal != nil && asOf.After(t.lastJoined):
		v.err = t.refusal
	case t.task != nil && (t.task.State.Terminal() || t.task.State == Held && asOf.After(t.lastJoined)):
		v.task = t.task.Clone().View(w.partitions[t.partition].owner, t.partition, w.partitions[t.partition].next)
	default:
		return
	}
	close(v.done)
	w.stopWaiting(t)
}

// close ends the reader; those that wait are told.
func (w *waiter) close() {
	w.mu.Lock()
	w.closed = true
	w.failAll(ErrClosed)
	w.mu.Unlock()
	w.cancel()
	w.jobs.Wait()
}

// fail tells everybody that waits.
func (w *waiter) failAll(err error) {
	for p := range w.partitions {
		w.failPartition(&w.partitions[p], err)
	}
}

func (w *waiter) failPartition(part *partitionReader, err error) {
	for t := range part.waiting {
		t.pending.err = err
		close(t.pending.done)
		w.stopWaiting(t)
	}
}
