package scheduler

import (
	"github.com/waybill-run/waybill/events"
)

// ended records that an attempt ended without success. unknown says that it may have had an effect.
func (w *scenario) ended(step string, k events.Kind, unknown bool) {
	if k == events.Do {
		x := w.effects[step]
		x.running, x.unknown = false, x.unknown || unknown
	}
}

func (w *scenario) index(step string) int {
	i, ok := w.fold.Plan.Step(step)
	if !ok {
		w.failf("an event of step %q, which the plan hasn't", step)
	}
	return i
}

func (w *scenario) run(s events.Slot) *ran {
	if w.runs[s] == nil {
		w.runs[s] = &ran{}
	}
	return w.runs[s]
}

// counted checks the budget against the observed attempts.
func (w *scenario) counted(s events.Slot) {
	r := w.run(s)
	if r.final {
		w.failf("an attempt at %v after an error whose code isn't retried", s)
	}
	r.attempts++
	rule := w.fold.Plan.AttemptsOf(w.index(s.Step), s.Kind)
	most := rule.MaxAttempts
	if rule.CoolDown > 0 {
		most++
	}
	if r.attempts > max(most, r.granted) {
		w.failf("attempt %d of %v; at most %d", r.attempts, s, most)
	}
}

// started checks that an attempt starts only in a task that continues, with time left, and with the right key.
func (w *scenario) started(e *events.Event, f *events.AttemptStarted) {
	want := events.StateProcessing
	w.askedBefore(e, f)
	switch f.Kind {
	case events.Check:
		want = w.checkBegins(f)
	case events.Undo:
		if w.fold.Ending != "" {
			want = events.StateUndoing
		}
		if x := w.effects[f.Step]; !x.completed && !x.unknown {
			w.failf("undo of step %q, which had no effect", f.Step)
		}
		if x := w.effects[f.Step]; w.fold.Keep && x.completed {
			w.failf("undo of step %q, which was to be kept", f.Step)
		}
		w.undoBegins(f.Step)
	default:
		w.afterAncestors(f.Step, "started")
		w.callBegins(e, f.Step)
		x := w.effects[f.Step]
		x.running, x.startedAt = true, e.Seq
	}
	if w.fold.State != want {
		w.failf("%s of step %q begins in state %s", f.Kind, f.Step, w.fold.State)
	}
	if !e.Due.After(e.At) {
		w.failf("%s of step %q begins at %s with complete-by %s", f.Kind, f.Step, e.At, e.Due)
	}
	w.silenceBegins(e, f)
	s := events.Slot{Step: f.Step, Kind: f.Kind}
	w.counted(s)
	r := w.run(s)
	if r.key != "" && (r.key == f.Key) == r.renewable {
		w.failf("the key of %v goes from %s to %s; renewable: %v", s, r.key, f.Key, r.renewable)
	}
	r.key, r.rejected, r.renewable = f.Key, false, false
	for other, o := range w.runs {
		if other != s && o.key == f.Key {
			w.failf("%v and %v have the same key", s, other)
		}
	}
}

// resumed resets the budgets of all runs that aren't running.
func (w *scenario) resumed() {
	for s, r := range w.runs {
		run := w.fold.Run(w.index(s.Step), s.Kind)
		undone := w.fold.Ending != "" || w.effects[s.Step].catching
		if run == nil || run.State == events.StepRunning || (s.Kind == events.Undo) != undone {
			continue
		}
		r.renew()
	}
}

// undone checks that a step with an undo was undone if and only if wanted reports true for its effect.
func (w *scenario) undone(wanted func(*effect) bool) {
	for i := range w.fold.Steps {
		p, s := &w.fold.Plan.Steps[i], w.fold.Steps[i]
		if p.Undo != nil && wanted(w.effects[p.ID]) != (s.State == events.StepUndone) {
			w.failf("the task has ended with step %q %s; its effect: %+v", p.ID, s.State, *w.effects[p.ID])
		}
	}
}
