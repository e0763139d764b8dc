package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
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
