package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// slotsOf implements Slots with a number of free slots and a set of queued runs.
type slotsOf struct {
	free  int
	waits map[runName]bool
}

func (s slotsOf) Free(string, string, time.Time) int { return s.free }

func (s slotsOf) Waits(t *events.Task, step int, k events.Kind) bool {
	return s.waits[nameOf(t, step, k)]
}

// waiting returns the runs that are queued for their agent.
func (w *scenario) waiting() map[runName]bool {
	waits := map[runName]bool{}
	if w.task == nil {
		return waits
	}
	for i := range w.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			if p, is := agentRunOf(w.task, i, k, w.clock()); is && p.state == runQueued {
				waits[p.runName] = true
			}
		}
	}
	return waits
}

// turn gives a queued run a slot. The run starts or ends, unless the task has no time left. turn reports whether
// anything was decided.
func (w *scenario) turn() bool {
	if w.task == nil || !w.task.Open() || !w.h.busy {
		return false
	}
	names := slices.SortedFunc(maps.Keys(w.waiting()), func(a, b runName) int { return a.run - b.run })
	if len(names) == 0 {
		return false
	}
	x := pick(w.dice, names)
	step, kind := x.run/3, []events.Kind{events.Do, events.Undo, events.Check}[x.run%3]
	w.say("it is the turn of %s of step %q", kind, w.task.Plan.Steps[step].ID)
	w.counts["turns"]++
	env := w.env()
	d := w.decideBy(env, func(t *events.Task) Decision { return Start(t, step, kind, w.cause, env) })
	if over := kind != events.Undo && w.task.State == events.StateProcessing && !w.clock().Before(w.task.CompleteBy); len(d.Events) == 0 && !over {
		w.failf("it was the turn of %s of step %q, and nothing came of it: %s", kind, w.task.Plan.Steps[step].ID, w.task.Encode())
	}
	for _, e := range d.Events {
		if !e.Queued {
			w.failf("event %s of what had to wait doesn't say so", e.ID(0))
		}
	}
	w.checkRecords(&d)
	w.take(&d)
	return len(d.Events) > 0
}
