package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// Floor is the result of the floor.
type Floor struct {
	Tasks          int       `json:"tasks"`
	Seconds        float64   `json:"duration_seconds"`
	TasksPerSecond float64   `json:"tasks_per_second"`
	PerTask        int       `json:"records_per_task"`
	Moved          int64     `json:"records"` // of all tasks including the warm-up, as counted
	EventBytes     float64   `json:"event_bytes"`
	CPUSeconds     float64   `json:"cpu_seconds"`
	Transactions   int64     `json:"transactions"`
	MeanRecords    float64   `json:"records_per_transaction"`
	Bytes          int64     `json:"bytes"`
	WireBytes      int64     `json:"wire_bytes"`
	Task           Quantiles `json:"task"`
}

// floor is one run of the floor.
type floor struct {
	o       *Options
	load    *Load
	env     *environment
	orders  *orders
	tally   *tally
	scripts []*script
	slots   chan struct{}
	watch   *observer
	moved   atomic.Int64 // records written and, where in a transaction, committed
	// all is the number of records of all tasks. allMoved is closed when that many were moved.
	all      int64
	allMoved chan struct{}
}

// recordMoved counts n records that were written. It is safe for concurrent use.
func (f *floor) recordMoved(n int64) {
	if sum := f.moved.Add(n); sum >= f.all && sum-n < f.all {
		close(f.allMoved)
	}
}

// awaitAllMoved waits until the records of all tasks were moved. A task counts as ended at its last event, but replies
// of parallel steps may be processed after that: a script has them in the order of the sampled run.
func (f *floor) awaitAllMoved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	for {
		select {
		case <-f.allMoved:
			return nil
		case <-f.watch.changed:
			if err := f.watch.failure(); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("the floor has moved %d records of %d: %w", f.moved.Load(), f.all, ctx.Err())
		}
	}
}

// runFloor moves the records of the load's tasks through its own broker, or its own namespace.
func runFloor(ctx context.Context, o *Options, dir string, ns events.Namespace, scripts []*script) (result *Floor, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &floor{o: o, load: &o.Load, orders: newOrders(minPayload), tally: newTally(&o.Load), scripts: scripts, allMoved: make(chan struct{})}
	f.all = int64(f.load.all() * scripts[0].records)
	if f.env, err = openEnvironment(environmentOptions{dir: dir, cluster: o.Cluster, log: o.Log}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.env.close()) }()
	d, err := f.load.Definition() // for its agents' topics
	if err != nil {
		return nil, err
	}
	if err := f.env.prepare(ctx, f.load.Partitions, d); err != nil {
		return nil, err
	}
	for _, s := range scripts {
		s.renameTopics(ns, f.env.cfg.Namespace)
	}
	if f.load.Inflight > 0 {
		f.slots = make(chan struct{}, f.load.Inflight)
	}
	admin, err := kafkaadmin.Open(f.env.cfg)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if f.watch, err = observe(ctx, f.env, admin, f.orders, f.tally, f.slots); err != nil {
		return nil, err
	}
	defer f.watch.start(ctx)()
	err = f.run(ctx, func(ctx context.Context) error {
		var err error
		result, err = f.measure(ctx, admin)
		return err
	})
	if err != nil {
		return nil, err
	}
	result.Moved = f.moved.Load() // after all clients have ended
	return result, nil
}

// renameTopics moves a script to another namespace.
func (s *script) renameTopics(from, to events.Namespace) {
	move := func(r *kgo.Record) { r.Topic = string(to) + r.Topic[len(from):] }
	move(s.submission)
	for _, r := range s.replies {
		move(r)
	}
	for _, stage := range s.stages {
		for _, r := range stage {
			move(r)
		}
	}
}

// run runs the floor's roles while drive runs.
func (f *floor) run(ctx context.Context, drive func(context.Context) error) error {
	stores, err := openFloorStores(filepath.Join(f.env.dir, "state"))
	if err != nil {
		return err
	}
	outer := ctx
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	for i := range f.load.Workers {
		g.Go(func() error { return f.worker(ctx, i, stores.tasks) })
	}
	for i := range min(len(agents), f.load.Steps) {
		g.Go(func() error { return f.agent(ctx, agents[i]) })
	}
	g.Go(func() error { return f.supervisor(ctx, stores.deadlines) })
	g.Go(func() error {
		defer cancel()
		return drive(ctx)
	})
	err = g.Wait()
	cancel()
	if err == nil {
		err = outer.Err()
	}
	return errors.Join(err, stores.close())
}

// unlessCancelled returns err, or nil if ctx has ended.
func unlessCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *floor) measure(ctx context.Context, admin *kafkaadmin.Admin) (*Floor, error) {
	if err := f.awaitJoined(ctx, admin); err != nil {
		return nil, err
	}
	producer, err := f.env.client(produceOptions()...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := f.runPart(ctx, producer, "floor's warm-up", 0, f.load.Warmup); err != nil {
		return nil, err
	}
	runtime.GC()
	before, seenBefore, began := f.env.meter.read(), f.watch.count(), f.tally.now()
	if err := f.runPart(ctx, producer, "floor", f.load.Warmup, f.load.all()); err != nil {
		return nil, err
	}
	used, took := f.env.meter.read().since(before), time.Duration(f.watch.lastEnd.Load()-began)
	if err := f.awaitAllMoved(ctx); err != nil {
		return nil, err
	}
	tasks, seen := f.load.Tasks, f.watch.count().since(seenBefore)
	return &Floor{Tasks: tasks, Seconds: took.Seconds(), TasksPerSecond: float64(tasks) / took.Seconds(), PerTask: f.scripts[0].records,
		EventBytes: ratio(seen.bytes, seen.events), CPUSeconds: used.cpu.Seconds(), Transactions: used.transactions, MeanRecords: ratio(used.committed, used.transactions),
		Bytes: used.plainBytes, WireBytes: used.wireBytes, Task: quantiles(&f.tally.task)}, nil
}

func (f *floor) awaitJoined(ctx context.Context, admin *kafkaadmin.Admin) error {
	ns := f.env.cfg.Namespace
	groups := []string{ns.SchedulerGroup(), ns.SupervisorGroup()}
	for i := range min(len(agents), f.load.Steps) {
		groups = append(groups, ns.AgentGroup(agents[i]))
	}
	return awaitGroupsStable(ctx, admin, groups)
}

// runPart submits some tasks and waits until all have ended.
func (f *floor) runPart(ctx context.Context, producer *kgo.Client, what string, from, to int) error {
	g := &generator{tally: f.tally, slots: f.slots, dueAfter: f.load.dueAtRate()}
	g.write = func(ctx context.Context, n int) {
		s := f.scripts[n%len(f.scripts)]
		r := *s.submission
		r.Key = []byte(f.orders.id(n))
		producer.Produce(ctx, &r, func(_ *kgo.Record, err error) {
			f.recordMoved(1)
			g.recordWritten(n, err)
		})
	}
	g.flush = producer.Flush
	p := &phase{generator: g, watch: f.watch, progress: f.o.progress, stallTimeout: stallTimeout}
	if err := p.run(ctx, what, from, to); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
