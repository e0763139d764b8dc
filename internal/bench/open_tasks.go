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

// OpenOptions configure how many tasks are open while a load is measured.
type OpenOptions struct {
	Options
	// Step is the kind of step in which the open tasks are; empty: a call.
	Step ParkedStep
	// Levels are numbers of open tasks, in ascending order.
	Levels []int
	// Rounds is how often the load is measured at each level, each time after the first level on another log. On a
	// shared machine, results differ more from one minute to the next than between two levels. At least 1.
	Rounds int
}

// OpenResult is the result of a load at each level.
type OpenResult struct {
	Rounds        int         `json:"rounds"`
	Levels        []OpenLevel `json:"levels"`
	Verified      bool        `json:"verified"`
	VerifySeconds float64     `json:"verify_seconds"`
}

// OpenLevel is a level. Of several rounds it is the one with the median CPU time.
type OpenLevel struct {
	Open int `json:"open_tasks"`
	// ParkCPU is the CPU time of the process to open one of the tasks that the previous level hadn't, until the
	// stores had settled.
	ParkCPU float64 `json:"cpu_microseconds_to_open_one,omitempty"`
	// CPURatio is the CPU time per task of the load, relative to the first level. ThroughputRatio is the same for
	// tasks per second. Both are medians of the rounds.
	CPURatio        float64 `json:"cpu_ratio"`
	ThroughputRatio float64 `json:"throughput_ratio"`
	// RolesMemory is the resident memory that the roles released when they ended: without that of the broker and
	// the bench. It is the median of the rounds.
	RolesMemory int64 `json:"roles_memory_bytes"`
	// Bounded is the part of it that is bounded independently of the open tasks: caches, memtables and decoded
	// tasks. Bounds is the sum of the bounds.
	Bounded int64 `json:"bounded_memory_bytes"`
	Bounds  int64 `json:"memory_bounds_bytes"`
	// PerTask is what each open task adds, compared with the first level. PerTaskUnbounded is the part without a
	// bound.
	PerTask          float64 `json:"memory_bytes_per_open_task"`
	PerTaskUnbounded float64 `json:"unbounded_memory_bytes_per_open_task"`
	Result           *Result `json:"result"`
}

// summarizeLevel summarizes the rounds at one level, each compared with a round of the first level.
func summarizeLevel(rounds, first []OpenLevel) OpenLevel {
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

// median returns the upper one for an even number.
func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// computePerTask computes the memory of each open task.
func (x *OpenLevel) computePerTask(first *OpenLevel) {
	if more := float64(x.Open - first.Open); more > 0 {
		x.PerTask = float64(x.RolesMemory-first.RolesMemory) / more
		x.PerTaskUnbounded = x.PerTask - float64(x.Bounded-first.Bounded)/more
	}
}

// compactionQuiet exceeds the interval at which any role saves its state.
const compactionQuiet = 3 * time.Second

// unbounded lets all parked tasks be runnable.
const unbounded = 1 << 30

// openLog is a log with open tasks.
type openLog struct {
	*environment
	open int
	want map[events.TaskState]int // expected states of the log's tasks at the end
}

// secondLogDir is the directory of the log of all levels but the first.
const secondLogDir = "beside"

// RunOpen measures a load while tasks are open, level by level on one log, and before each level the first level
// on another log.
func RunOpen(ctx context.Context, o OpenOptions) (result *OpenResult, err error) {
	if err := errors.Join(o.Load.Check(), o.Step.check(), checkLevels(o.Levels, o.Rounds)); err != nil {
		return nil, err
	}
	dir, remove, err := runDir(o.Dir)
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
	for _, dir := range []string{dir, filepath.Join(dir, secondLogDir)}[:min(len(o.Levels), 2)] {
		s, err := openEnvironment(environmentOptions{dir: dir, cluster: o.Cluster, log: o.Log})
		if err != nil {
			return nil, err
		}
		logs = append(logs, &openLog{environment: s, want: map[events.TaskState]int{}})
		if err := s.prepareAll(ctx, &o.Load, o.Step); err != nil {
			return nil, err
		}
	}
	if result, err = measureLevels(ctx, &o, logs); err != nil {
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

// measureLevels measures all levels: the first on the first log, the others on the second.
func measureLevels(ctx context.Context, o *OpenOptions, logs []*openLog) (*OpenResult, error) {
	result := &OpenResult{Rounds: o.Rounds, Levels: make([]OpenLevel, 1)}
	var first []OpenLevel // all rounds of the first level
	others := o.Levels[1:]
	for i := range max(1, len(others)) {
		var base, rounds []OpenLevel
		for range result.Rounds {
			x, err := logs[0].measureLevel(ctx, o, o.Levels[0])
			if err != nil {
				return nil, err
			}
			base = append(base, *x)
			if len(others) == 0 {
				continue
			}
			if x, err = logs[1].measureLevel(ctx, o, others[i]); err != nil {
				return nil, err
			}
			rounds = append(rounds, *x)
		}
		first = append(first, base...)
		if len(others) > 0 {
			result.Levels = append(result.Levels, summarizeLevel(rounds, base))
		}
	}
	result.Levels[0] = summarizeLevel(first, first)
	for i := range result.Levels {
		result.Levels[i].computePerTask(&result.Levels[0])
	}
	return result, nil
}

func checkLevels(levels []int, rounds int) error {
	if rounds < 1 {
		return fmt.Errorf("rounds %d: must be at least 1", rounds)
	}
	if len(levels) == 0 || levels[0] < 0 || !slices.IsSorted(levels) || levels[len(levels)-1] > maxTasks {
		return fmt.Errorf("levels %v: must be numbers of open tasks from 0 to %d, none below the one before", levels, maxTasks)
	}
	return nil
}

// prepareAll creates the topics and writes both definitions.
func (s *environment) prepareAll(ctx context.Context, l *Load, step ParkedStep) error {
	d, err := l.Definition()
	if err != nil {
		return err
	}
	parked, err := step.definition()
	if err != nil {
		return err
	}
	return s.prepare(ctx, l.Partitions, d, parked)
}

// measureLevel parks tasks up to that many open ones, measures the load, and measures the roles' memory.
func (s *openLog) measureLevel(ctx context.Context, o *OpenOptions, open int) (*OpenLevel, error) {
	more := open - s.open
	r := newRun(&o.Options)
	r.env, r.orders = s.environment, spreadOrders(o.Load.Payload)
	part := r.roles()
	part.parked = true
	p := s.park(o.Step, more, o.Load.Payload)
	p.orders = spreadOrders(o.Load.Payload)
	x := &OpenLevel{Open: open}
	var held int64
	err := s.runRoles(ctx, part, part.joined(func(ctx context.Context, n *instance.Instance) error {
		before := cpuTime()
		if more > 0 {
			err := p.submit(ctx, n, o.progress)
			p.close() // its reader would read the load's events, too
			if err != nil {
				return err
			}
		}
		if err := awaitCompaction(ctx, n); err != nil {
			return err
		}
		if more > 0 {
			x.ParkCPU = (cpuTime() - before).Seconds() * 1e6 / float64(more)
		}
		if err := r.measure(ctx, n); err != nil {
			return err
		}
		if err := x.addStoreMemory(n); err != nil {
			return err
		}
		held = residentMemory()
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("with %d open tasks: %w", open, err)
	}
	s.open = open
	for state, n := range o.Load.ends() {
		s.want[state] += n
	}
	x.RolesMemory, x.Result = held-residentMemory(), r.result
	runtime.KeepAlive(p) // memory of the bench itself must be the same in both readings
	runtime.KeepAlive(r)
	return x, nil
}

// awaitCompaction waits until the stores have written and compacted what was saved. That isn't a cost of the load.
func awaitCompaction(ctx context.Context, n *instance.Instance) error {
	select { // roles don't notify when they have saved
	case <-time.After(compactionQuiet):
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

// addStoreMemory adds the bounded memory of the stores.
func (x *OpenLevel) addStoreMemory(n *instance.Instance) error {
	for _, store := range n.Stores() {
		held, most, err := store.MemoryUse()
		if err != nil {
			return err
		}
		x.Bounded, x.Bounds = x.Bounded+held.Sum(), x.Bounds+most.Sum()
	}
	return nil
}

// residentMemory is the resident memory of the process, after it has returned free memory to the system.
func residentMemory() int64 {
	debug.FreeOSMemory()
	return statusMemory("VmRSS")
}
