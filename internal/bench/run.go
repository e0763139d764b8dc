package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// stallTimeout is how long a run may make no progress.
	stallTimeout = 60 * time.Second
	// progressEvery is the interval of progress reports.
	progressEvery = 100 * time.Millisecond
	fetchWait     = 250 * time.Millisecond
)

// Options configure what is measured, and where.
type Options struct {
	Load Load
	// Cluster is measured in its own namespace, which is deleted at the end; nil: an embedded broker in this
	// process.
	Cluster *kafka.Config
	// Dir holds the embedded broker's log and the projections, in folders that don't exist yet; empty: a temporary
	// folder, which is deleted at the end.
	Dir string
	// Floor also runs the floor.
	Floor bool
	// NoIndex runs no index.
	NoIndex bool
	Log     *slog.Logger // nil: no log
	// Progress receives the progress of each part; may be nil.
	Progress func(what string, done, total int64)
	// Profile, if set, is called when the measured part starts; the function that it returns is called when it
	// ends.
	Profile func() (stop func() error, err error)

	// corruption, if set, changes events before they are verified. A test uses it to show that a log that doesn't
	// verify gives no result.
	corruption func(*events.Record)
}

func (o *Options) progress(what string, done, total int64) {
	if o.Progress != nil {
		o.Progress(what, done, total)
	}
}

// Run measures a load and verifies the log. The error is that of the run, or a *BrokenError if its log breaks a
// promise; then there is no result.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := o.Load.Check(); err != nil {
		return nil, err
	}
	dir, remove, err := runDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	r := newRun(&o)
	r.sampler = newSampler(r.orders, &o.Load)
	if err := r.measureRoles(ctx, dir); err != nil {
		return nil, err
	}
	if o.Floor {
		scripts, err := r.sampler.buildScripts()
		if err != nil {
			return nil, fmt.Errorf("the floor: %w", err)
		}
		floor, err := runFloor(ctx, &o, filepath.Join(dir, "floor"), r.sampler.ns, scripts)
		if err != nil {
			return nil, fmt.Errorf("the floor: %w", err)
		}
		r.result.compareWithFloor(floor)
	}
	return r.result, nil
}

// runDir returns the folder of a run.
func runDir(given string) (dir string, remove func(), err error) {
	if given == "" {
		if dir, err = os.MkdirTemp("", "waybill-bench-"); err != nil {
			return "", nil, err
		}
		return dir, func() { _ = os.RemoveAll(dir) }, nil // best effort: it is a temporary directory
	}
	for _, name := range slices.Concat([]string{"kafka", "state", "floor", secondLogDir}, timerFolders) {
		if _, err := os.Stat(filepath.Join(given, name)); err == nil {
			return "", nil, fmt.Errorf("%s already has a folder %s; name an empty directory", given, name)
		}
	}
	return given, func() {}, os.MkdirAll(given, 0o700)
}

// run is one run of a load.
type run struct {
	o       *Options
	orders  *orders
	tally   *tally
	sampler *sampler
	env     *environment
	watch   *observer
	result  *Result
	// onEvent, if set, receives every event of the run's tasks.
	onEvent func(n int, what string, r *kgo.Record) error
}

func newRun(o *Options) *run {
	return &run{o: o, orders: newOrders(o.Load.Payload), tally: newTally(&o.Load)}
}

// roles returns all roles of `waybill up`, with agents that answer at once.
func (r *run) roles() roles {
	w := &workers{&r.o.Load, r.orders, r.tally}
	return roles{workers: r.o.Load.Workers, supervisor: true, index: !r.o.NoIndex, agents: w.handlers(), concurrency: w.concurrency()}
}

// measureRoles measures the roles and verifies the log.
func (r *run) measureRoles(ctx context.Context, dir string) (err error) {
	l := &r.o.Load
	var hooks []kafka.Hook
	if r.o.Floor {
		hooks = append(hooks, r.sampler)
	}
	if r.env, err = openEnvironment(environmentOptions{dir: dir, cluster: r.o.Cluster, log: r.o.Log, hooks: hooks}); err != nil {
		return err
	}
	r.sampler.ns = r.env.cfg.Namespace
	defer func() { err = errors.Join(err, r.env.close()) }()
	d, err := l.Definition()
	if err != nil {
		return err
	}
	if err := r.env.prepare(ctx, l.Partitions, d); err != nil {
		return err
	}
	part := r.roles()
	if err := r.env.runRoles(ctx, part, part.joined(r.measure)); err != nil {
		return err
	}
	r.result.VerifySeconds, err = r.env.verify(ctx, r.o, l.ends())
	r.result.Verified = err == nil
	return err
}

// measure runs the warm-up, and then the measured tasks.
func (r *run) measure(ctx context.Context, n *instance.Instance) error {
	l := &r.o.Load
	var slots chan struct{}
	if l.Inflight > 0 {
		slots = make(chan struct{}, l.Inflight)
	}
	var err error
	if r.watch, err = observe(ctx, r.env, n.Admin, r.orders, r.tally, slots); err != nil {
		return err
	}
	r.watch.onEvent = r.onEvent
	defer r.watch.start(ctx)()
	p := &phase{generator: r.generator(n, slots), watch: r.watch, progress: r.o.progress, stallTimeout: stallTimeout + l.AttemptWithin}
	if err := p.run(ctx, "warm-up", 0, l.Warmup); err != nil {
		return err
	}
	runtime.GC() // collect the garbage of the start, which isn't a cost of the load
	stop, err := r.profile()
	if err != nil {
		return err
	}
	before, seenBefore, began := r.env.meter.read(), r.watch.count(), r.tally.now()
	if err := p.run(ctx, "tasks", l.Warmup, l.all()); err != nil {
		return errors.Join(err, stop())
	}
	used, took := r.env.meter.read().since(before), time.Duration(r.watch.lastEnd.Load()-began)
	if err := stop(); err != nil {
		return err
	}
	r.result = newResult(r, used, r.watch.count().since(seenBefore), took)
	return nil
}

func (r *run) profile() (stop func() error, err error) {
	if r.o.Profile == nil {
		return func() error { return nil }, nil
	}
	return r.o.Profile()
}

// generator writes submissions as a Go application does.
func (r *run) generator(n *instance.Instance, slots chan struct{}) *generator {
	g := &generator{tally: r.tally, slots: slots, dueAfter: r.o.Load.dueAtRate(), flush: n.Producer.Flush}
	g.write = func(ctx context.Context, number int) {
		rec := r.orders.submission(n.Kafka.Namespace, workflowName, number)
		n.Producer.SendAsync(ctx, rec, func(_ events.Record, err error) { g.recordWritten(number, err) })
	}
	return g
}
