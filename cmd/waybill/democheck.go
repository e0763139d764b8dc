package main

import (
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// demoChecker receives the demo's committed events from the index, in order, and checks them.
type demoChecker struct {
	mu      sync.Mutex
	log     *verify.Log
	steps   int // completed
	retries int // attempts past the first
	states  map[events.TaskState]int
	of      map[string]events.TaskState
	kinds   map[string]int // events by verb, for the summary
	held    []string       // ids, in the order in which they were held
	lastEnd time.Time
	changed chan struct{}
}

func newDemoChecker() *demoChecker {
	return &demoChecker{log: verify.NewLog(), states: map[events.TaskState]int{}, of: map[string]events.TaskState{}, kinds: map[string]int{}, changed: make(chan struct{}, 1)}
}

// checkRecords checks records of the log.
func (w *demoChecker) checkRecords(records []events.Record) {
	if len(records) == 0 {
		return
	}
	w.mu.Lock()
	for i := range records {
		w.checkRecord(&records[i])
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *demoChecker) checkRecord(r *events.Record) {
	e := w.log.Add(r)
	if e == nil || e.Task == "" {
		return
	}
	switch a := e.Fact.About(); {
	case a.Phase == events.PhaseStarted && a.Attempt > 1:
		w.retries++
	case a.Verb == events.VerbCompleted && a.Kind == events.Do:
		w.steps++
	case a.Phase == events.PhaseExpired:
		w.kinds["timed out"]++
	case a.Verb == events.VerbHeld:
		w.held = append(w.held, e.Task)
	}
	if f, ok := e.Fact.(*events.AttemptWaiting); ok && f.CoolDown {
		w.kinds["cooled down"]++
	}
	if t := w.log.Task(e.Task); t != nil && t.State != w.of[e.Task] {
		if old, ok := w.of[e.Task]; ok {
			w.states[old]--
		}
		w.of[e.Task] = t.State
		w.states[t.State]++
		if t.State.Terminal() || t.State == events.StateError {
			w.lastEnd = time.Now()
		}
	}
}

// state returns the last state of a task.
func (w *demoChecker) state(id string) events.TaskState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[id]
}

// progress counts the tasks that were received, have ended, and are held.
func (w *demoChecker) progress() (seen, ended, held int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, n := range w.states {
		seen += n
		if s.Terminal() {
			ended += n
		}
	}
	return seen, ended, w.states[events.StateError]
}
