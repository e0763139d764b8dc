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
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/listener"
)

// The defaults and limits of a scheduler process.
const (
	DefaultMaxRunnable = 10_000 // see admission.go
	stallFactor        = 3      // in transaction timeouts: a worker without a commit for this long ends the process
	decideShare        = 4      // divisor of the transaction timeout: the time for the inputs of one transaction
	skewWarn           = 2 * time.Second
	skewMax            = 30 * time.Second
	trimEvery          = 30 * time.Second
	refreshEvery       = 5 * time.Second // of the request topics' metadata
	unwritableFor      = 5 * time.Second // for an agent whose topic refuses writes
	reopenWaitMin      = 100 * time.Millisecond
	reopenWaitMax      = 5 * time.Second
)

// Config is what a scheduler process needs.
type Config struct {
	Namespace  events.Namespace
	Partitions int32
	// Owner identifies this process among the schedulers of the namespace. A worker's owner is "<Owner>/<worker>".
	Owner string
	// Workers is the number of workers; at most Partitions.
	Workers            int
	MaxRunnable        int // see admission.go; 0: DefaultMaxRunnable
	TransactionTimeout time.Duration
	ReplyToPrefixes    []string
	// Capacity limits the requests that agents have outstanding.
	Capacity Capacity

	// OpenClient opens the client of a worker.
	OpenClient func(ctx context.Context, owner string, worker int) (Client, error)
	History    History
	Tasks      func(p int32) (Tasks, error)
	Catalog    Catalog
	Clock      Clock
	// RequestTopics returns the partition count of each agent's request topic, and its partitions without a leader,
	// ascending.
	RequestTopics func(ctx context.Context) (partitions map[string]int32, leaderless map[string][]int32, err error)
	// Confirm checks whether the events of accepted transactions are in the log; nil: no checks. With all it checks
	// every settled event, otherwise the last one. missing is an event that isn't in the log. All transactions below
	// stable are committed or rolled back.
	Confirm func(ctx context.Context, p int32, accepted []Accepted, all bool) (stable int64, missing *Accepted, err error)
	// Trim deletes the records of an inbox below offsets, unless its topic was recreated (another id).
	Trim     func(ctx context.Context, topic, id string, before map[int32]int64) error
	Listener *Listener

	token   func(task string, ref events.RequestRef) string // Env.Token
	views   *views
	flushed *flushedInput
}

// Run runs the workers until ctx ends (nil), or until one fails with an error that a new client can't fix. After other
// errors a worker opens a new client.
func Run(ctx context.Context, cfg Config) error {
	cfg.Workers = max(1, min(cfg.Workers, int(cfg.Partitions)))
	if cfg.MaxRunnable == 0 {
		cfg.MaxRunnable = DefaultMaxRunnable
	}
	cfg.Listener = listener.Complete(cfg.Listener)
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

// WorkerOwner returns the owner name with which a worker claims partitions.
func WorkerOwner(process string, number int) string { return process + "/" + strconv.Itoa(number) }

// runWorker runs one worker, with a new client after each failure.
func (c *Config) runWorker(ctx context.Context, number int, requests *requestTopics) error {
	owner := WorkerOwner(c.Owner, number)
	wait := reopenWaitMin
	var refused backoff.RefusedPeriod
	for ctx.Err() == nil {
		start := time.Now()
		err := c.runClient(ctx, owner, number, requests)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if isPermanent(err) || refused.Exceeded(isRefused(err), start, time.Now()) {
			return err
		}
		c.Listener.WorkerFailed(owner, err)
		if time.Since(start) > reopenWaitMax {
			wait = reopenWaitMin
		}
		_ = backoff.Sleep(ctx, wait)
		wait = min(2*wait, reopenWaitMax)
	}
	return nil
}

// isRefused reports whether the cluster doesn't permit what the client needs.
func isRefused(err error) bool {
	var refused interface{ Refused() bool }
	return errors.As(err, &refused) && refused.Refused()
}

// runClient runs a worker with one client.
func (c *Config) runClient(ctx context.Context, owner string, number int, requests *requestTopics) error {
	client, err := c.OpenClient(ctx, owner, number)
	if err != nil {
		return fmt.Errorf("open worker %s: %w", owner, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWorker(c, owner, client, requests)
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
		// A stalled worker may hang in a call that can't be cancelled, such as disk I/O. So Run doesn't wait for it.
		if !errors.As(context.Cause(ctx), &stalled) {
			err = <-ended
		}
	}
	if errors.As(context.Cause(ctx), &stalled) {
		return stalled
	}
	cancel(nil)
	<-unwatched
	client.Close()
	return err
}

// stalledError ends the process. Otherwise a stalled worker would keep its partitions, since its client continues to
// send heartbeats.
type stalledError struct {
	owner  string
	waited time.Duration
}

// permanentError is an error that a new client can't fix. It ends the process.
type permanentError interface {
	error
	Permanent() bool
}

func isPermanent(err error) bool {
	var stalled *stalledError
	var refused refusedRecord // the refusal of one record isn't permanent for the worker
	if errors.As(err, &stalled) {
		return true
	}
	var p permanentError
	return !errors.As(err, &refused) && errors.As(err, &p) && p.Permanent()
}

func (e *stalledError) Error() string {
	return fmt.Sprintf("worker %s has committed no transaction for %s while records wait; its client was closed so that its partitions are reassigned", e.owner, e.waited.Round(time.Second))
}

// endOnStall closes the client of a worker that stalls.
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
				w.client.Close()
				return
			}
		}
	}
}

// watchWindow is the time during which a worker was watched without a gap. After the process was suspended, all workers
// seem stalled, so the gap restarts the window.
type watchWindow struct{ from, last time.Time }

// stalledFor returns how long a worker has been stalled while it was watched. A gap longer than most restarts the
// window.
func (w *watchWindow) stalledFor(now time.Time, stalled, most time.Duration) time.Duration {
	if w.last.IsZero() || now.Sub(w.last) > most {
		w.from = now
	}
	w.last = now
	return min(stalled, now.Sub(w.from))
}

// runMaintenance refreshes the metadata of the request topics, trims the inboxes and checks the clock.
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
				c.Listener.RequestTopicsFailed(err)
			}
		case <-trim.C:
			c.trim(ctx)
		case <-look.C:
			off := c.Clock.Offset()
			if off < 0 {
				off = -off
			}
			if off > skewMax {
				return fmt.Errorf("the local clock differs from the broker's by %s (at most %s): the scheduler stops; synchronize the clock (NTP) and restart it", off, skewMax)
			}
			if off > skewWarn {
				c.Listener.Skew(c.Clock.Offset())
			}
		}
	}
}

// trim deletes the inputs that the flushed stores reflect, and the inputs that were forwarded from added partitions.
func (c *Config) trim(ctx context.Context) {
	if c.Trim == nil {
		return
	}
	for in, before := range c.flushed.drain() {
		topic := c.Namespace.Inbox(in.inbox)
		if err := c.Trim(ctx, topic, in.topicID, before); err != nil && ctx.Err() == nil {
			c.Listener.TrimFailed(topic, err)
		}
	}
}

// inboxTopic is an inbox and the id of its topic; empty: unknown. Offsets are positions in the topic with that id.
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

// flushedInput collects from all workers the offsets below which each inbox may be trimmed.
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

// set sets the offset of a partition. The caller must hold the lock.
func (f *flushedInput) set(in inboxTopic, p int32, offset int64) {
	if f.offsets == nil {
		f.offsets = map[inboxTopic]map[int32]int64{}
	}
	if f.offsets[in] == nil {
		f.offsets[in] = map[int32]int64{}
	}
	f.offsets[in][p] = offset
}

// addForwarded adds offsets of added partitions. Their inputs were forwarded in the transactions that committed their
// positions.
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

// views lets only one worker of the process at a time open a partition's tasks, since one goroutine must own them.
type views struct {
	sync.Mutex
	open      map[int32]chan struct{} // closed on release
	loadSlots chan struct{}           // one element per running load
	// rewindPending lists the partitions whose state was ahead of the log. The group's offsets are ahead, too, so the
	// inboxes must still be rewound.
	rewindPending map[int32]bool
}

// markForRewind marks a partition whose inboxes must be rewound. clearRewind removes the mark.
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

// newViews returns views that allow atOnce concurrent loads.
func newViews(atOnce int) *views {
	return &views{open: map[int32]chan struct{}{}, loadSlots: make(chan struct{}, atOnce)}
}

// openTasks opens a partition's tasks. A load is bound by the CPU, so at most one load per processor runs at a time.
// The first partitions are ready while others are still loaded.
func (v *views) openTasks(ctx context.Context, p int32, open func(int32) (Tasks, error)) (Tasks, error) {
	release, err := v.acquireLoadSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return open(p)
}

// acquireLoadSlot waits for a load slot.
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
