package waybill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/logclient"
)

const (
	// connectTimeout bounds the wait for the first answer of a broker.
	connectTimeout = 10 * time.Second
	// probeTimeout bounds the check whether any broker answers, after a call that failed.
	probeTimeout = 5 * time.Second
	// flushTimeout bounds how long Close waits for acknowledgements.
	flushTimeout = 10 * time.Second
	// orderErrorsMax bounds the errors of single orders that one Submit returns.
	orderErrorsMax = 10
)

// Client submits orders, waits for their tasks and reads them. It is safe for concurrent use, and a
// process needs only one.
type Client struct {
	cfg        kafka.Config
	source     string // ce_source of the records it writes
	partitions int32
	admin      *kafkaadmin.Admin
	reader     *logreader.Restorer
	producer   *kafka.Producer
	log        *logclient.KafkaLog
	console    *consoleapi.Client // nil: Config.Console names none
	lookup     logclient.Lookup   // at the console; nil likewise
	waiter     *logclient.Waiter

	closing     context.Context // done when Close has flushed
	cancelCalls context.CancelFunc
	closeOnce   sync.Once
}

// Open connects to the cluster and reads the namespace's format. The connection and the reads take
// at most 10 s each. It fails if the configuration is invalid, if no broker answers (ErrUnreachable),
// or if the namespace doesn't exist. It creates no topics.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	kcfg, err := cfg.kafkaConfig()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: kcfg, source: string(kcfg.Namespace) + "client/" + kcfg.ClientID}
	if c.console, err = cfg.Console.client(); err != nil {
		return nil, err
	}
	c.closing, c.cancelCalls = context.WithCancel(context.Background())
	if err := c.open(ctx); err != nil {
		return nil, fmt.Errorf("waybill: open: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Client) open(ctx context.Context) (err error) {
	if c.admin, err = connect(ctx, c.cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	format, err := c.admin.Format(ctx)
	if err != nil {
		return err
	}
	if format.Version != kafkaadmin.FormatVersion {
		return fmt.Errorf("the namespace %q has format %d, this program supports %d; use the release that created it", c.cfg.Namespace, format.Version, kafkaadmin.FormatVersion)
	}
	c.partitions = format.Partitions
	ends, err := c.admin.KnownCommittedEndOffsets(ctx, c.cfg.Namespace.Events())
	if err != nil {
		return err
	}
	if c.console != nil {
		cluster, err := c.admin.ClusterID(ctx)
		if err != nil {
			return err
		}
		c.console.Expect(consoleapi.System{ClusterID: cluster, Namespace: c.cfg.Namespace})
		c.lookup = logclient.ConsoleLookup(c.console)
	}
	if c.reader, err = logreader.OpenRestorer(c.cfg, nil); err != nil {
		return err
	}
	if c.producer, err = kafka.OpenProducer(c.cfg); err != nil {
		return err
	}
	c.log = &logclient.KafkaLog{Namespace: c.cfg.Namespace, Admin: c.admin, Reader: c.reader}
	c.waiter = logclient.NewWaiter(c.cfg.Namespace, c.partitions, ends, c.log, logclient.Options{Lookup: c.lookup})
	return nil
}

// connect returns an Admin once a broker has answered.
func connect(ctx context.Context, cfg kafka.Config) (*kafkaadmin.Admin, error) {
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := admin.Ping(ctx); err != nil {
		admin.Close()
		if errors.Is(err, kafkaadmin.ErrLogin) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return admin, nil
}

// Submit writes orders and returns once all of them are acknowledged by all in-sync replicas. An
// acknowledged order can still be refused by a scheduler: Wait reports that.
//
// If any order is malformed, Submit returns an error and writes none. After any other error some
// orders may have been written and others not; it wraps ErrUnreachable if no broker answered for 30 s,
// and ErrClosed if the client was closed. Submit all of them again: an order that exists already is
// not run twice.
func (c *Client) Submit(ctx context.Context, orders ...Order) error {
	if c.closing.Err() != nil {
		return fmt.Errorf("waybill: submit: %w", ErrClosed)
	}
	subs := make([]*logclient.Submission, len(orders))
	var wrong orderErrors
	for i := range orders {
		s, err := orders[i].submission(c.cfg.Namespace, c.source)
		if err != nil {
			wrong.add(fmt.Errorf("order %q: %w", orders[i].ID, err))
		}
		subs[i] = s
	}
	if err := wrong.err(len(orders)); err != nil {
		return fmt.Errorf("waybill: submit: nothing written: %w", err)
	}
	var missing orderErrors
	err := logclient.SendSubmissions(ctx, c.producer.SendAsync, subs, c.waiter, func(s *logclient.Submission, err error) {
		if err != nil {
			missing.add(fmt.Errorf("order %q: %w", s.ID, err))
		}
	})
	if err != nil {
		return fmt.Errorf("waybill: submit: some orders were not acknowledged in time; submit all of them again, none is run twice: %w", err)
	}
	if err := missing.err(len(orders)); err != nil {
		return fmt.Errorf("waybill: submit: some orders were not acknowledged; submit all of them again, none is run twice: %w", c.withCause(ctx, err))
	}
	return nil
}

// orderErrors counts the errors of a Submit and keeps the first orderErrorsMax.
type orderErrors struct {
	n     int
	first []error
}

func (f *orderErrors) add(err error) {
	if f.n++; f.n <= orderErrorsMax {
		f.first = append(f.first, err)
	}
}

func (f *orderErrors) err(of int) error {
	switch {
	case f.n == 0:
		return nil
	case of == 1:
		return f.first[0]
	}
	return fmt.Errorf("%d of %d orders: %w", f.n, of, errors.Join(f.first...))
}

// Wait returns the task once it has ended (Processed, Undone, Cancelled) or is Held. It returns at
// once if that has already happened. A held task continues when an operator resubmits, undoes or
// releases it; call Wait again to wait for its end.
//
// A task that doesn't exist yet is waited for. If the order was submitted by this client and refused,
// the error is a *RefusedError. Otherwise Wait fails when ctx is done, when the client is closed
// (ErrClosed), or when the log could not be read for a minute (ErrUnreachable if no broker answered).
// It can be called again.
//
// Wait is meant for thousands of concurrent calls. They share one reader of the log, which is idle
// while no call waits. Three cases make it read more than the log's end:
//
//   - A task that this client didn't submit among its last 10,000 orders is searched once: its partition
//     is read backwards to the task's first event, or to the log's start.
//   - An order that schedulers have consumed without an event is searched too, because its task must have
//     existed before. Knowing what they consumed takes the right to describe their consumer group. Without
//     it, an order without an event for 1 s is searched; searches take at most a tenth of the time.
//   - The client keeps 64 MB of tasks that no call waits for. An older one is read again from its first event.
//
// With Config.Console, the task is looked up at the console in these cases. Then Wait also fails if the console
// refuses a request, or doesn't answer for a minute (ErrConsoleUnreachable).
func (c *Client) Wait(ctx context.Context, id string) (Task, error) {
	if err := events.CheckTaskID(id); err != nil {
		return Task{}, fmt.Errorf("waybill: wait: %w", err)
	}
	t, err := c.waiter.Wait(ctx, id)
	if refused, is := errors.AsType[*logclient.RefusedError](err); is {
		err = (*RefusedError)(refused)
	}
	err = consoleError(err)
	if err != nil {
		return t, fmt.Errorf("waybill: wait for task %q: %w", id, err)
	}
	return t, nil
}

// Get returns a task as of the committed events at the time of the call, or later. It asks the console
// that Config.Console names. Without one it reads the task's partition of the log from its start, so its
// cost grows with the log.
//
// The error wraps ErrNotFound if no task has this id. An order that was just submitted becomes a
// task when a scheduler accepts it. It wraps ErrConsoleUnreachable or ErrUnreachable if the console or no
// broker answers, and ErrClosed if the client was closed.
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
	if c.console != nil {
		return c.lookUp(ctx, id)
	}
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	t, found, err := logclient.ReadTask(ctx, c.log, c.cfg.Namespace, c.partitions, id)
	switch {
	case err != nil:
		return Task{}, c.withCause(ctx, err)
	case !found:
		return Task{}, fmt.Errorf("%w in namespace %q", ErrNotFound, c.cfg.Namespace)
	}
	return t, nil
}

// lookUp gets a task from the console.
func (c *Client) lookUp(ctx context.Context, id string) (t Task, err error) {
	err = c.ask(ctx, func(ctx context.Context) error {
		found, _, err := c.lookup(ctx, id, false)
		switch {
		case err != nil:
			return err
		case found == nil:
			return fmt.Errorf("%w in namespace %q", ErrNotFound, c.cfg.Namespace)
		}
		t = *found
		return nil
	})
	return t, err
}

// untilClosed returns a context that is also done when the client is closed.
func (c *Client) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

// withCause wraps ErrClosed or ErrUnreachable around the error of a call, if the client was closed
// meanwhile or no broker answers any more.
func (c *Client) withCause(ctx context.Context, err error) error {
	switch {
	case c.closing.Err() != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case ctx.Err() != nil || errors.Is(err, ErrUnreachable) || !logclient.IsNoAnswer(err):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if silent := c.admin.Ping(ctx); silent == nil || errors.Is(silent, kafkaadmin.ErrLogin) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// Close waits up to 10 s for orders that are not acknowledged yet, and then closes the client. Calls
// that still wait return ErrClosed. Its error says that orders were not acknowledged. Further calls
// do nothing and return nil.
func (c *Client) Close() error {
	var err error
	c.closeOnce.Do(func() {
		if c.producer != nil {
			ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
			defer cancel()
			err = c.producer.Flush(ctx)
		}
		c.cancelCalls()
		if c.waiter != nil {
			c.waiter.Close()
		}
		if c.producer != nil {
			c.producer.Close()
		}
		if c.reader != nil {
			c.reader.Close()
		}
		if c.console != nil {
			c.console.Close()
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
