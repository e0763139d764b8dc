package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

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
	// RolesMemory is the resident memory that the roles gave back when they ended:
	// what they held, without the broker's and the bench's.
	RolesMemory int64 `json:"roles_memory_bytes"`
	// PerTask is what each open task adds to that of the first level.
	PerTask float64 `json:"memory_bytes_per_open_task"`
	Result  *Result `json:"result"`
}

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
		if first := &result.Levels; len(*first) > 0 && level > (*first)[0].Open {
			x.PerTask = float64(x.RolesMemory-(*first)[0].RolesMemory) / float64(level-(*first)[0].Open)
		}
		result.Levels = append(result.Levels, *x)
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
	r.site = s
	part := r.roles()
	part.parked = true
	p := s.park(more, o.Load.Payload)
	var held int64
	err := s.serve(ctx, part, func(ctx context.Context, n *instance.Instance) error {
		if err := part.joined(ctx, n); err != nil {
			return err
		}
		defer p.close()
		if more > 0 {
			if err := p.fill(ctx, n, o.progress); err != nil {
				return err
			}
		}
		if err := r.measure(ctx, n); err != nil {
			return err
		}
		held = resident()
		return nil
	})
	if err != nil {
		return nil, err
	}
	x := &OpenLevel{Open: open, RolesMemory: held - resident(), Result: r.result}
	runtime.KeepAlive(p) // what the bench holds weighs on both sides
	runtime.KeepAlive(r)
	return x, nil
}

// resident is what the process holds of memory when it has given back what it can.
func resident() int64 {
	debug.FreeOSMemory()
	return memory("VmRSS")
}
