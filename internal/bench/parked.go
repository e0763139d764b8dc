package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/workflow"
)

// Parked tasks stay open: their agent doesn't exist, and has a day to answer. Each has two armed timers, its own
// and its attempt's.
const (
	parkedWorkflow = "parked"
	parkedAgent    = "bench-parked"
	parkedTimers   = 2
	// parkedInflight is the maximum number of parked tasks that are being submitted.
	parkedInflight = 5_000
)

// parkedDefinition is their workflow. A task whose deadline passes is undone and, with nothing to undo, ends.
func parkedDefinition() (*workflow.Definition, error) {
	return workflow.New(parkedWorkflow, 1).CompleteWithin(taskWithin).AttemptWithin(taskWithin).
		Step(workflow.Step{ID: stepID(0), Agent: parkedAgent, Operation: "work",
			Input: map[string]any{"task": "${ task.id }", "total": "${ input.total }", "details": "${ input.details }"}}).Build()
}

// parkedTasks are tasks to be parked.
type parkedTasks struct {
	env    *environment
	orders *orders
	tally  *tally
	load   Load
	// completeBy is the complete-by of a submission; nil: none.
	completeBy func(n int) time.Time
	// onEvent, if set, receives all events of these tasks.
	onEvent func(n int, what string, e *events.Event) error
	watch   *observer
	stop    func()
}

// park prepares that many tasks; submit submits them.
func (s *environment) park(count, payload int) *parkedTasks {
	p := &parkedTasks{env: s, orders: newOrders(payload), load: Load{Tasks: count, Inflight: parkedInflight}}
	p.tally = newTally(&p.load)
	return p
}

// submit submits the tasks and returns when all wait for their agent. onEvent receives their events until close.
func (p *parkedTasks) submit(ctx context.Context, n *instance.Instance, progress func(what string, done, total int64)) error {
	slots := make(chan struct{}, p.load.Inflight)
	if err := p.observe(ctx, n, slots); err != nil {
		return err
	}
	g := &generator{tally: p.tally, slots: slots, flush: n.Producer.Flush}
	g.write = func(ctx context.Context, number int) {
		n.Producer.SendAsync(ctx, p.submission(number), func(_ events.Record, err error) { g.recordWritten(number, err) })
	}
	if err := p.run(ctx, g, progress); err != nil {
		return fmt.Errorf("park %d tasks: %w", p.load.Tasks, err)
	}
	return nil
}

// observe starts to observe the tasks' events, until close.
func (p *parkedTasks) observe(ctx context.Context, n *instance.Instance, slots chan struct{}) error {
	var err error
	if p.watch, err = observe(ctx, p.env, n.Admin, p.orders, p.tally, slots); err != nil {
		return err
	}
	p.watch.endType = typeStarted
	if p.onEvent != nil {
		p.watch.onEvent = p.decode
	}
	p.stop = p.watch.start(ctx)
	return nil
}

// await returns when all submitted tasks wait for their agent.
func (p *parkedTasks) await(ctx context.Context, progress func(what string, done, total int64)) error {
	nothing := func(context.Context) error { return nil }
	g := &generator{tally: p.tally, flush: nothing, write: func(context.Context, int) {}}
	return p.run(ctx, g, progress)
}

func (p *parkedTasks) run(ctx context.Context, g *generator, progress func(what string, done, total int64)) error {
	ph := &phase{generator: g, watch: p.watch, progress: progress, stallTimeout: stallTimeout}
	return ph.run(ctx, "open tasks", 0, p.load.Tasks)
}

func (p *parkedTasks) submission(number int) events.Record {
	s := events.Submission{ID: p.orders.id(number), Workflow: parkedWorkflow, Input: p.orders.inputs[number%len(p.orders.inputs)]}
	if p.completeBy != nil {
		s.CompleteBy = p.completeBy(number)
	}
	return s.Record(p.env.cfg.Namespace, "waybill/bench")
}

// decode passes a decoded event to onEvent.
func (p *parkedTasks) decode(n int, what string, r *kgo.Record) error {
	if what == typeStarted {
		return nil // not needed
	}
	e, err := decode(r)
	if err != nil {
		return err
	}
	return p.onEvent(n, what, e)
}

// decode reads the event in a record.
func decode(r *kgo.Record) (*events.Event, error) {
	rec := events.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, events.Header(h))
	}
	return events.ReadEvent(&rec)
}

// close stops observing.
func (p *parkedTasks) close() {
	if p.stop != nil {
		p.stop()
	}
}
