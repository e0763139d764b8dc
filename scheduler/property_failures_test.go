package scheduler

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// codesOfServices are codes of the errors in the histories.
var codesOfServices = []string{"busy", "lost", "no", "barred", "circuit_open", events.CodeExpired, events.CodeNoSuchAgent, events.CodeTooLarge}

func drawCodes(d dice) []string {
	var codes []string
	for range d.between(1, 3) {
		if code := pick(d, codesOfServices); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	return codes
}

// codes gives some rules of retries lists of error codes. It has dice of its own, as lookBack has.
func (g *graph) codes(d dice) {
	draw := func(r *workflow.Retry) {
		switch d.IntN(3) {
		case 0:
			r.Only = drawCodes(d)
		case 1:
			r.Except = drawCodes(d)
		}
	}
	if d.oneIn(4) {
		draw(&g.retry)
	}
	for i := range g.steps {
		s := &g.steps[i]
		s.Pivot = d.oneIn(6)
		switch d.IntN(6) {
		case 0:
			s.Catch = []string{"*"}
		case 1:
			s.Catch = append(drawCodes(d), events.CodeExpressionFailed)
		case 2:
			s.Catch = []string{events.CodeTriesExhausted}
		}
		if s.Agent == "" {
			continue
		}
		if d.oneIn(3) {
			r := drawRetry(d)
			draw(&r)
			s.Retry = &r
		}
		if s.Undo != nil && d.oneIn(3) {
			r := drawRetry(d)
			draw(&r)
			s.Undo.Retry = &r
		}
	}
}

// endedBy records the code of a failed attempt.
func (w *scenario) endedBy(step string, k events.Kind, code string) {
	r := w.run(events.Slot{Step: step, Kind: k})
	if r.final = !w.fold.Plan.RetryCodesOf(w.index(step), k).Allow(code); r.final {
		w.counts["errors that aren't retried"]++
	}
}

// undoingAllowed checks that only an operator undoes a task once a pivot is completed.
func (w *scenario) undoingAllowed(f *events.TaskUndoing) {
	for i := range w.fold.Plan.Steps {
		p := &w.fold.Plan.Steps[i]
		if !p.Pivot || w.fold.Steps[i].State != events.StepCompleted {
			continue
		}
		if f.RequestID == "" {
			w.failf("undoing, and nobody asked for it, after the pivot %q was completed", p.ID)
		}
		w.counts["undos past a pivot"]++
		return
	}
}

// renew gives a run a fresh budget, and a new key after a rejection.
func (r *ran) renew() {
	r.attempts, r.granted, r.final, r.calls, r.nextCall, r.about, r.checked = 0, 0, false, 0, time.Time{}, 0, 0
	r.renewable = r.renewable || r.rejected
}

func isCaught(e *events.Event) bool {
	_, is := e.Fact.(*events.RunCaught)
	return is
}

// catches reports whether the undo of a step begins, or began, while the task goes on. It checks that the step is in
// error then, that it may have had an effect, and that it catches its error.
func (w *scenario) catches(step string) bool {
	i, x := w.index(step), w.effects[step]
	if x.catching || w.fold.Ending != "" {
		return x.catching
	}
	x.catching = true
	s := w.fold.Steps[i]
	if w.fold.State != events.StateProcessing || s.State != events.StepError || x.completed || !x.unknown {
		w.failf("undo of step %q begins in state %s; the step is %s: %+v", step, w.fold.State, s.State, *x)
	}
	w.catchesError(step, s.Error)
	return true
}

func (w *scenario) catchesError(step string, err *events.Error) {
	catch := w.fold.Plan.Steps[w.index(step)].Catch
	if !slices.Contains(catch, "*") && !slices.Contains(catch, err.Code) && !slices.Contains(catch, events.CodeTriesExhausted) {
		w.failf("the error %s of step %q is caught; it catches %q", err.Code, step, catch)
	}
}

// caught checks that a step is caught after its own error, and that what it may have changed is undone (P21).
func (w *scenario) caught(f *events.RunCaught) {
	i := w.index(f.Step)
	s, x := w.fold.Steps[i], w.effects[f.Step]
	w.counts["errors caught"]++
	w.catchesError(f.Step, f.Error)
	if w.fold.Ending != "" {
		w.failf("the error of step %q is caught, and the task is being undone", f.Step)
	}
	undone := s.Undo != nil && s.Undo.State == events.StepCompleted
	if x.unknown && w.fold.Plan.Steps[i].Undo != nil && !undone {
		w.failf("the error of step %q is caught before its undo is complete", f.Step)
	}
	if undone {
		w.counts["errors caught after an undo"]++
	}
	if w.fold.State == events.StateError {
		w.counts["errors caught during a hold"]++
	}
	*x = effect{startedAt: x.startedAt, catching: x.catching} // nothing is left to undo
}

// takeOver is called when the task is undone. Undos of steps that are being caught get a fresh budget.
func (w *scenario) takeOver() {
	for s, r := range w.runs {
		run := w.fold.Run(w.index(s.Step), s.Kind)
		if s.Kind == events.Undo && run != nil && run.State != events.StepRunning && run.State != events.StepCompleted {
			w.counts["undos of errors to catch, taken over"]++
			r.renew()
		}
	}
}
