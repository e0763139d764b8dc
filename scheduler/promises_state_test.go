package scheduler

import (
	"bytes"
	"maps"

	"github.com/waybill-run/waybill/events"
)

// checkState compares the state after a decision with the fold of the records, and checks the invariants of every
// state.
func (w *scenario) checkState(wrote bool) {
	got := encode(w.task)
	if !wrote {
		if got != w.encoded {
			w.failf("without an event the state has become another:\n%s\n%s", w.encoded, got)
		}
		return
	}
	w.encoded = got
	if want := encode(w.fold); got != want {
		w.failf("the state and the fold of its events differ:\n%s\n%s", got, want)
	}
	w.checkStored()
	w.rebuild()
	armed := map[events.Slot]events.Timer{}
	for _, a := range w.timers.Armed {
		armed[a.Slot] = a.Timer
	}
	own := w.ownTimers()
	if !maps.Equal(armed, own) {
		w.failf("a supervisor knows the timers %v, the task has %v", armed, own)
	}
	if of := w.task.Timers(); !bytes.Equal(of.Encode(), w.timers.Encode()) {
		w.failf("a supervisor that has read the events knows the timers\n%s\none that continues from the state of the task knows\n%s", w.timers.Encode(), of.Encode())
	}
	switch state := w.task.State; {
	case state == events.StateProcessing && !w.task.Timer.Armed(), state != events.StateProcessing && w.task.Timer.Armed():
		w.failf("the task is %s; its own timer: %+v", state, w.task.Timer)
	case w.task.Open() && state != events.StateError && len(armed) == 0:
		w.failf("the task is %s, and nothing will ever happen: %s", state, got)
	case state.Terminal() && len(armed) > 0:
		w.failf("the task is %s and has timers: %v", state, armed)
	}
}

// checkStored checks that the projections' encodings are decoded unchanged.
func (w *scenario) checkStored() {
	t, err := events.DecodeTask([]byte(w.encoded))
	if err != nil || encode(t) != w.encoded {
		w.failf("the stored form of %s reads back as %s, %v", w.encoded, encode(t), err)
	}
	timers := w.timers.Encode()
	if tm, err := events.DecodeTimers(timers); err != nil || !bytes.Equal(tm.Encode(), timers) {
		w.failf("the timers %s read back as %+v, %v", timers, tm, err)
	}
	part := w.part.Encode()
	if p, err := events.DecodePartitionState(part); err != nil || *p != w.part {
		w.failf("the partition's state %s reads back as %+v, %v", part, p, err)
	}
}

// ownTimers returns the task's armed timers. It checks that every running attempt has one, at its complete-by.
func (w *scenario) ownTimers() map[events.Slot]events.Timer {
	own := map[events.Slot]events.Timer{}
	if w.task.Timer.Armed() {
		own[events.Slot{}] = w.task.Timer
	}
	for i := range w.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			run := w.task.Run(i, k)
			if run == nil {
				continue
			}
			slot := events.Slot{Step: w.task.Plan.Steps[i].ID, Kind: k}
			if run.Timer.Armed() {
				own[slot] = run.Timer
			}
			running := run.State == events.StepRunning && w.task.Open()
			if running && (!run.Timer.Armed() || run.Timer.Due.After(run.CompleteBy) || w.task.Plan.AttemptsOf(i, k).Heartbeat == 0 && !run.Timer.Due.Equal(run.CompleteBy)) {
				w.failf("%v runs until %s; its timer: %+v", slot, run.CompleteBy, run.Timer)
			}
			if w.task.State == events.StateError && !running && run.Timer.Armed() {
				w.failf("the task is held; %v, which is %s, has a timer", slot, run.State)
			}
		}
	}
	return own
}

// rebuild folds all records from the start. The task, a supervisor's timers, the index's row and the partition's state
// must equal the live ones.
func (w *scenario) rebuild() {
	w.counts["rebuilds from zero"]++
	var t *events.Task
	var timers events.Timers
	var part events.PartitionState
	var summary events.Summary
	var reader events.EventReader
	for i := range w.records {
		r := &w.records[i]
		e, err := events.DecodeEvent(r)
		if err != nil {
			w.failf("event %d: %v", i, err)
		}
		if err := part.Evolve(e); err != nil {
			w.failf("event %d: %v", i, err)
		}
		if e.Task == "" {
			continue
		}
		if t, err = events.Evolve(t, e, events.Hash(e.Fact.Type(), r.Value)); err != nil {
			w.failf("event %d: %v", i, err)
		}
		timers.Evolve(e)
		brief, err := reader.Decode(r)
		if err != nil {
			w.failf("event %d: %v", i, err)
		}
		summary.Evolve(brief)
	}
	if got := encode(t); got != w.encoded {
		w.failf("the rebuild differs from the live state:\n%s\n%s", got, w.encoded)
	}
	for i := range summary.Steps {
		summary.Steps[i].Started, summary.Steps[i].Sent = 0, 0 // a task doesn't know them
	}
	if got, want := summary.Encode(), t.Summary().Encode(); !bytes.Equal(got, want) {
		w.failf("the row of the index isn't the task's:\n%s\n%s", got, want)
	}
	if !bytes.Equal(timers.Encode(), w.timers.Encode()) || part != w.part {
		w.failf("the rebuild differs from the live timers and partition:\n%s %+v\n%s %+v", timers.Encode(), part, w.timers.Encode(), w.part)
	}
}
