package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
)

// TimersOptions configure the deadlines.
type TimersOptions struct {
	Options
	// Step is the kind of step whose timers fire: the deadlines of calls, or the ends of waits. For a signal, no timer
	// fires: the signals are sent instead, and lateness is from then. Empty: calls.
	Step  ParkedStep
	Armed int // timers that stay armed meanwhile
	Burst int // timers that are due at one instant
	// Spread timers are due one after the other, Rate per second.
	Spread int
	Rate   float64
	// Within is the time to submit the tasks of the burst: its instant is fixed in advance.
	Within time.Duration
}

// TimersResult is the cost of deadlines, and their lateness.
type TimersResult struct {
	Broker  string  `json:"broker"`
	Machine Machine `json:"machine"`
	Load    Load    `json:"load"`
	// Without and With are the same load without a supervisor and with one.
	Without *Result `json:"without_supervisor"`
	With    *Result `json:"with_supervisor"`
	// CPUShare is the share of CPU time that arming and disarming takes, RateShare that of the throughput.
	CPUShare  float64 `json:"cpu_share"`
	RateShare float64 `json:"throughput_share"`

	Armed        int       `json:"armed"`
	ArmedSeconds float64   `json:"armed_in_seconds"`
	Spread       Quantiles `json:"lateness_spread"` // of timers that are due one after the other
	Burst        Quantiles `json:"lateness_burst"`  // of those that are due at once

	Verified      bool    `json:"verified"`
	VerifySeconds float64 `json:"verify_seconds"`
}

func (o *TimersOptions) check() error {
	for _, x := range []struct {
		what  string
		value int
	}{{"armed", o.Armed}, {"burst", o.Burst}, {"spread", o.Spread}} {
		if x.value < 0 || x.value > maxTasks || x.value%parkedTimers != 0 {
			return fmt.Errorf("%s %d: must be an even number from 0 to %d, because a task has two timers", x.what, x.value, maxTasks)
		}
	}
	if o.Spread > 0 && !(o.Rate > 0) || o.Within <= 0 {
		return fmt.Errorf("timer rate %v, within %v: both must be above 0", o.Rate, o.Within)
	}
	return errors.Join(o.Step.check(), o.Load.Check())
}

// firing returns how many tasks have that many timers that fire.
func (o *TimersOptions) firing(timers int) int { return timers / o.Step.kind().firing }

// RunTimers measures the cost and lateness of timers. Lateness is from a timer's due time to the instant of the
// resulting decision. Each part has its own log, since a supervisor first reads what was written before it
// started.
func RunTimers(ctx context.Context, o TimersOptions) (*TimersResult, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, remove, err := runDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	t := &timers{o: &o, result: &TimersResult{Machine: machine(), Load: o.Load, Armed: o.Armed}}
	for part, run := range []func(context.Context, *environment) (map[events.TaskState]int, error){t.measureWithout, t.measureWith, t.measureFiring} {
		if err := t.runPart(ctx, filepath.Join(dir, timerFolders[part]), run); err != nil {
			return nil, err
		}
	}
	with, without := t.result.With, t.result.Without
	t.result.CPUShare = 1 - without.CPUPerTask/with.CPUPerTask
	t.result.RateShare = 1 - with.TasksPerSecond/without.TasksPerSecond
	t.result.Verified, with.Verified, without.Verified = true, true, true
	return t.result, nil
}

// timerFolders lists the directories of the parts.
var timerFolders = []string{"without", "with", "timers"}

// timers is one run of RunTimers.
type timers struct {
	o      *TimersOptions
	result *TimersResult
}

// runPart runs a part in an environment of its own, and verifies its log: run returns the expected states of
// tasks.
func (t *timers) runPart(ctx context.Context, dir string, run func(context.Context, *environment) (map[events.TaskState]int, error)) (err error) {
	s, err := openEnvironment(environmentOptions{dir: dir, cluster: t.o.Cluster, log: t.o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	t.result.Broker = s.brokerKind()
	if err := s.prepareAll(ctx, &t.o.Load, t.o.Step); err != nil {
		return err
	}
	want, err := run(ctx, s)
	if err != nil {
		return err
	}
	took, err := s.verify(ctx, &t.o.Options, want)
	t.result.VerifySeconds += took
	return err
}

func (t *timers) measureWithout(ctx context.Context, s *environment) (map[events.TaskState]int, error) {
	result, err := t.measureLoad(ctx, s, false)
	t.result.Without = result
	return t.o.Load.ends(), err
}

func (t *timers) measureWith(ctx context.Context, s *environment) (map[events.TaskState]int, error) {
	result, err := t.measureLoad(ctx, s, true)
	t.result.With = result
	return t.o.Load.ends(), err
}

// measureLoad measures the load with or without a supervisor.
func (t *timers) measureLoad(ctx context.Context, s *environment, supervisor bool) (*Result, error) {
	r := newRun(&t.o.Options)
	r.env = s
	part := r.roles()
	part.supervisor, part.index = supervisor, false
	err := s.runRoles(ctx, part, part.joined(r.measure))
	return r.result, err
}

// measureFiring arms timers, and measures some that fire.
func (t *timers) measureFiring(ctx context.Context, s *environment) (map[events.TaskState]int, error) {
	part := roles{workers: t.o.Load.Workers, parked: true, supervisor: true}
	err := s.runRoles(ctx, part, part.joined(func(ctx context.Context, n *instance.Instance) error { return t.armAndFire(ctx, s, n) }))
	return map[events.TaskState]int{events.StateProcessing: t.o.Armed / parkedTimers, t.o.Step.kind().ends: t.o.firing(t.o.Burst) + t.o.firing(t.o.Spread)}, err
}

// armAndFire arms the timers that stay armed, and then those that fire.
func (t *timers) armAndFire(ctx context.Context, s *environment, n *instance.Instance) error {
	began := time.Now()
	if t.o.Armed > 0 {
		p := s.park(t.o.Step, t.o.Armed/parkedTimers, t.o.Load.Payload)
		err := p.submit(ctx, n, t.o.progress)
		p.close()
		if err != nil {
			return err
		}
	}
	t.result.ArmedSeconds = time.Since(began).Seconds()
	due := events.Millis(n.Clock.Now().Add(t.o.Within))
	spread, err := t.measureLateness(ctx, s, n, t.o.firing(t.o.Spread), func(i int) time.Time {
		return events.Millis(due.Add(time.Duration(float64(t.o.Step.kind().firing*i) * float64(time.Second) / t.o.Rate)))
	})
	if err != nil {
		return fmt.Errorf("timers one after the other: %w", err)
	}
	due = events.Millis(n.Clock.Now().Add(t.o.Within))
	burst, err := t.measureLateness(ctx, s, n, t.o.firing(t.o.Burst), func(int) time.Time { return due })
	if err != nil {
		return fmt.Errorf("timers at once: %w", err)
	}
	t.result.Spread, t.result.Burst = quantiles(spread), quantiles(burst)
	return nil
}

// measureLateness submits tasks with deadlines, and measures how late their timers fire.
func (t *timers) measureLateness(ctx context.Context, s *environment, n *instance.Instance, count int, due func(i int) time.Time) (*Histogram, error) {
	h := &Histogram{}
	if count == 0 {
		return h, nil
	}
	p, kind := s.park(t.o.Step, count, t.o.Load.Payload), t.o.Step.kind()
	fired := make(chan struct{})
	left := kind.firing * count
	p.due = due
	p.onEvent = func(i int, _ string, e *events.Event) error {
		if e.Cause.Inbox != kind.inbox {
			return nil
		}
		if a := e.Fact.About(); kind.fires(&a) {
			h.Record(e.At.Sub(due(i)))
			if left--; left == 0 {
				close(fired)
			}
		}
		return nil
	}
	defer p.close()
	if err := p.submit(ctx, n, t.o.progress); err != nil {
		return nil, fmt.Errorf("%w (a task that starts after its deadline is never processed: set --within to a longer time)", err)
	}
	if late := n.Clock.Now().Sub(due(0)); late > 0 {
		return nil, fmt.Errorf("the first was due %s before all were armed: set --within to more than %s", late.Round(time.Millisecond), t.o.Within)
	}
	if t.o.Step == ParkedSignal {
		p.sendSignals(ctx, n)
	}
	return h, p.awaitFired(ctx, fired, due(count-1))
}

// awaitFired waits until all timers fired, for at most stallTimeout after the last one was due.
func (p *parkedTasks) awaitFired(ctx context.Context, fired <-chan struct{}, due time.Time) error {
	late := time.NewTimer(time.Until(due) + stallTimeout)
	defer late.Stop()
	for {
		select {
		case <-fired:
			return nil
		case <-p.watch.changed:
			if err := p.watch.failure(); err != nil {
				return err
			}
		case <-late.C:
			return fmt.Errorf("%s after the last was due, some have not fired", stallTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
