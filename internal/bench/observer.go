package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// Types of a task's last event, of holds, and of starts and time-outs of attempts.
var (
	typeProcessed = (*events.TaskProcessed)(nil).Type()
	typeUndone    = (*events.TaskUndone)(nil).Type()
	typeCancelled = (*events.TaskCancelled)(nil).Type()
	typeHeld      = (*events.TaskHeld)(nil).Type()
	typeStarted   = (&events.AttemptStarted{Kind: events.Do}).Type()
	typeExpired   = (&events.AttemptExpired{Kind: events.Do}).Type()
)

// observer reads the committed records of the log. It identifies tasks by keys and events by types, and decodes no
// values.
type observer struct {
	client *kgo.Client
	orders *orders
	tally  *tally
	slots  chan struct{} // an entry is released when a task ends; nil: none

	// endType is the type of the event that counts as the end of a task; empty: its last event.
	endType string
	// onEvent, if set, receives all events of the observer's tasks, with their type.
	onEvent func(n int, what string, r *kgo.Record) error

	events, bytes atomic.Int64 // seen
	ended         atomic.Int64 // tasks of the run
	processed     atomic.Int64
	undone        atomic.Int64
	expired       atomic.Int64 // attempts
	lastEnd       atomic.Int64 // by the tally's clock

	changed chan struct{} // holds a value after something was observed
	mu      sync.Mutex
	err     error
}

// observe opens an observer that starts at the current end of the log.
func observe(ctx context.Context, s *environment, admin *kafkaadmin.Admin, o *orders, t *tally, slots chan struct{}) (*observer, error) {
	topic := s.cfg.Namespace.Events()
	ends, err := admin.EndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("observe the log: %w", err)
	}
	from := map[int32]kgo.Offset{}
	for p, end := range ends {
		from[p] = kgo.NewOffset().At(end)
	}
	client, err := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(fetchWait))
	if err != nil {
		return nil, fmt.Errorf("observe the log: %w", err)
	}
	return &observer{client: client, orders: o, tally: t, slots: slots, changed: make(chan struct{}, 1)}, nil
}

// start reads in the background until stop is called. stop waits for the end.
func (o *observer) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		o.run(ctx)
	}()
	return func() {
		cancel()
		<-over
		o.client.Close()
	}
}

func (o *observer) run(ctx context.Context) {
	for {
		fetches := o.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, e := range fetches.Errors() {
			o.fail(fmt.Errorf("observe the log: %s/%d: %w", e.Topic, e.Partition, e.Err))
			return
		}
		at := o.tally.now()
		fetches.EachRecord(func(r *kgo.Record) { o.observeRecord(r, at) })
		o.signalChange()
	}
}

func (o *observer) observeRecord(r *kgo.Record, at int64) {
	size := len(r.Key) + len(r.Value)
	var ceType []byte
	for i := range r.Headers {
		h := &r.Headers[i]
		size += len(h.Key) + len(h.Value)
		if h.Key == events.HeaderType {
			ceType = h.Value
		}
	}
	o.events.Add(1)
	o.bytes.Add(int64(size))
	if o.onEvent != nil {
		if n, ours := o.orders.number(r.Key); ours {
			if err := o.onEvent(n, string(ceType), r); err != nil {
				o.fail(err)
			}
		}
	}
	if o.endType != "" {
		if string(ceType) == o.endType {
			o.recordEnd(r, at, &o.processed)
		}
		return
	}
	switch string(ceType) {
	case typeProcessed:
		o.recordEnd(r, at, &o.processed)
	case typeUndone, typeCancelled:
		o.recordEnd(r, at, &o.undone)
	case typeExpired:
		o.expired.Add(1)
	case typeHeld:
		o.fail(fmt.Errorf("task %s is held, but no task of this load should be: check whether another agent consumes the request topics", r.Key))
	}
}

func (o *observer) recordEnd(r *kgo.Record, at int64, as *atomic.Int64) {
	n, ours := o.orders.number(r.Key)
	if !ours || !o.tally.recordEnd(n, at) {
		return
	}
	as.Add(1)
	o.ended.Add(1)
	o.lastEnd.Store(at)
	if o.slots != nil {
		<-o.slots
	}
}

func (o *observer) fail(err error) {
	o.mu.Lock()
	if o.err == nil && !errors.Is(err, context.Canceled) {
		o.err = err
	}
	o.mu.Unlock()
	o.signalChange()
}

func (o *observer) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *observer) signalChange() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}
