package scheduler

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// repeat makes some steps call again. It has dice of its own, as lookBack has.
func (g *graph) repeat(d dice, flawed bool) {
	for i := range g.steps {
		s := &g.steps[i]
		if s.Agent == "" || !d.oneIn(2) {
			continue
		}
		s.Repeat = &workflow.Repeat{Every: workflow.Duration(d.span(10*time.Millisecond, g.within/4)), Max: d.between(1, 4),
			Until: pick(d, []string{"${ output == null }", "${ output != null }", "${ task.priority > 100 }"})}
		if flawed && d.oneIn(4) {
			s.Repeat.Until = pick(d, []string{"${ output.gone }", "${ output == input.gone }", "${ output }"})
		}
	}
}

// neverEnds reports whether a step is repeated until its calls are used up, if its agent behaves.
func (g *graph) neverEnds() bool {
	return slices.ContainsFunc(g.steps, func(s workflow.Step) bool { return s.Repeat != nil && s.Repeat.Until != "${ output != null }" })
}

// repeats reports whether a step is repeated.
func (w *scenario) repeats(step string) bool { return w.fold.Plan.Steps[w.index(step)].Repeat != nil }

// callEnded checks the calls of a repeat (P23): their number, and that the next one is due in time.
func (w *scenario) callEnded(e *events.Event, f *events.CallRepeated) {
	w.counts["calls repeated"]++
	x, r := w.effects[f.Step], w.run(events.Slot{Step: f.Step, Kind: events.Do})
	x.running, x.unknown = false, true
	rule := w.fold.Plan.Steps[w.index(f.Step)].Repeat
	r.calls++
	r.attempts, r.renewable, r.nextCall = 0, true, e.Due
	switch {
	case e.Due.IsZero():
	case !e.Due.Equal(e.At.Add(rule.Every)):
		w.failf("the next call of step %q is due at %s, %s after %s", f.Step, e.Due, rule.Every, e.At)
	case r.calls >= rule.Max || w.fold.State != events.StateProcessing:
		w.failf("step %q is to be called again after %d of %d calls, in state %s", f.Step, r.calls, rule.Max, w.fold.State)
	}
}

// callBegins checks that a call doesn't begin before its time (P23).
func (w *scenario) callBegins(e *events.Event, step string) {
	r := w.run(events.Slot{Step: step, Kind: events.Do})
	if e.At.Before(r.nextCall) {
		w.failf("the call of step %q that is due at %s begins at %s", step, r.nextCall, e.At)
	}
	r.nextCall = time.Time{}
}

// callsEnd checks that a step that ends for its calls has made them all (P23).
func (w *scenario) callsEnd(f *events.RunErrored) {
	if f.Error.Code != events.CodeRepeatExhausted {
		return
	}
	w.counts["repeats exhausted"]++
	if rule, r := w.fold.Plan.Steps[w.index(f.Step)].Repeat, w.run(events.Slot{Step: f.Step, Kind: events.Do}); rule == nil || r.calls != rule.Max {
		w.failf("step %q is exhausted after %d calls of %+v", f.Step, r.calls, rule)
	}
}

// oneEffect reports whether the effects of a step are under the keys that it may have them under: the calls of a repeat
// have a key each.
func (w *scenario) oneEffect(step, key string, keys []string) bool {
	if w.repeats(step) {
		return slices.Contains(keys, key)
	}
	return slices.Equal(keys, []string{key})
}
