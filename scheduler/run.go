package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
)

// The defaults and bounds of a scheduler process.
const (
	DefaultMaxRunnable = 10_000 // see admission.go
	stallFactor        = 3      // transaction timeouts without a commit end the process
	decideShare        = 4      // of the transaction timeout, for the inputs of one transaction
	skewWarn           = 2 * time.Second
	skewMax            = 30 * time.Second
	trimEvery          = 30 * time.Second
	refreshEvery       = 5 * time.Second // of the request topics' metadata
	unwritableFor      = 5 * time.Second // an agent whose topic can't be written to
	reopenWaitMin      = 100 * time.Millisecond
	reopenWaitMax      = 5 * time.Second
	notPermittedMax    = time.Minute // of a cluster that doesn't permit what a worker has to do
)

// Config says what a scheduler process is made of.
type Config struct {
	Namespace  events.Namespace
	Partitions int32
	// Owner names this process among the schedulers of the namespace: a
	// worker's owner is "<Owner>/<worker>".
	Owner string
	// Workers is how many workers run; at most Partitions.
	Workers            int
	MaxRunnable        int // see admission.go; 0: DefaultMaxRunnable
	TransactionTimeout time.Duration
	ReplyToPrefixes    []string
	// Capacity bounds the requests that agents have outstanding.
	Capacity Capacity

	// OpenLog opens the client of a worker.
	OpenLog func(ctx context.Context, owner string, worker int) (Log, error)
	History History
	Tasks   func(p int32) (Tasks, error)
	Catalog Catalog
	Clock   Clock
	// RequestTopics is the partition count of each agent's request topic, and those of its
	// partitions that no broker leads, ascending.
	RequestTopics func(ctx context.Context) (partitions map[string]int32, leaderless map[string][]int32, err error)
	// Confirm says of the last events of accepted transactions which one, if any, isn't in the log though all there is
	// settled: below stable it is committed or rolled back. all: they are all looked for, else the last that is settled. nil: it
	// isn't asked.
	Confirm func(ctx context.Context, p int32, accepted []Accepted, all bool) (stable int64, missing *Accepted, err error)
	// Trim deletes the records of an inbox below the given offsets, if its topic has the id still.
	Trim     func(ctx context.Context, topic, id string, before map[int32]int64) error
	Listener *Listener

	token   func(task string, ref events.RequestRef) string // Env.Token
	views   *views
	flushed *flushedInput
}

// Run runs the workers until ctx ends (nil), or until one can't go on: the error
// says why. A worker whose client must be thrown away gets a fresh one; that is
// no reason to end.
func Run(ctx context.Context, cfg Config) error {
	cfg.Workers = max(1, min(cfg.Workers, int(cfg.Partitions)))
	if cfg.MaxRunnable == 0 {
		cfg.MaxRunnable = DefaultMaxRunnable
	}
	cfg.token = newToken
	cfg.views = newViews(runtime.GOMAXPROCS(0))
	cfg.flushed = &flushedInput{}
	requests := &requestTopics{fetch: cfg.RequestTopics}
	if err := requests.readMetadata(ctx); err != nil {
		return fmt.Errorf("read the agents' request topics: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range cfg.Workers {
		g.Go(func() error { return cfg.runWorker(ctx, i, requests) })
	}
	g.Go(func() error { return cfg.runMaintenance(ctx, requests) })
	return g.Wait()
}

// WorkerOwner is the owner that a worker of a process claims partitions as.
func WorkerOwner(process string, number int) string { return process + "/" + strconv.Itoa(number) }

// runWorker keeps one worker going, with a fresh client after each failure.
func (c *Config) runWorker(ctx context.Context, number int, requests *requestTopics) error {
	owner := WorkerOwner(c.Owner, number)
	wait := reopenWaitMin
	var refusals permissionFailures
	for ctx.Err() == nil {
		start := time.Now()
		err := c.runClient(ctx, owner, number, requests)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if isPermanent(err) || refusals.tooLong(err, start, time.Now()) {
			return err
		}
		c.Listener.workerFailed(owner, err)
		if time.Since(start) > reopenWaitMax {
			wait = reopenWaitMin
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, reopenWaitMax)
		}
	}
	return nil
}

// refusals are clients of a worker that the cluster didn't permit, one after another.
type permissionFailures struct{ since time.Time }

// last takes in how a client ended that was opened at an instant. It reports whether the cluster has permitted none
// for notPermittedMax: credentials and ACLs are changed while programs run, and nobody waits for ever for that.
func (r *permissionFailures) tooLong(err error, opened, now time.Time) bool {
	var refused interface{ Refused() bool }
	if !errors.As(err, &refused) || !refused.Refused() {
		r.since = time.Time{}
		return false
	}
	if r.since.IsZero() || now.Sub(opened) > notPermittedMax { // it was permitted for a while
		r.since = now
	}
	return now.Sub(r.since) > notPermittedMax
}

// runClient is the life of one client.
func (c *Config) runClient(ctx context.Context, owner string, number int, requests *requestTopics) error {
	log, err := c.OpenLog(ctx, owner, number)
	if err != nil {
		return fmt.Errorf("open worker %s: %w", owner, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWorker(c, owner, log, requests)
	unwatched := make(chan struct{})
	go func() {
		defer close(unwatched)
		c.endOnStall(ctx, w, cancel)
	}()
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	var stalled *stalledError
	select {
	case err = <-ended:
	case <-ctx.Done():
		// A worker that stalls may hang in a call that nothing ends (a disk):
		// it isn't waited for.
		if !errors.As(context.Cause(ctx), &stalled) {
			err = <-ended
		}
	}
	if errors.As(context.Cause(ctx), &stalled) {
		return stalled
	}
	cancel(nil)
	<-unwatched
	log.Close()
	return err
}

// stalledError ends the process: a worker that doesn't move keeps its partitions
// from everyone else, since its client goes on heartbeating.
type stalledError struct {
	owner  string
	waited time.Duration
}

// permanentError is one that no fresh client heals: the process ends with it.
type permanentError interface {
	error
	Permanent() bool
}

func isPermanent(err error) bool {
	var stalled *stalledError
	var store *storeError
	var refused refusedRecord // that one record is refused is no reason to end
	if errors.As(err, &stalled) || errors.As(err, &store) {
		return true
	}
	var p permanentError
	return !errors.As(err, &refused) && errors.As(err, &p) && p.Permanent()
}

// storeError is a failure of the store: what is opened anew has the same disk.
type storeError struct {
	partition int32
	doing     string
	err       error
}

func (e *storeError) Error() string {
	return fmt.Sprintf("%s the tasks of partition %d: %v; mend the data directory, or delete it: it is rebuilt from the log", e.doing, e.partition, e.err)
}

func (e *storeError) Unwrap() error { return e.err }

func (e *stalledError) Error() string {
	return fmt.Sprintf("worker %s has finished no transaction for %s while records wait; its client was closed so that others can take its partitions", e.owner, e.waited.Round(time.Second))
}

// watch closes the client of a worker that stalls.
func (c *Config) endOnStall(ctx context.Context, w *worker, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var seen watchWindow
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if d := seen.stalledFor(now, w.stalledFor(now), c.TransactionTimeout); d > stallFactor*c.TransactionTimeout {
				cancel(&stalledError{w.owner, d})
				w.log.Close()
				return
			}
		}
	}
}

// watched is since when a worker has been looked at without a gap. A process that was stopped, and goes on,
// finds that its workers have done nothing for as long: they couldn't, and get their time again.
type watchWindow struct{ from, last time.Time }

// since is for how long a worker has stalled while it was watched; a gap of more than most is none of that.
func (w *watchWindow) stalledFor(now time.Time, stalled, most time.Duration) time.Duration {
	if w.last.IsZero() || now.Sub(w.last) > most {
		w.from = now
	}
	w.last = now
	return min(stalled, now.Sub(w.from))
}

// tend does what is no worker's: it reads the request topics' metadata again,
// trims the inboxes, and looks at the clock.
func (c *Config) runMaintenance(ctx context.Context, requests *requestTopics) error {
	refresh, trim, look := time.NewTicker(refreshEvery), time.NewTicker(trimEvery), time.NewTicker(time.Second)
	defer refresh.Stop()
	defer trim.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-refresh.C:
			if err := requests.readMetadata(ctx); err != nil && ctx.Err() == nil {
				c.Listener.requestTopicsFailed(err)
			}
		case <-trim.C:
			c.trim(ctx)
		case <-look.C:
			off := c.Clock.Offset()
			if off < 0 {
				off = -off
			}
			if off > skewMax {
				return fmt.Errorf("the local clock is %s from the broker's, past %s: this scheduler gives up its partitions; set the clock (NTP) and start it again", off, skewMax)
			}
			if off > skewWarn {
				c.Listener.skew(c.Clock.Offset())
			}
		}
	}
}

// trim deletes what the flushed store reflects from the inboxes, and what was brought out of partitions that
// were added to them.
func (c *Config) trim(ctx context.Context) {
	if c.Trim == nil {
		return
	}
	for in, before := range c.flushed.drain() {
		topic := c.Namespace.Inbox(in.inbox)
		if err := c.Trim(ctx, topic, in.topicID, before); err != nil && ctx.Err() == nil {
			c.Listener.trimFailed(topic, err)
		}
	}
}

// inboxTopic is an inbox, and the id of the topic that offsets of it are positions in; empty: not known.
type inboxTopic struct {
	inbox   events.Inbox
	topicID string
}

// inboxOffsets are offsets by inbox and partition.
type inboxOffsets map[events.Inbox]map[int32]int64

func (o inboxOffsets) set(i events.Inbox, p int32, offset int64) {
	if o[i] == nil {
		o[i] = map[int32]int64{}
	}
	o[i][p] = offset
}

// flushedInput collects, from all workers, below which offset each inbox is
// reflected on disk, or done with.
type flushedInput struct {
	sync.Mutex
	offsets map[inboxTopic]map[int32]int64
}

func (f *flushedInput) add(p int32, st events.PartitionState, next int64) {
	if next == 0 {
		return
	}
	f.Lock()
	defer f.Unlock()
	for i, offset := range st.Reflected {
		if offset > 0 {
			f.set(inboxTopic{events.Inbox(i), st.TopicIDs[i]}, p, offset)
		}
	}
}

// set is called with the lock held.
func (f *flushedInput) set(in inboxTopic, p int32, offset int64) {
	if f.offsets == nil {
		f.offsets = map[inboxTopic]map[int32]int64{}
	}
	if f.offsets[in] == nil {
		f.offsets[in] = map[int32]int64{}
	}
	f.offsets[in][p] = offset
}

// done notes partitions that were added to inboxes: what was in them is written elsewhere, and
// their positions are committed with that.
func (f *flushedInput) addForwarded(brought inboxOffsets, ids events.TopicIDs) {
	if len(brought) == 0 {
		return
	}
	f.Lock()
	defer f.Unlock()
	for i, ps := range brought {
		for p, offset := range ps {
			f.set(inboxTopic{i, ids[i]}, p, offset)
		}
	}
}

func (f *flushedInput) drain() map[inboxTopic]map[int32]int64 {
	f.Lock()
	defer f.Unlock()
	taken := f.offsets
	f.offsets = nil
	return taken
}

// views lets one worker of the process at a time have a partition's tasks open:
// they belong to one goroutine.
type views struct {
	sync.Mutex
	open      map[int32]chan struct{} // closed when given back
	loadSlots chan struct{}           // holds one for each that is being loaded
	// dropped are the partitions whose state is, or was, ahead of the log: the group's offsets are, too. Their inboxes are still to be rewound.
	rewindPending map[int32]bool
}

// drop marks a partition whose inboxes are to be rewound; rewound removes the mark.
func (v *views) markForRewind(p int32) {
	v.Lock()
	defer v.Unlock()
	if v.rewindPending == nil {
		v.rewindPending = map[int32]bool{}
	}
	v.rewindPending[p] = true
}

func (v *views) needsRewind(p int32) bool {
	v.Lock()
	defer v.Unlock()
	return v.rewindPending[p]
}

func (v *views) clearRewind(p int32) {
	v.Lock()
	defer v.Unlock()
	delete(v.rewindPending, p)
}

// newViews lets so many be loaded at once.
func newViews(atOnce int) *views {
	return &views{open: map[int32]chan struct{}{}, loadSlots: make(chan struct{}, atOnce)}
}

// load opens tasks. That is work for a processor, so there are as many at once as
// there are processors: then the first partitions act while the rest is loaded,
// instead of all at the end.
func (v *views) openTasks(ctx context.Context, p int32, open func(int32) (Tasks, error)) (Tasks, error) {
	release, err := v.acquireLoadSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return open(p)
}

// turn waits for one of the turns that there are at once.
func (v *views) acquireLoadSlot(ctx context.Context) (release func(), err error) {
	select {
	case v.loadSlots <- struct{}{}:
		return func() { <-v.loadSlots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (v *views) acquire(ctx context.Context, p int32) (release func(), err error) {
	for {
		v.Lock()
		held := v.open[p]
		if held == nil {
			mine := make(chan struct{})
			v.open[p] = mine
			v.Unlock()
			return func() {
				v.Lock()
				delete(v.open, p)
				v.Unlock()
				close(mine)
			}, nil
		}
		v.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
