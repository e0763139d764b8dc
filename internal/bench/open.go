package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
)

// OpenOptions say how many tasks are to be open while a load is measured.
type OpenOptions struct {
	Options
	// Levels are numbers of open tasks, none below the one before.
	Levels []int
}

// OpenResult is a load's at each level.
type OpenResult struct {
	Levels        []OpenLevel `json:"levels"`
	Verified      bool        `json:"verified"`
	VerifySeconds float64     `json:"verify_seconds"`
}

// OpenLevel is one of them.
type OpenLevel struct {
	Open int `json:"open_tasks"`
	// ParkCPU is the processor time of the whole process that it took to open those that
	// the level before hadn't, until the stores had settled.
	ParkCPU float64 `json:"cpu_microseconds_to_open_one,omitempty"`
	// CPURatio is the processor time of a task of the load by that of the first level.
	CPURatio float64 `json:"cpu_ratio"`
	// RolesMemory is the resident memory that the roles gave back when they ended:
	// what they held, without the broker's and the bench's.
	RolesMemory int64 `json:"roles_memory_bytes"`
	// Bounded is the part of it that has a bound, however many tasks are open: caches, memtables, and what is
	// kept decoded, as it is stored. Bounds is what the bounds come to.
	Bounded int64 `json:"bounded_memory_bytes"`
	Bounds  int64 `json:"memory_bounds_bytes"`
	// PerTask is what each open task adds to that of the first level, and
	// PerTaskUnbounded to what has no bound.
	PerTask          float64 `json:"memory_bytes_per_open_task"`
	PerTaskUnbounded float64 `json:"unbounded_memory_bytes_per_open_task"`
	Result           *Result `json:"result"`
}

// than compares a level with the first.
func (x *OpenLevel) than(first *OpenLevel) {
	x.CPURatio = x.Result.CPUPerTask / first.Result.CPUPerTask
	if more := float64(x.Open - first.Open); more > 0 {
		x.PerTask = float64(x.RolesMemory-first.RolesMemory) / more
		x.PerTaskUnbounded = x.PerTask - float64(x.Bounded-first.Bounded)/more
	}
}

// unsavedWithin is longer than any role keeps what it knows from its store.
const unsavedWithin = 3 * time.Second

// unbounded lets all parked tasks be at work.
const unbounded = 1 << 30

// RunOpen measures a load while tasks are open, level by level on one log.
func RunOpen(ctx context.Context, o OpenOptions) (result *OpenResult, err error) {
	if err := errors.Join(o.Load.Check(), checkLevels(o.Levels)); err != nil {
		return nil, err
	}
	dir, remove, err := folder(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	s, err := openSite(siteOptions{dir: dir, cluster: o.Cluster, log: o.Log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.prepareAll(ctx, &o.Load); err != nil {
		return nil, err
	}
	result = &OpenResult{}
	want, open := map[events.TaskState]int{}, 0
	for _, level := range o.Levels {
		x, err := s.level(ctx, &o.Options, level-open, level)
		if err != nil {
			return nil, fmt.Errorf("with %d open tasks: %w", level, err)
		}
		open = level
		result.Levels = append(result.Levels, *x)
		result.Levels[len(result.Levels)-1].than(&result.Levels[0])
		for state, n := range o.Load.ends() {
			want[state] += n
		}
	}
	want[events.StateProcessing] += open
	result.VerifySeconds, err = s.verify(ctx, &o.Options, want)
	if err != nil {
		return nil, err
	}
	result.Verified = true
	for i := range result.Levels {
		result.Levels[i].Result.Verified, result.Levels[i].Result.VerifySeconds = true, result.VerifySeconds
	}
	return result, nil
}

func checkLevels(levels []int) error {
	if len(levels) == 0 || levels[0] < 0 || !slices.IsSorted(levels) || levels[len(levels)-1] > maxTasks {
		return fmt.Errorf("levels %v: numbers of open tasks from 0 to %d, none below the one before", levels, maxTasks)
	}
	return nil
}

// prepareAll creates the topics and writes both definitions.
func (s *site) prepareAll(ctx context.Context, l *Load) error {
	d, err := l.Definition()
	if err != nil {
		return err
	}
	parked, err := parkedDefinition()
	if err != nil {
		return err
	}
	return s.prepare(ctx, l.Partitions, d, parked)
}

// level parks some more tasks, measures the load, and weighs the roles.
func (s *site) level(ctx context.Context, o *Options, more, open int) (*OpenLevel, error) {
	r := newRun(o)
	r.site, r.orders = s, spreadOrders(o.Load.Payload)
	part := r.roles()
	part.parked = true
	p := s.park(more, o.Load.Payload)
	p.orders = spreadOrders(o.Load.Payload)
	x := &OpenLevel{Open: open}
	var held int64
	err := s.serve(ctx, part, func(ctx context.Context, n *instance.Instance) error {
		if err := part.joined(ctx, n); err != nil {
			return err
		}
		defer p.close()
		before := cpuTime()
		if more > 0 {
			if err := p.fill(ctx, n, o.progress); err != nil {
				return err
			}
		}
		if err := settle(ctx, n); err != nil {
			return err
		}
		if more > 0 {
			x.ParkCPU = (cpuTime() - before).Seconds() * 1e6 / float64(more)
		}
		if err := r.measure(ctx, n); err != nil {
			return err
		}
		if err := x.weigh(n); err != nil {
			return err
		}
		held = resident()
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.RolesMemory, x.Result = held-resident(), r.result
	runtime.KeepAlive(p) // what the bench holds weighs on both sides
	runtime.KeepAlive(r)
	return x, nil
}

// settle returns when what was opened has come to its place on disk: what that takes
// is no cost of the load.
func settle(ctx context.Context, n *instance.Instance) error {
	select { // roles tell nobody that they have saved
	case <-time.After(unsavedWithin):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, store := range n.Stores() {
		if err := store.Settle(ctx); err != nil {
			return fmt.Errorf("wait for the stores to settle: %w", err)
		}
	}
	return nil
}

// weigh takes note of what the stores hold within their bounds.
func (x *OpenLevel) weigh(n *instance.Instance) error {
	for _, store := range n.Stores() {
		held, most, err := store.Held()
		if err != nil {
			return err
		}
		x.Bounded, x.Bounds = x.Bounded+held.Sum(), x.Bounds+most.Sum()
	}
	return nil
}

// resident is what the process holds of memory when it has given back what it can.
func resident() int64 {
	debug.FreeOSMemory()
	return memory("VmRSS")
}
