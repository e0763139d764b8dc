package verify

import (
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// Fault is one broken promise.
type Fault struct {
	Promise   string // P2, P11 ...
	Task      string // empty: of the partition
	Partition int32
	Offset    int64
	What      string
}

func (f Fault) String() string {
	return fmt.Sprintf("%s: task %q, partition %d, offset %d: %s", f.Promise, f.Task, f.Partition, f.Offset, f.What)
}

// maxFaults bounds what is kept: a broken log breaks everywhere.
const maxFaults = 100

// Log checks the events of any number of partitions, each in the order of its
// offsets: P2 (each transition once, by the table, seq without a gap, the chain
// unbroken), P4 (one accepted recovery for each timer: an expired, retried or
// exhausted run has one event), P5 (no attempt past the budget or before its
// backoff), P6 (the order of undo), P11 (epochs never fall). It keeps every
// task that it has seen.
type Log struct {
	Events int
	Faults []Fault
	parts  map[int32]*events.PartitionState
	tasks  map[string]*task
}

// task is what the checkers keep of one.
type task struct {
	state  *events.Task
	broken bool
	undo   undoOrder
	began  map[events.Slot]waiting
	cause  events.Cause // of the event before
}

// waiting is a run that waits: no attempt may begin before until.
type waiting struct{ until int64 }

// NewLog makes a checker that has seen nothing.
func NewLog() *Log {
	return &Log{parts: map[int32]*events.PartitionState{}, tasks: map[string]*task{}}
}

// Add checks the next event of a partition, and returns it; nil if it can't be
// read, which is a fault.
func (l *Log) Add(r *events.Record) *events.Event {
	l.Events++
	e, err := events.DecodeEvent(r)
	if err != nil {
		l.fault("P15", string(r.Key), r, err.Error())
		return nil
	}
	part := l.parts[r.Partition]
	if part == nil {
		part = &events.PartitionState{}
		l.parts[r.Partition] = part
	}
	if err := part.Evolve(e); err != nil {
		l.fault("P11", e.Task, r, err.Error())
	}
	if e.Task != "" {
		l.addToTask(e, r)
	}
	return e
}

func (l *Log) fault(promise, id string, r *events.Record, what string) {
	if len(l.Faults) < maxFaults {
		l.Faults = append(l.Faults, Fault{promise, id, r.Partition, r.Offset, what})
	}
}

func (l *Log) addToTask(e *events.Event, r *events.Record) {
	t := l.tasks[e.Task]
	if t == nil {
		t = &task{began: map[events.Slot]waiting{}}
		l.tasks[e.Task] = t
	}
	if t.broken {
		return // one fault a task: the rest follows from it
	}
	if what, promise := t.check(e); what != "" {
		t.broken = true
		l.fault(promise, e.Task, r, what)
		return
	}
	ceType, _ := r.Header(events.HeaderType)
	next, err := events.Evolve(t.state, e, events.Hash(ceType, r.Value))
	if err != nil {
		t.broken = true
		l.fault("P2", e.Task, r, err.Error())
		return
	}
	t.state = next
}

// check holds an event against the state before it.
func (t *task) check(e *events.Event) (what, promise string) {
	if e.Cause.Inbox == events.Recoveries && t.state != nil && e.Cause != t.cause {
		if what := t.recovered(e.Fact); what != "" {
			return what, "P4"
		}
	}
	t.cause = e.Cause
	switch f := e.Fact.(type) {
	case *events.AttemptStarted:
		if t.state == nil {
			return "", ""
		}
		slot := events.Slot{Step: f.Step, Kind: f.Kind}
		if w, ok := t.began[slot]; ok && e.At.UnixMilli() < w.until {
			return fmt.Sprintf("%s attempt %d of step %q began %d ms before its wait was over", f.Kind, f.Attempt, f.Step, w.until-e.At.UnixMilli()), "P5"
		}
		delete(t.began, slot)
		if what := t.budget(f); what != "" {
			return what, "P5"
		}
		if f.Kind == events.Undo {
			return t.undo.started(t.state, f), "P6"
		}
	case *events.AttemptWaiting:
		t.began[events.Slot{Step: f.Step, Kind: f.Kind}] = waiting{e.Due.UnixMilli()}
	case *events.TaskResumed:
		clear(t.began)
	}
	return "", ""
}

// recovered: the first event that an accepted recovery led to ends a timer that
// was armed; a second recovery for it would find none.
func (t *task) recovered(f events.Fact) string {
	slot := events.Slot{}
	switch f := f.(type) {
	case *events.AttemptExpired:
		slot = events.Slot{Step: f.Step, Kind: f.Kind}
	case *events.AttemptWaiting:
		slot = events.Slot{Step: f.Step, Kind: f.Kind}
	case *events.AttemptStarted:
		slot = events.Slot{Step: f.Step, Kind: f.Kind}
	case *events.RunErrored:
		slot = events.Slot{Step: f.Step, Kind: f.Kind}
	case *events.AttemptFailed: // a retry whose agent was gone
		slot = events.Slot{Step: f.Step, Kind: f.Kind}
	}
	timer := t.state.Timer
	if slot.Step != "" {
		i, ok := t.state.Plan.Step(slot.Step)
		if !ok {
			return "" // Evolve says so
		}
		run := t.state.Run(i, slot.Kind)
		if run == nil {
			return fmt.Sprintf("a recovery led to %s of step %q, of which nothing has run", f.Type(), slot.Step)
		}
		timer = run.Timer
	}
	if !timer.Armed() {
		return fmt.Sprintf("a recovery led to %s, but its timer was not armed", f.Type())
	}
	return ""
}

// budget: no more attempts than allowed, one more after a cool-down.
func (t *task) budget(f *events.AttemptStarted) string {
	i, ok := t.state.Plan.Step(f.Step)
	if !ok {
		return "" // Evolve says so
	}
	run := t.state.Run(i, f.Kind)
	if run == nil {
		return ""
	}
	most := t.state.Plan.AttemptsOf(i, f.Kind).MaxAttempts
	if run.CooledDown {
		most++
	}
	if run.FailureCount >= most {
		return fmt.Sprintf("%s attempt %d of step %q after %d failures; at most %d attempts", f.Kind, f.Attempt, f.Step, run.FailureCount, most)
	}
	return ""
}

// Tasks calls fn with the state of every task that was seen, until it returns
// false.
func (l *Log) Tasks(fn func(*events.Task) bool) {
	for _, t := range l.tasks {
		if t.state != nil && !fn(t.state) {
			return
		}
	}
}

// Task is the state of one task; nil if it wasn't seen.
func (l *Log) Task(id string) *events.Task {
	if t := l.tasks[id]; t != nil {
		return t.state
	}
	return nil
}
