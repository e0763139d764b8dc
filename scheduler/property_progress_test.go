package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// beat gives some steps and undos a heartbeat. It has dice of its own, as lookBack has.
func (g *graph) beat(d dice) {
	if g.within < 4*time.Second {
		return
	}
	for i := range g.steps {
		s := &g.steps[i]
		if s.Agent == "" || !d.oneIn(3) {
			continue
		}
		s.CompleteWithin = workflow.Within(d.span(2*time.Second, g.within/2))
		s.Heartbeat = workflow.Within(d.span(time.Second, time.Duration(*s.CompleteWithin)-time.Millisecond))
		if s.Undo != nil && d.coin() {
			s.Undo.CompleteWithin, s.Undo.Heartbeat = workflow.Within(10*time.Second), workflow.Within(d.span(time.Second, 8*time.Second))
		}
	}
}

// report lets an agent report progress of a request, usually of a running attempt. The scheduler ignores it if it comes
// too soon after the last one, or after complete-by.
func (w *scenario) report() {
	q := w.current()
	if q == nil || w.oneIn(6) {
		if len(w.sent) == 0 {
			return
		}
		q = pick(w.dice, w.sent)
	}
	value := w.drawBody()
	if len(value) > events.MaxProgressBytes {
		value = nil
	}
	r := &events.Reply{Task: q.Task, Ref: q.Ref, Token: q.Token, Outcome: events.Progress, Body: value}
	if w.oneIn(8) {
		w.underway = append(w.underway, r)
		return
	}
	w.replied(r)
}

// mayBeIgnored reports whether a decision on a report of a running attempt was allowed to change nothing.
func (w *scenario) mayBeIgnored(r *events.Reply, d Decision) bool {
	if r.Outcome != events.Progress {
		return false
	}
	w.counts["ignored: "+string(d.Ignored)]++
	return d.Ignored == IgnoredProgressEarly || d.Ignored == IgnoredProgressLate || d.Ignored == IgnoredProgressOfCheck
}

// silenceBegins checks that the timer of an attempt bounds its silence (P22).
func (w *scenario) silenceBegins(e *events.Event, f *events.AttemptStarted) {
	rule := w.fold.Plan.AttemptsOf(w.index(f.Step), f.Kind)
	by := f.EndsBy(e)
	if most := e.At.Add(rule.CompleteWithin); by.After(most) || f.Kind == events.Do && by.After(w.fold.CompleteBy) {
		w.failf("%s of step %q may last until %s, %s after %s", f.Kind, f.Step, by, by.Sub(e.At), e.At)
	}
	if r := w.run(events.Slot{Step: f.Step, Kind: f.Kind}); r.key != f.Key { // another generation has no progress yet
		r.reported = time.Time{}
	}
	w.silenceBounded(e, rule, by)
}

func (w *scenario) silenceBounded(e *events.Event, rule events.Attempts, by time.Time) {
	if e.Due.After(by) || rule.Heartbeat > 0 && e.Due.After(e.At.Add(rule.Heartbeat)) {
		w.failf("%s may be silent until %s; its heartbeat is %s, its complete-by %s", e.ID(0), e.Due, rule.Heartbeat, by)
	}
}

// progressed checks a recorded progress (P22): its attempt runs, its complete-by hasn't passed, and it isn't too soon after
// the last one.
func (w *scenario) progressed(e *events.Event, f *events.AttemptProgressed) {
	w.counts["progress recorded"]++
	i := w.index(f.Step)
	run, rule := w.fold.Run(i, f.Kind), w.fold.Plan.AttemptsOf(i, f.Kind)
	r := w.run(events.Slot{Step: f.Step, Kind: f.Kind})
	switch {
	case run.State != events.StepRunning || run.Attempt != f.Attempt:
		w.failf("progress of attempt %d of step %q, which is %s in attempt %d", f.Attempt, f.Step, run.State, run.Attempt)
	case !e.At.Before(run.CompleteBy):
		w.failf("progress of step %q at %s; its complete-by is %s", f.Step, e.At, run.CompleteBy)
	case !r.reported.IsZero() && e.At.Sub(r.reported) < rule.ProgressEvery():
		w.failf("progress of step %q %s after the last one", f.Step, e.At.Sub(r.reported))
	}
	r.reported = e.At
	w.silenceBounded(e, rule, run.CompleteBy)
}

// expired checks that an expired attempt says whether it was silent.
func (w *scenario) expired(f *events.AttemptExpired) {
	i := w.index(f.Step)
	run := w.fold.Run(i, f.Kind)
	silent := run.Timer.Due.Before(run.CompleteBy)
	if want := w.fold.Plan.AttemptsOf(i, f.Kind).Heartbeat; silent != (f.Silence > 0) || silent && f.Silence != want {
		w.failf("attempt %d of step %q expired after a silence of %s; timer due %s, complete-by %s", f.Attempt, f.Step, f.Silence, run.Timer.Due, run.CompleteBy)
	}
	if silent {
		w.counts["silences"]++
	}
}
