package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
	// Rounds is how often the load is measured at each level, each time after the first
	// level's, on another log: a machine that others use differs more from one minute to the
	// next than two levels do. At least 1.
	Rounds int
}

// OpenResult is a load's at each level.
type OpenResult struct {
	Rounds        int         `json:"rounds"`
	Levels        []OpenLevel `json:"levels"`
	Verified      bool        `json:"verified"`
	VerifySeconds float64     `json:"verify_seconds"`
}

// OpenLevel is one of them: of several rounds, that with the median processor time.
type OpenLevel struct {
	Open int `json:"open_tasks"`
	// ParkCPU is the processor time of the whole process that it took to open those that
	// the level before hadn't, until the stores had settled.
	ParkCPU float64 `json:"cpu_microseconds_to_open_one,omitempty"`
	// CPURatio is the processor time of a task of the load by that of the first level, and
	// ThroughputRatio so the tasks in a second: medians of the rounds.
	CPURatio        float64 `json:"cpu_ratio"`
	ThroughputRatio float64 `json:"throughput_ratio"`
	// RolesMemory is the resident memory that the roles gave back when they ended: what
	// they held, without the broker's and the bench's. The median of the rounds.
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

// atLevel is what the rounds at one level say, each beside one of the first level's.
func atLevel(rounds, first []OpenLevel) OpenLevel {
	var cpu, throughput, memory, bounded []float64
	for i := range rounds {
		cpu = append(cpu, rounds[i].Result.CPUPerTask/first[i].Result.CPUPerTask)
		throughput = append(throughput, rounds[i].Result.TasksPerSecond/first[i].Result.TasksPerSecond)
		memory = append(memory, float64(rounds[i].RolesMemory))
		bounded = append(bounded, float64(rounds[i].Bounded))
	}
	x := slices.SortedFunc(slices.Values(rounds), func(a, b OpenLevel) int { return cmp.Compare(a.Result.CPUPerTask, b.Result.CPUPerTask) })[len(rounds)/2]
	x.ParkCPU = rounds[0].ParkCPU
	x.CPURatio, x.ThroughputRatio = median(cpu), median(throughput)
	x.RolesMemory, x.Bounded = int64(median(memory)), int64(median(bounded))
	return x
}

// median is the upper one of an even number.
func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// weighed says what each open task takes of memory.
func (x *OpenLevel) weighed(first *OpenLevel) {
	if more := float64(x.Open - first.Open); more > 0 {
		x.PerTask = float64(x.RolesMemory-first.RolesMemory) / more
		x.PerTaskUnbounded = x.PerTask - float64(x.Bounded-first.Bounded)/more
	}
}

// unsavedWithin is longer than any role keeps what it knows from its store.
const unsavedWithin = 3 * time.Second

// unbounded lets all parked tasks be at work.
const unbounded = 1 << 30

// openLog is a log with open tasks.
type openLog struct {
	*site
	open int
	want map[events.TaskState]int // as the tasks of the log must be in the end
}

// beside is the folder of the log that isn't the first level's.
const beside = "beside"

// RunOpen measures a load while tasks are open, level by level on one log, and beside each
// the first level on another.
func RunOpen(ctx context.Context, o OpenOptions) (result *OpenResult, err error) {
	if err := errors.Join(o.Load.Check(), checkLevels(o.Levels, o.Rounds)); err != nil {
		return nil, err
	}
	dir, remove, err := folder(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	var logs []*openLog
	defer func() {
		for _, l := range logs {
			err = errors.Join(err, l.close())
		}
	}()
	for _, dir := range []string{dir, filepath.Join(dir, beside)}[:min(len(o.Levels), 2)] {
		s, err := openSite(siteOptions{dir: dir, cluster: o.Cluster, log: o.Log})
		if err != nil {
			return nil, err
		}
		logs = append(logs, &openLog{site: s, want: map[events.TaskState]int{}})
		if err := s.prepareAll(ctx, &o.Load); err != nil {
			return nil, err
		}
	}
	if result, err = openLevels(ctx, &o, logs); err != nil {
		return nil, err
	}
	for _, l := range logs {
		l.want[events.StateProcessing] += l.open
		seconds, err := l.verify(ctx, &o.Options, l.want)
		if err != nil {
			return nil, err
		}
		result.VerifySeconds += seconds
	}
	result.Verified = true
	for i := range result.Levels {
		result.Levels[i].Result.Verified, result.Levels[i].Result.VerifySeconds = true, result.VerifySeconds
	}
	return result, nil
}

// openLevels measures all levels: the first on the first log, the others on the second.
func openLevels(ctx context.Context, o *OpenOptions, logs []*openLog) (*OpenResult, error) {
	result := &OpenResult{Rounds: o.Rounds, Levels: make([]OpenLevel, 1)}
	var first []OpenLevel // all of the first level
	others := o.Levels[1:]
	for i := range max(1, len(others)) {
		var base, rounds []OpenLevel
		for range result.Rounds {
			x, err := logs[0].level(ctx, &o.Options, o.Levels[0])
			if err != nil {
				return nil, err
			}
			base = append(base, *x)
			if len(others) == 0 {
				continue
			}
			if x, err = logs[1].level(ctx, &o.Options, others[i]); err != nil {
				return nil, err
			}
			rounds = append(rounds, *x)
		}
		first = append(first, base...)
		if len(others) > 0 {
			result.Levels = append(result.Levels, atLevel(rounds, base))
		}
	}
	result.Levels[0] = atLevel(first, first)
	for i := range result.Levels {
		result.Levels[i].weighed(&result.Levels[0])
	}
	return result, nil
}

func checkLevels(levels []int, rounds int) error {
	if rounds < 1 {
		return fmt.Errorf("%d rounds: at least 1", rounds)
	}
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

// level parks what is missing to so many open tasks, measures the load, and weighs the roles.
func (s *openLog) level(ctx context.Context, o *Options, open int) (*OpenLevel, error) {
	more := open - s.open
	r := newRun(o)
	r.site, r.orders = s.site, spreadOrders(o.Load.Payload)
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
		before := cpuTime()
		if more > 0 {
			err := p.fill(ctx, n, o.progress)
			p.close() // its reader would read the load's events, too
			if err != nil {
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
		return nil, fmt.Errorf("with %d open tasks: %w", open, err)
	}
	s.open = open
	for state, n := range o.Load.ends() {
		s.want[state] += n
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
		if err := store.WaitCompacted(ctx); err != nil {
			return fmt.Errorf("wait for the stores to settle: %w", err)
		}
	}
	return nil
}

// weigh takes note of what the stores hold within their bounds.
func (x *OpenLevel) weigh(n *instance.Instance) error {
	for _, store := range n.Stores() {
		held, most, err := store.MemoryUse()
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
