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
	keptBytes = 64 << 20
	// forgetMax is how many of them are looked at for one to forget, each time
	// one is added.
	forgetMax = 4
	// silence is how long a submitted task may show no event before the dead letters are
	// looked through: it may have been refused. It may have ended before it was submitted, too:
	// its history is looked for where it shows none for as long after schedulers have
	// consumed it. Before that there is nothing to look for.
	silence = time.Second
	// consumedEvery is how often it is asked what schedulers have consumed.
	consumedEvery = time.Second
	// backFirst is how far back, in offsets, a task is looked for first; then each time so many times
	// as far.
	backFirst, backTimes = 1 << 16, 8
	// searchRest times what a look took is the pause before the next one for silent tasks.
	searchRest = 9
	// refusalsEvery is how often the dead letters are looked through for
	// what stays silent.
	refusalsEvery = 5 * time.Second
	// lookPauseLeast and lookPauseMost bound the pause between two questions
	// for what is new: short after news, then doubling.
	lookPauseLeast = 5 * time.Millisecond
	lookPauseMost  = 100 * time.Millisecond
	// readsMax is how many partitions are read at once.
	readsMax = 8
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
type watch struct {
	ns         events.Namespace
	partitions int32
	log        records
	life       context.Context
	stop       context.CancelFunc
	wake       chan struct{} // something is to be looked at
	jobs       sync.WaitGroup
	reads      chan struct{} // bounds what is read at once

	mu      sync.Mutex
	running bool
	closed  bool
	parts   []part
	tasks   map[string]*tracked
	recent  list.List // *tracked, the oldest first
	waiting int       // tasks that are waited for
	// Those of which something was folded and that nobody waits for, the longest first;
	// what they take, and at most.
	idle            list.List
	idleBytes, keep int

	trouble error     // since the last answer of the brokers
	good    time.Time // the last answer of the brokers

	refusalsAt   time.Time // when the dead letters are due to be looked at
	refusalsBusy bool
	refusalsErr  error

	consumedAt   time.Time // when it is due to be asked what was consumed
	consumedBusy bool
}

// part is what is known of a partition. While it is busy a goroutine reads it.
type part struct {
	at      int64 // below it everything was read
	owner   string
	busy    bool
	news    bool      // the last read brought something
	failing time.Time // since when reads fail; zero: they don't
	trouble error     // of the last that failed since
	asOf    time.Time // what was read reflects the log as it was then, at least
	rests   time.Time // silent tasks aren't looked for before
	waiting map[*tracked]struct{}
}

// well: it was read, or need not be.
func (p *part) well() { p.failing, p.trouble = time.Time{}, nil }

// tracked is a task that was submitted or waited for.
type tracked struct {
	story
	id        string
	partition int32
	// expected: its events come after the offset where the partition's reader
	// was when it was submitted. searched: it was looked for, as far back as it takes.
	expected, searched bool
	idle               *list.Element // in watch.idle; nil: it isn't there
	weight             int           // what it is counted with there
	emptied            bool          // since a search for it began
	begun              bool          // it is known where its first event is
	begins             int64         // there
	digest             string        // of the order that was acknowledged last; empty: none was
	written            events.Record // the submission as it was acknowledged, without its contents
	consumed           time.Time     // when it was found that a scheduler has consumed that; zero: it wasn't
	refusal            *RefusedError
	verdict            *verdict // what is waited for; nil: nobody waits
	joined             time.Time
	first              time.Time // when the first of those that wait joined
}

// verdict is what calls of Wait for one task share.
type verdict struct {
	waiters int
	done    chan struct{} // closed when task and err are set
	task    Task
	err     error
}

func newWatch(ns events.Namespace, partitions int32, ends map[int32]int64, log records) *watch {
	w := &watch{ns: ns, partitions: partitions, log: log, wake: make(chan struct{}, 1), reads: make(chan struct{}, readsMax),
		parts: make([]part, partitions), tasks: map[string]*tracked{}, keep: keptBytes}
	w.life, w.stop = context.WithCancel(context.Background())
	for p := range w.parts {
		w.parts[p] = part{at: ends[int32(p)], waiting: map[*tracked]struct{}{}}
	}
	return w
}

func (w *watch) partition(id string) int32 { return events.Partition([]byte(id), w.partitions) }

// expect remembers where the log is before an order is submitted: the events of a new task come after.
// Nothing else is known of an order until it is acknowledged: one that wasn't written says nothing of the
// task that is there under its id.
func (w *watch) expect(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.track(id); !t.searched && t.task == nil {
		t.expected = true
	}
}

// acknowledged remembers which order was written, and where: a dead letter would name it.
func (w *watch) acknowledged(id, digest string, r *events.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.track(id)
	t.digest, t.refusal, t.consumed = digest, nil, time.Time{}
	t.written = events.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time}
}

// track finds a task, or remembers it from now on; the oldest that nobody
// waits for are forgotten.
func (w *watch) track(id string) *tracked {
	if t := w.tasks[id]; t != nil {
		return t
	}
	t := &tracked{id: id, partition: w.partition(id)}
	w.tasks[id] = t
	w.recent.PushBack(t)
	for range forgetMax {
		e := w.recent.Front()
		if w.recent.Len() <= trackedMax {
			break
		}
		if old := e.Value.(*tracked); old.verdict != nil {
			w.recent.MoveToBack(e)
		} else {
			w.recent.Remove(e)
			w.empty(old)
			delete(w.tasks, old.id)
		}
	}
	return t
}

// fold adds a record to its task.
func (w *watch) fold(t *tracked, r *events.Record) {
	before := t.bytes
	t.add(r)
	if t.task != nil {
		t.refusal = nil // the dead letter was written again since
	}
	if before == 0 && t.bytes > 0 {
		t.begun, t.begins = true, r.Offset
	}
	w.weigh(t)
	w.shed()
}

// weigh counts what is kept of a task while nobody waits for it.
func (w *watch) weigh(t *tracked) {
	bytes := t.bytes
	if t.verdict != nil {
		bytes = 0
	}
	w.idleBytes += bytes - t.weight
	t.weight = bytes
	switch {
	case bytes > 0 && t.idle == nil:
		t.idle = w.idle.PushBack(t)
	case bytes == 0 && t.idle != nil:
		w.idle.Remove(t.idle)
		t.idle = nil
	}
}

// shed empties tasks that nobody waits for, while they take too much.
func (w *watch) shed() {
	for w.idleBytes > w.keep {
		w.empty(w.idle.Front().Value.(*tracked))
	}
}

// empty forgets what was folded of a task. Who waits for it later has it read anew.
func (w *watch) empty(t *tracked) {
	t.emptied, t.story = true, story{late: true}
	w.weigh(t)
}

// wait waits for a task's end or hold.
func (w *watch) wait(ctx context.Context, id string) (Task, error) {
	t, v, err := w.join(id)
	if err != nil {
		return Task{}, err
	}
	defer w.leave(t, v)
	select {
	case <-v.done:
		return v.task, v.err
	case <-ctx.Done():
	}
	select {
	case <-v.done:
		return v.task, v.err
	default:
		return Task{}, w.unfinished(t, ctx.Err())
	}
}

func (w *watch) join(id string) (*tracked, *verdict, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, ErrClosed
	}
	t := w.track(id)
	t.joined = time.Now()
	v := t.verdict
	if v == nil {
		v = &verdict{done: make(chan struct{})}
		t.verdict, t.first = v, t.joined
		w.weigh(t)
		w.waiting++
		part := &w.parts[t.partition]
		if len(part.waiting) == 0 {
			part.well() // nobody has read it meanwhile
		}
		part.waiting[t] = struct{}{}
		if w.waiting == 1 {
			w.good = t.joined
			w.trouble = nil
		}
	}
	v.waiters++
	if t.task != nil && t.task.State.Terminal() {
		w.settle(t, t.joined)
	}
	if !w.running {
		w.running = true
		w.jobs.Go(w.run)
	}
	w.look()
	return t, v, nil
}

// look has the reader look at once.
func (w *watch) look() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) leave(t *tracked, v *verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.waiters--; v.waiters == 0 && t.verdict == v {
		w.drop(t)
	}
}

func (w *watch) drop(t *tracked) {
	t.verdict = nil
	w.waiting--
	delete(w.parts[t.partition].waiting, t)
	w.weigh(t)
	w.shed()
}

func (w *watch) unfinished(t *tracked, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := "nothing of it was seen; does a scheduler run?"
	if t.task != nil {
		seen = "it is " + string(t.task.State)
	} else if t.begun {
		seen = "its events are to be read again"
	} else if w.refusalsErr != nil {
		seen += " (whether it was refused is not known: " + w.refusalsErr.Error() + ")"
	}
	for _, trouble := range []error{w.trouble, w.parts[t.partition].trouble} {
		if trouble != nil {
			err = errors.Join(err, trouble)
		}
	}
	return fmt.Errorf("not ended in time, %s: %w", seen, err)
}

// settle gives those that wait for a task their answer, if there is one. What
// was read reflects the log as it was at the instant asOf, at least: a hold, or a refusal,
// counts only if it was there after they came, for it may have ended since it was seen.
func (w *watch) settle(t *tracked, asOf time.Time) {
	v := t.verdict
	if v == nil {
		return
	}
	switch {
	case t.err != nil:
		v.err = t.err
	case t.task != nil && t.digest != "" && t.task.Digest != t.digest:
		v.err = &RefusedError{Task: t.id, State: t.task.State,
			Reason: string(events.ReasonIDConflict) + ": a task with this id is there already, with another body"}
	case t.refusal != nil && asOf.After(t.joined):
		v.err = t.refusal
	case t.task != nil && (t.task.State.Terminal() || t.task.State == Held && asOf.After(t.joined)):
		v.task = t.task.Clone().View(w.parts[t.partition].owner, t.partition, w.parts[t.partition].at)
	default:
		return
	}
	close(v.done)
	w.drop(t)
}

// close ends the reader; those that wait are told.
func (w *watch) close() {
	w.mu.Lock()
	w.closed = true
	w.fail(ErrClosed)
	w.mu.Unlock()
	w.stop()
	w.jobs.Wait()
}

// fail tells everybody that waits.
func (w *watch) fail(err error) {
	for p := range w.parts {
		w.failPart(&w.parts[p], err)
	}
}

func (w *watch) failPart(part *part, err error) {
	for t := range part.waiting {
		t.verdict.err = err
		close(t.verdict.done)
		w.drop(t)
	}
}
