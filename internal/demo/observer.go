package demo

import (
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// Observer receives the demo's committed events from the index, in order, checks them, and counts. It is safe for
// concurrent use.
type Observer struct {
	mu      sync.Mutex
	log     *verify.Log
	steps   int // completed
	retries int // attempts past the first
	states  map[events.TaskState]int
	of      map[string]events.TaskState

	timeouts, coolDowns int
	lastEnd             time.Time
	changed             chan struct{}
}

// NewObserver returns an Observer that has seen nothing.
func NewObserver() *Observer {
	return &Observer{log: verify.NewLog(), states: map[events.TaskState]int{}, of: map[string]events.TaskState{}, changed: make(chan struct{}, 1)}
}

// Observe feeds records of the log.
func (o *Observer) Observe(records []events.Record) {
	if len(records) == 0 {
		return
	}
	o.mu.Lock()
	for i := range records {
		o.observe(&records[i])
	}
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *Observer) observe(r *events.Record) {
	e := o.log.Add(r)
	if e == nil || e.Task == "" {
		return
	}
	switch a := e.Fact.About(); {
	case a.Phase == events.PhaseStarted && a.Attempt > 1:
		o.retries++
	case a.Verb == events.VerbCompleted && a.Kind == events.Do:
		o.steps++
	case a.Phase == events.PhaseExpired:
		o.timeouts++
	}
	if f, ok := e.Fact.(*events.AttemptWaiting); ok && f.CoolDown {
		o.coolDowns++
	}
	if t := o.log.Task(e.Task); t != nil && t.State != o.of[e.Task] {
		if old, ok := o.of[e.Task]; ok {
			o.states[old]--
		}
		o.of[e.Task] = t.State
		o.states[t.State]++
		if t.State.Terminal() || t.State == events.StateError {
			o.lastEnd = time.Now()
		}
	}
}

// state returns the last state of a task.
func (o *Observer) state(id string) events.TaskState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[id]
}

// Progress counts the orders that were received, have ended, and are held, and the events.
type Progress struct{ Received, Ended, Held, Events int }

func (o *Observer) progress() (p Progress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s, n := range o.states {
		p.Received += n
		if s.Terminal() {
			p.Ended += n
		}
	}
	p.Held, p.Events = o.states[events.StateError], o.log.Events
	return p
}
