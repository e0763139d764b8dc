package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/workflow"
)

// Parked tasks stay open: their agent doesn't exist, and has a day to answer. Or their step waits for a time. Each has
// two armed timers, its own and its step's.
const (
	parkedWorkflow = "parked"
	parkedAgent    = "bench-parked"
	parkedSignal   = "go"
	parkedTimers   = 2
	// parkedInflight is the maximum number of parked tasks that are being submitted.
	parkedInflight = 5_000
)

// ParkedStep is the kind of step in which parked tasks are.
type ParkedStep string

// The kinds of step in which tasks can be parked.
const (
	ParkedCall ParkedStep = "call" // of an agent that doesn't answer
	ParkedWait ParkedStep = "wait" // until an instant in the task's input

	ParkedSignal ParkedStep = "signal" // for a signal
)

// parkedKind is what differs between the kinds.
type parkedKind struct {
	step    workflow.Step
	started string // the type of the event that begins the step
	// firing is the number of timers that fire when a task's time has come, and the state in which the task then ends:
	// by its own timer and its attempt's, or by the end of the wait.
	firing int
	ends   events.TaskState
	inbox  events.Inbox             // of what leads to that
	fires  func(*events.About) bool // reports whether an event ends such a timer
}

var parkedKinds = map[ParkedStep]parkedKind{
	ParkedCall: {step: workflow.Step{Agent: parkedAgent, Operation: "work",
		Input: map[string]any{"task": "${ task.id }", "total": "${ input.total }", "details": "${ input.details }"}},
		started: typeStarted, firing: parkedTimers, ends: events.StateUndone, inbox: events.Recoveries,
		fires: func(a *events.About) bool { return a.Verb == events.VerbUndoing || a.Phase == events.PhaseExpired }},
	ParkedWait: {step: workflow.Step{WaitUntil: "${ timestamp(input.at) }"},
		started: (*events.WaitStarted)(nil).Type(), firing: 1, ends: events.StateProcessed, inbox: events.Recoveries,
		fires: func(a *events.About) bool { return a.Phase == events.PhaseFired }},
	ParkedSignal: {step: workflow.Step{Signal: parkedSignal, CompleteWithin: workflow.Within(taskWithin)},
		started: (*events.SignalStarted)(nil).Type(), firing: 1, ends: events.StateProcessed, inbox: events.Signals,
		fires: func(a *events.About) bool { return a.StepKind == events.SignalStep && a.Verb == events.VerbCompleted }},
}

// kind returns the kind; the default is a call.
func (s ParkedStep) kind() parkedKind { return parkedKinds[cmp.Or(s, ParkedCall)] }

func (s ParkedStep) check() error {
	if _, ok := parkedKinds[cmp.Or(s, ParkedCall)]; !ok {
		return fmt.Errorf("step %q: must be call, wait or signal", s)
	}
	return nil
}

// definition is the workflow of parked tasks. A task whose deadline passes is undone and, with nothing to undo, ends.
func (s ParkedStep) definition() (*workflow.Definition, error) {
	step := s.kind().step
	step.ID = stepID(0)
	return workflow.New(parkedWorkflow, 1).CompleteWithin(taskWithin).AttemptWithin(taskWithin).Step(step).Build()
}

// waitsFor is how long tasks wait that stay open: less than the task may take.
const waitsFor = taskWithin / 2

// parkedTasks are tasks to be parked.
type parkedTasks struct {
	env    *environment
	orders *orders
	tally  *tally
	load   Load
	step   ParkedStep
	// due is when a task's time comes: its complete-by, or the end of its wait. nil: not within this run.
	due func(n int) time.Time
	// onEvent, if set, receives all events of these tasks.
	onEvent func(n int, what string, e *events.Event) error
	watch   *observer
	stop    func()
}

// park prepares that many tasks; submit submits them.
func (s *environment) park(step ParkedStep, count, payload int) *parkedTasks {
	p := &parkedTasks{env: s, step: step, orders: newOrders(payload), load: Load{Tasks: count, Inflight: parkedInflight}}
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
	p.watch.endType = p.step.kind().started
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
	switch {
	case p.step == ParkedWait:
		at := time.Now().Add(waitsFor)
		if p.due != nil {
			at = p.due(number)
		}
		s.Input = append(fmt.Appendf(nil, `{"at":%q,`, at.UTC().Format(events.TimeLayout)), s.Input[1:]...)
	case p.step == ParkedSignal: // the signal is sent when its time has come
	case p.due != nil:
		s.CompleteBy = p.due(number)
	}
	return s.Record(p.env.cfg.Namespace, "waybill/bench")
}

// sendSignals sends each task its signal when its time comes. It returns when all are sent or ctx ends.
func (p *parkedTasks) sendSignals(ctx context.Context, n *instance.Instance) {
	for i := range p.load.Tasks {
		select {
		case <-time.After(p.due(i).Sub(n.Clock.Now())):
		case <-ctx.Done():
			return
		}
		s := events.Signal{Task: p.orders.id(i), Name: parkedSignal, ID: "1"}
		n.Producer.SendAsync(ctx, s.Record(p.env.cfg.Namespace, "waybill/bench"), func(_ events.Record, err error) {
			if err != nil {
				p.watch.fail(fmt.Errorf("send a signal: %w", err))
			}
		})
	}
}

// decode passes a decoded event to onEvent.
func (p *parkedTasks) decode(n int, what string, r *kgo.Record) error {
	if what == p.step.kind().started {
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
