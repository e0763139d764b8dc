package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/scheduler"
)

// RestoreOptions configure what a scheduler restores.
type RestoreOptions struct {
	Options
	// Open is how many tasks of the log are open.
	Open int
}

// RestoreResult is how long a scheduler takes to start.
type RestoreResult struct {
	Broker  string  `json:"broker"`
	Machine Machine `json:"machine"`
	Load    Load    `json:"load"`
	Events  int64   `json:"events"` // in the log
	Open    int     `json:"open_tasks"`
	// Empty is a start with an empty disk, Store one with the existing store.
	Empty         Restored `json:"from_empty_disk"`
	Store         Restored `json:"from_store"`
	Verified      bool     `json:"verified"`
	VerifySeconds float64  `json:"verify_seconds"`
}

// Restored is one start of a scheduler. Times count from the start.
type Restored struct {
	Events           int64   `json:"events"`         // that were read; those of a partition that moved meanwhile, twice
	Begun            int     `json:"restores_begun"` // of partitions
	AssignedSeconds  float64 `json:"assigned_seconds"`
	FirstSeconds     float64 `json:"first_decision_seconds"` // first commit of a decision
	RestoredSeconds  float64 `json:"restored_seconds"`       // the last partition
	EventsPerSecond  float64 `json:"events_per_second"`      // from assigned to restored
	CPUSeconds       float64 `json:"cpu_seconds"`            // of the whole process, up to restored
	EventsPerCoreSec float64 `json:"events_per_core_second"`
	CPUOf            string  `json:"cpu_of"`
}

// probesEach is the approximate number of submissions that wait in each partition when the scheduler starts.
const probesEach = 10

// RunRestore fills a log and starts a scheduler on it: once with an empty disk, so from the newest snapshot if
// there is one, and once with its store.
func RunRestore(ctx context.Context, o RestoreOptions) (result *RestoreResult, err error) {
	if err := o.Load.Check(); err != nil {
		return nil, err
	}
	if o.Open < 0 || o.Open > maxTasks {
		return nil, fmt.Errorf("open %d: must be 0 to %d", o.Open, maxTasks)
	}
	dir, remove, err := runDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	s, err := openEnvironment(environmentOptions{dir: dir, cluster: o.Cluster, log: o.Log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.prepareAll(ctx, &o.Load, ParkedCall); err != nil {
		return nil, err
	}
	r := newRun(&o.Options)
	if err := r.writeLog(ctx, s, o.Open); err != nil {
		return nil, err
	}
	result = &RestoreResult{Broker: s.brokerKind(), Machine: machine(), Load: o.Load, Open: o.Open}
	// The start from the store comes first, because the other one deletes the store.
	if result.Store, err = s.restoreOnce(ctx, &o.Options, nil); err != nil {
		return nil, fmt.Errorf("start from the store: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "state")); err != nil {
		return nil, fmt.Errorf("delete the store: %w", err)
	}
	if result.Empty, err = s.restoreOnce(ctx, &o.Options, o.Profile); err != nil {
		return nil, fmt.Errorf("start with an empty disk: %w", err)
	}
	want := o.Load.ends()
	want[events.StateProcessing] += o.Open + 2*o.Options.probes()
	if result.VerifySeconds, err = s.verify(ctx, &o.Options, want); err != nil {
		return nil, err
	}
	result.Verified = true
	result.Events = s.verified
	return result, nil
}

func (o *Options) probes() int { return probesEach * int(o.Load.Partitions) }

// writeLog runs the load and parks tasks, to create a log to be restored.
func (r *run) writeLog(ctx context.Context, s *environment, open int) error {
	r.env = s
	o := *r.o
	o.Profile = nil // profile the restore, not this load
	r.o = &o
	part := r.roles()
	part.parked, part.index = true, false
	p := s.park(ParkedCall, open, r.o.Load.Payload)
	return s.runRoles(ctx, part, part.joined(func(ctx context.Context, n *instance.Instance) error {
		defer p.close()
		if open > 0 {
			if err := p.submit(ctx, n, r.o.progress); err != nil {
				return err
			}
		}
		return r.measure(ctx, n)
	}))
}

// restoreOnce starts a scheduler with waiting submissions, and returns when it has decided all of them.
func (s *environment) restoreOnce(ctx context.Context, o *Options, profile func() (func() error, error)) (Restored, error) {
	p := s.park(ParkedCall, o.probes(), o.Load.Payload)
	w := &restoreWatch{}
	var began time.Time
	var cpu time.Duration
	part := roles{workers: o.Load.Workers, parked: true, seams: instance.Seams{
		Worker:  func(client scheduler.Client) scheduler.Client { return &firstWorker{client, w} },
		History: func(h scheduler.History) scheduler.History { return &watchedHistory{h, w} },
	}}
	stop := func() error { return nil }
	part.before = func(ctx context.Context, n *instance.Instance) (err error) {
		rs := make([]events.Record, p.load.Tasks)
		for i := range rs {
			rs[i] = p.submission(i)
		}
		if err := n.Producer.Send(ctx, rs...); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		if err := p.observe(ctx, n, nil); err != nil {
			return err
		}
		if profile != nil {
			if stop, err = profile(); err != nil {
				return err
			}
		}
		began, cpu = time.Now(), cpuTime()
		w.cpu = cpuTime
		return nil
	}
	err := s.runRoles(ctx, part, func(ctx context.Context, _ *instance.Instance) error {
		defer p.close()
		return p.await(ctx, o.progress)
	})
	if err = errors.Join(err, stop()); err != nil {
		return Restored{}, err
	}
	return w.result(began, cpu, cpuOf(s)), nil
}

// restoreWatch records the progress of a starting scheduler.
type restoreWatch struct {
	mu       sync.Mutex
	cpu      func() time.Duration
	assigned time.Time // first read of a partition
	first    time.Time // the first commit of a decision
	last     time.Time // the last partition was read
	used     time.Duration
	events   int64
	begun    int
}

func (w *restoreWatch) recordBegin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.assigned.IsZero() {
		w.assigned = time.Now()
	}
	w.begun++
}

func (w *restoreWatch) recordRead(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events += n
	w.last, w.used = time.Now(), w.cpu()
}

func (w *restoreWatch) recordCommit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first.IsZero() {
		w.first = time.Now()
	}
}

func (w *restoreWatch) result(began time.Time, cpu time.Duration, of string) Restored {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := w.used - cpu
	x := Restored{Events: w.events, Begun: w.begun, AssignedSeconds: w.assigned.Sub(began).Seconds(), FirstSeconds: w.first.Sub(began).Seconds(),
		RestoredSeconds: w.last.Sub(began).Seconds(), CPUSeconds: used.Seconds(), CPUOf: of}
	if took := w.last.Sub(w.assigned).Seconds(); took > 0 {
		x.EventsPerSecond = float64(x.Events) / took
	}
	if used > 0 {
		x.EventsPerCoreSec = float64(x.Events) / used.Seconds()
	}
	return x
}

// watchedHistory counts what a scheduler reads of the log to restore.
type watchedHistory struct {
	scheduler.History
	watch *restoreWatch
}

// Read reads and records progress. The last event of a store is read once more, for comparison, and isn't counted.
func (h *watchedHistory) Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (int64, error) {
	h.watch.recordBegin()
	n := int64(0)
	if from > 0 {
		n--
	}
	next, err := h.History.Read(ctx, topic, p, from, func(rs []events.Record) error {
		n += int64(len(rs))
		return fn(rs)
	})
	h.watch.recordRead(max(0, n))
	return next, err
}

// firstWorker records the first commit.
type firstWorker struct {
	scheduler.Client
	watch *restoreWatch
}

// Commit commits, and records the time of the first successful commit.
func (l *firstWorker) Commit(ctx context.Context, out []events.Record) (bool, error) {
	committed, err := l.Client.Commit(ctx, out)
	if committed {
		l.watch.recordCommit()
	}
	return committed, err
}
