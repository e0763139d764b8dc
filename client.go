package waybill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// reachWithin bounds the wait for a first answer of the brokers.
	reachWithin = 10 * time.Second
	// answerWithin bounds the question whether any broker answers, after a call that failed.
	answerWithin = 5 * time.Second
	// flushWithin bounds what Close waits for.
	flushWithin = 10 * time.Second
	// faultsMax is how many faults of one Submit are spelled out.
	faultsMax = 10
)

// Client submits orders and asks for tasks. It is safe for concurrent use; one
// for a process is enough.
type Client struct {
	cfg        kafka.Config
	source     string // ce_source of what it writes
	partitions int32
	admin      *kafka.Admin
	reader     *kafka.Restorer
	producer   *kafka.Producer
	watch      *watch

	ending context.Context // ends with Close
	end    context.CancelFunc
	close  sync.Once
}

// Open connects and reads the namespace's format, within ctx and 10 s at most.
// It fails if the configuration is wrong, no broker answers (ErrUnreachable),
// or the namespace was not created. It creates nothing.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	kcfg, err := cfg.kafka()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: kcfg, source: string(kcfg.Namespace) + "client/" + kcfg.ClientID}
	c.ending, c.end = context.WithCancel(context.Background())
	if err := c.open(ctx); err != nil {
		return nil, fmt.Errorf("waybill: open: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Client) open(ctx context.Context) (err error) {
	if c.admin, err = reach(ctx, c.cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	format, err := c.admin.Format(ctx)
	if err != nil {
		return err
	}
	if format.Version != kafka.FormatVersion {
		return fmt.Errorf("the namespace %q has format %d, this program knows %d; use the release that wrote it", c.cfg.Namespace, format.Version, kafka.FormatVersion)
	}
	if format.History {
		return fmt.Errorf("the namespace %q holds an imported history, for reading; use another", c.cfg.Namespace)
	}
	c.partitions = format.Partitions
	ends, err := c.admin.KnownCommittedEndOffsets(ctx, c.cfg.Namespace.Events())
	if err != nil {
		return err
	}
	if c.reader, err = kafka.OpenRestorer(c.cfg, nil); err != nil {
		return err
	}
	if c.producer, err = kafka.OpenProducer(c.cfg); err != nil {
		return err
	}
	c.watch = newWatch(c.cfg.Namespace, c.partitions, ends, c.log())
	return nil
}

// reach opens an Admin that has had an answer.
func reach(ctx context.Context, cfg kafka.Config) (*kafka.Admin, error) {
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := admin.Ping(ctx); err != nil {
		admin.Close()
		if errors.Is(err, kafka.ErrLogin) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return admin, nil
}

// Submit writes orders and returns when all of them are acknowledged: they are
// on all in-sync replicas, and survive the end of every process. That an order
// is acknowledged says nothing of what becomes of it: see Wait.
//
// An order whose form is wrong is an error, and then none is written. Any other
// error means that some may have been written and some not, ErrUnreachable that no
// broker answered for half a minute. Submit all of them again: an order that is there
// already isn't run twice.
func (c *Client) Submit(ctx context.Context, orders ...Order) error {
	if c.ending.Err() != nil {
		return fmt.Errorf("waybill: submit: %w", ErrClosed)
	}
	records := make([]events.Record, len(orders))
	digests := make([]string, len(orders))
	var wrong faults
	for i := range orders {
		r, s, err := orders[i].record(c.cfg.Namespace, c.source)
		if err != nil {
			wrong.add(err)
			continue
		}
		records[i], digests[i] = r, s.Digest()
	}
	if err := wrong.err(len(orders)); err != nil {
		return fmt.Errorf("waybill: submit: nothing written: %w", err)
	}
	type written struct {
		i   int
		err error
	}
	results := make(chan written, len(orders))
	for i := range records {
		id, digest := orders[i].ID, digests[i]
		c.watch.expect(id)
		c.producer.SendAsync(ctx, records[i], func(r events.Record, err error) {
			if err == nil { // maybe after this call has ended
				c.watch.acknowledged(id, digest, &r)
			}
			results <- written{i, err}
		})
	}
	var missing faults
	for range records {
		select {
		case w := <-results:
			if w.err != nil {
				missing.add(fmt.Errorf("order %q: %w", orders[w.i].ID, w.err))
			}
		case <-ctx.Done():
			return fmt.Errorf("waybill: submit: not all acknowledged in time; submit them again, none is run twice: %w", ctx.Err())
		}
	}
	if err := missing.err(len(orders)); err != nil {
		return fmt.Errorf("waybill: submit: not all acknowledged; submit them again, none is run twice: %w", c.why(ctx, err))
	}
	return nil
}

// faults are errors of many orders, of which the first are kept.
type faults struct {
	n     int
	first []error
}

func (f *faults) add(err error) {
	if f.n++; f.n <= faultsMax {
		f.first = append(f.first, err)
	}
}

func (f *faults) err(of int) error {
	switch {
	case f.n == 0:
		return nil
	case of == 1:
		return f.first[0]
	}
	return fmt.Errorf("%d of %d orders: %w", f.n, of, errors.Join(f.first...))
}

// Wait returns the task once it has ended (Processed, Undone, Cancelled) or is
// Held, also if it was so before. A held task goes on when an operator has it
// go on; call Wait again to wait for that.
//
// An order that this client submitted and that was refused is a *RefusedError.
// A task that isn't there yet is waited for. Otherwise Wait ends with ctx, or
// when the brokers have not answered for a minute (ErrUnreachable), and may be
// called again.
//
// It is meant for many tasks at once: all calls share one reader of the log,
// which rests while nobody waits. For a task that this client didn't submit, or
// has submitted a long time ago (10,000 orders and more), that one looks for the
// task's first event in its partition of the log, from the end backwards: once, to the
// log's start if there is none. So it does for an order that schedulers have consumed
// without an event, since the task was there before. Whether they have consumed it, it can know only with
// the right to describe their group; without it that is taken to be so of an order of which
// nothing is heard for a second, and the look takes a tenth of the time at most. Of tasks that it has seen
// and nobody waits for it keeps 64 MB; for one before those it reads the log from where
// that one began.
func (c *Client) Wait(ctx context.Context, id string) (Task, error) {
	if err := events.CheckTaskID(id); err != nil {
		return Task{}, fmt.Errorf("waybill: wait: %w", err)
	}
	t, err := c.watch.wait(ctx, id)
	if err != nil {
		return t, fmt.Errorf("waybill: wait for task %q: %w", id, err)
	}
	return t, nil
}

// Get returns a task as it is now. It reads the task's partition of the log
// from its start, committed records only: what it costs grows with the log. The
// error wraps ErrNotFound if there is no task with this id; one that was just
// submitted is there as soon as a scheduler has accepted it.
func (c *Client) Get(ctx context.Context, id string) (Task, error) {
	if err := events.CheckTaskID(id); err != nil {
		return Task{}, fmt.Errorf("waybill: get: %w", err)
	}
	t, err := c.get(ctx, id)
	if err != nil {
		return t, fmt.Errorf("waybill: get task %q: %w", id, err)
	}
	return t, nil
}

func (c *Client) get(ctx context.Context, id string) (Task, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	p := c.watch.partition(id)
	s := story{}
	owner := ""
	next, err := c.log().all(ctx, c.cfg.Namespace.Events(), p, func(rs []events.Record) error {
		for i := range rs {
			if string(rs[i].Key) == id {
				s.add(&rs[i])
			}
			owner = ownerOf(c.cfg.Namespace, &rs[i], owner)
		}
		return nil
	})
	switch {
	case err != nil:
		return Task{}, c.why(ctx, err)
	case s.err != nil:
		return Task{}, s.err
	case s.task == nil:
		return Task{}, fmt.Errorf("%w in namespace %q", ErrNotFound, c.cfg.Namespace)
	}
	return s.task.View(owner, p, next), nil
}

// within is ctx, which ends with the client too.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ending, cancel)
	return ctx, func() { stop(); cancel() }
}

func (c *Client) closedOr(err error) error {
	if c.ending.Err() != nil {
		return ErrClosed
	}
	return err
}

// why is what a call failed by, with what a program can tell it by: the client was closed
// meanwhile, or no broker answers any more.
func (c *Client) why(ctx context.Context, err error) error {
	switch {
	case c.ending.Err() != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case ctx.Err() != nil || errors.Is(err, ErrUnreachable) || !away(err):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if silent := c.admin.Ping(ctx); silent == nil || errors.Is(silent, kafka.ErrLogin) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func (c *Client) log() *logReader { return &logReader{c.cfg.Namespace, c.admin, c.reader} }

// Close ends the client, after what is still to be acknowledged, for 10 s at
// most. Calls that wait end with ErrClosed. Calling it again does nothing.
func (c *Client) Close() error {
	var err error
	c.close.Do(func() {
		if c.producer != nil {
			ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
			defer cancel()
			err = c.producer.Flush(ctx)
		}
		c.end()
		if c.watch != nil {
			c.watch.close()
		}
		if c.producer != nil {
			c.producer.Close()
		}
		if c.reader != nil {
			c.reader.Close()
		}
		if c.admin != nil {
			c.admin.Close()
		}
	})
	if err != nil {
		return fmt.Errorf("waybill: close: %w", err)
	}
	return nil
}
