package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/workflow"
)

// OverloadOptions configure the capacity of an agent, and the load that it is offered.
type OverloadOptions struct {
	Options
	Capacity float64       // calls per second that the agent can process
	Takes    time.Duration // duration of a call; Capacity*Takes calls run concurrently
	Times    float64       // load during For, as a multiple of the capacity; then afterShare of the capacity for as long
	For      time.Duration
	// Away is how long no agent runs while awayShare of its capacity is offered. 0: not measured.
	Away time.Duration
}

// OverloadResult is the cost of an overloaded agent.
type OverloadResult struct {
	Broker        string          `json:"broker"`
	Machine       Machine         `json:"machine"`
	Capacity      float64         `json:"capacity_per_second"`
	Configured    int             `json:"configured_capacity"` // limit of outstanding requests in configured parts
	AttemptWithin float64         `json:"attempt_within_seconds"`
	Parts         []*OverloadPart `json:"parts"`
	Verified      bool            `json:"verified"`
	VerifySeconds float64         `json:"verify_seconds"`
}

// OverloadPart is one of the loads, on a log of its own.
type OverloadPart struct {
	What       string `json:"what"`       // overload or away
	Configured bool   `json:"configured"` // the agent's capacity was configured; otherwise it was measured
	Tasks      int    `json:"tasks"`
	Attempts   int    `json:"attempts"`
	TimedOut   int    `json:"timed_out"`     // of the attempts
	MostOfTask int    `json:"most_attempts"` // maximum of one task
	Undone     int    `json:"undone"`        // tasks
	// Outstanding is the maximum number of concurrently outstanding requests, by the events. Lag is the maximum sampled
	// lag of the agent's group.
	Outstanding int   `json:"most_outstanding"`
	Lag         int64 `json:"most_lag"`
	// Drained is the time from the last submission to the end of the last task. Least is the time that the agent needs
	// for the backlog at the last submission.
	Drained float64 `json:"drained_seconds"`
	Least   float64 `json:"least_seconds"`
}

const (
	overloadAgent = "bench-slow"
	// configuredShare is the share of AttemptWithin that a full backlog takes with a configured capacity.
	configuredShare = 0.3
	// afterShare of the capacity is offered after an overload, and awayShare while no agent runs.
	afterShare = 0.5
	awayShare  = 0.25
	// lagEvery is the interval at which the lag is sampled.
	lagEvery = 500 * time.Millisecond
)

func (o *OverloadOptions) check() error {
	switch {
	case !(o.Capacity > 0 && o.Capacity <= maxRate) || o.Takes <= 0 || o.atOnce() > agent.ConcurrencyMax:
		return fmt.Errorf("capacity %v, takes %v: above 0, and at most %d calls at once", o.Capacity, o.Takes, agent.ConcurrencyMax)
	case !(o.Times > 0) || o.For <= 0 || o.Away < 0:
		return fmt.Errorf("times %v, for %v, away %v: the first two above 0", o.Times, o.For, o.Away)
	case o.total(true) > maxTasks || o.Times*o.Capacity > maxRate:
		return fmt.Errorf("times %v of a capacity of %v for %v: at most %d tasks, and %v a second", o.Times, o.Capacity, o.For, maxTasks, maxRate)
	}
	return o.Load.Check()
}

// atOnce returns the number of calls that the agent processes concurrently.
func (o *OverloadOptions) atOnce() int { return max(1, int(math.Round(o.Capacity*o.Takes.Seconds()))) }

// configured returns the limit of outstanding requests for a configured agent.
func (o *OverloadOptions) configured() int {
	return max(1, int(o.Capacity*o.Load.AttemptWithin.Seconds()*configuredShare))
}

// total returns the number of tasks of a part. there is false in parts without an agent at first.
func (o *OverloadOptions) total(there bool) int {
	if there {
		return max(1, int((o.Times+afterShare)*o.Capacity*o.For.Seconds()))
	}
	return max(1, int(awayShare*o.Capacity*o.Away.Seconds()))
}

// pace returns when each task of a part is due, after the first one.
func (o *OverloadOptions) pace(there bool) func(i int) time.Duration {
	if !there {
		return (&Load{Rate: awayShare * o.Capacity}).dueAtRate()
	}
	much, little := &Load{Rate: o.Times * o.Capacity}, &Load{Rate: afterShare * o.Capacity}
	first := int(much.Rate * o.For.Seconds())
	return func(i int) time.Duration {
		if i < first {
			return much.dueAtRate()(i)
		}
		return o.For + little.dueAtRate()(i-first)
	}
}

// least returns the time that the agent needs for the backlog at the last submission.
func (o *OverloadOptions) least(there bool) time.Duration {
	if there {
		return max(o.Takes, time.Duration((o.Times-1-(1-afterShare))*float64(o.For)))
	}
	return time.Duration(float64(o.total(false)) / o.Capacity * float64(time.Second))
}

// overloadParts returns all parts to measure. away adds those without an agent at first.
func overloadParts(away bool) []*OverloadPart {
	parts := []*OverloadPart{{What: "overload", Configured: true}, {What: "overload"}}
	if away {
		parts = append(parts, &OverloadPart{What: "away", Configured: true}, &OverloadPart{What: "away"})
	}
	return parts
}

// folder returns the directory of a part.
func (p *OverloadPart) folder() string {
	if p.Configured {
		return p.What + "-configured"
	}
	return p.What + "-observed"
}

// RunOverload offers an agent more than its capacity, and then less. With Away it also offers load while no agent runs.
// Each part has a log of its own, which is verified.
func RunOverload(ctx context.Context, o OverloadOptions) (*OverloadResult, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, remove, err := runDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	result := &OverloadResult{Machine: machine(), Capacity: o.Capacity, Configured: o.configured(), AttemptWithin: o.Load.AttemptWithin.Seconds(),
		Parts: overloadParts(o.Away > 0)}
	for _, p := range result.Parts {
		if err := (&overload{o: &o, part: p, result: result, there: p.What == "overload"}).run(ctx, dir); err != nil {
			return nil, fmt.Errorf("%s: %w", p.folder(), err)
		}
	}
	result.Verified = true
	return result, nil
}

// overload is the run of one part.
type overload struct {
	o      *OverloadOptions
	part   *OverloadPart
	result *OverloadResult
	there  bool // the agent runs from the start

	attempts map[int]int // by task
	changes  []outstanding
}

// outstanding is a change in the number of outstanding requests.
type outstanding struct {
	at time.Time
	by int
}

func (x *overload) run(ctx context.Context, dir string) (err error) {
	s, err := openEnvironment(environmentOptions{dir: filepath.Join(dir, x.part.folder()), cluster: x.o.Cluster, log: x.o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	x.result.Broker = s.brokerKind()
	d, err := workflow.New(workflowName, 1).CompleteWithin(taskWithin).AttemptWithin(x.o.Load.AttemptWithin).
		Retry(workflow.Retry{MaxAttempts: maxAttempts, Backoff: workflow.Duration(backoff), Factor: 2}).
		Step(workflow.Step{ID: stepID(0), Agent: overloadAgent, Operation: "work", Input: map[string]any{"details": "${ input.details }"}}).Build()
	if err != nil {
		return err
	}
	if err := s.prepare(ctx, x.o.Load.Partitions, d); err != nil {
		return err
	}
	part := roles{workers: x.o.Load.Workers, supervisor: true, concurrency: x.o.atOnce()}
	if x.there {
		part.agents = map[string]agent.Handler{overloadAgent: agent.HandlerFunc(x.work)}
	}
	if x.part.Configured {
		part.capacity = map[string]int{overloadAgent: x.o.configured()}
	}
	err = s.runRoles(ctx, part, func(ctx context.Context, n *instance.Instance) error {
		if err := part.awaitJoined(ctx, n); err != nil {
			return err
		}
		return x.offer(ctx, s, n)
	})
	if err != nil {
		return err
	}
	took, err := s.verify(ctx, &x.o.Options, map[events.TaskState]int{events.StateProcessed: x.part.Tasks - x.part.Undone, events.StateUndone: x.part.Undone})
	x.result.VerifySeconds += took
	return err
}

// offer submits the tasks, and waits until all have ended.
func (x *overload) offer(ctx context.Context, s *environment, n *instance.Instance) error {
	x.part.Tasks = x.o.total(x.there)
	orders, tally := newOrders(x.o.Load.Payload), newTally(&Load{Tasks: x.part.Tasks})
	watch, err := observe(ctx, s, n.Admin, orders, tally, nil)
	if err != nil {
		return err
	}
	x.attempts = map[int]int{}
	watch.onEvent = x.take
	stop := watch.start(ctx)
	g := &generator{tally: tally, dueAfter: x.o.pace(x.there), flush: n.Producer.Flush}
	g.write = func(ctx context.Context, number int) {
		n.Producer.SendAsync(ctx, orders.submission(n.Kafka.Namespace, workflowName, number), func(_ events.Record, err error) { g.recordWritten(number, err) })
	}
	p := &phase{generator: g, watch: watch, progress: x.o.progress, stallTimeout: stallTimeout + x.o.Load.AttemptWithin}
	err = x.beside(ctx, n, func(ctx context.Context) error { return p.run(ctx, x.part.folder(), 0, x.part.Tasks) })
	stop()
	if err != nil {
		return err
	}
	x.part.Undone = int(watch.undone.Load())
	x.part.Drained = time.Duration(watch.lastEnd.Load() - tally.intended[x.part.Tasks-1].Load()).Seconds()
	x.part.Least = x.o.least(x.there).Seconds()
	x.reckon()
	return nil
}

// beside runs fn, and meanwhile samples the agent's lag. If the agent doesn't run from the start, it is started after
// Away.
func (x *overload) beside(ctx context.Context, n *instance.Instance, fn func(context.Context) error) error {
	looking, end := context.WithCancel(ctx)
	defer end()
	group, ctx := errgroup.WithContext(looking)
	group.Go(func() error {
		defer end()
		return fn(ctx)
	})
	group.Go(func() error {
		if !x.there {
			select {
			case <-time.After(x.o.Away):
			case <-ctx.Done():
				return nil
			}
			n.StartAgent(looking, overloadAgent, x.o.atOnce(), neverOpen, agent.HandlerFunc(x.work))
		}
		return x.lag(ctx, n)
	})
	return group.Wait()
}

// work handles a call of the agent.
func (x *overload) work(ctx context.Context, _ agent.Request) (any, error) {
	select {
	case <-time.After(x.o.Takes):
		return outcome, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lag samples the lag of the agent's group until ctx ends.
func (x *overload) lag(ctx context.Context, n *instance.Instance) error {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	topic, group := n.Kafka.Namespace.Requests(overloadAgent), n.Kafka.Namespace.AgentGroup(overloadAgent)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		lags, err := n.Admin.GroupLag(ctx, group)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("look at the lag: %w", err)
		}
		sum := int64(0)
		for _, lag := range lags[topic] {
			sum += lag
		}
		x.part.Lag = max(x.part.Lag, sum)
	}
}

// take counts an event of a task.
func (x *overload) take(n int, _ string, r *kgo.Record) error {
	e, err := decode(r)
	if err != nil {
		return err
	}
	a := e.Fact.About()
	if a.Phase == events.PhaseExpired {
		x.part.TimedOut++
	}
	switch {
	case a.Phase == events.PhaseStarted:
		x.part.Attempts++
		x.attempts[n]++
		x.part.MostOfTask = max(x.part.MostOfTask, x.attempts[n])
		x.changes = append(x.changes, outstanding{e.At, 1})
	case a.Phase.Ends():
		x.changes = append(x.changes, outstanding{e.At, -1})
	}
	return nil
}

// reckon computes the maximum number of outstanding requests. It sorts the changes by time first, since partitions are
// read concurrently.
func (x *overload) reckon() {
	slices.SortStableFunc(x.changes, func(a, b outstanding) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	n := 0
	for _, c := range x.changes {
		n += c.by
		x.part.Outstanding = max(x.part.Outstanding, n)
	}
}
