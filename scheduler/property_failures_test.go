package scheduler

import (
	"slices"

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
func (w *world) endedBy(step string, k events.Kind, code string) {
	r := w.run(events.Slot{Step: step, Kind: k})
	if r.final = !w.fold.Plan.RetryCodesOf(w.index(step), k).Allow(code); r.final {
		w.counts["errors that aren't retried"]++
	}
}

// undoingAllowed checks that only an operator undoes a task once a pivot is completed.
func (w *world) undoingAllowed(f *events.TaskUndoing) {
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
