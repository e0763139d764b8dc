package scheduler

import (
	"encoding/json"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// check gives some steps a check. It has dice of its own, as lookBack has.
func (g *graph) check(d dice) {
	for i := range g.steps {
		s := &g.steps[i]
		if s.Agent == "" || s.Repeat != nil || !d.oneIn(2) {
			continue
		}
		s.Check = &workflow.Check{Operation: "status"}
		if d.oneIn(4) {
			s.Check.Agent = pick(d, agents)
		}
		if d.oneIn(2) {
			r := drawRetry(d)
			s.Check.Retry = &r
		}
	}
}

// check answers what became of a key. A service that says none bars the attempts that were made: they have no effect any
// more, and another one may be made.
func (l *ledger) check(q *events.Request, luck int) *events.Reply {
	var v struct {
		CheckOf struct {
			Key string `json:"idempotency_key"`
		} `json:"check_of"`
	}
	if err := json.Unmarshal(q.Value, &v); err != nil {
		panic(broken{"a check's value", err.Error()})
	}
	d := l.deed(v.CheckOf.Key, q.Ref.Step)
	answer := func(v any) *events.Reply {
		body, err := json.Marshal(v)
		if err != nil {
			panic(broken{"an answer", err.Error()})
		}
		if !events.ValidJSON(body) { // the output nests as deep as it may
			body = []byte(`{"outcome":"unknown"}`)
		}
		return answerTo(q, events.Completed, events.EffectUnknown, string(body))
	}
	switch {
	case luck == 5:
		return answerTo(q, events.Rejected, events.EffectUnknown, `{"code":"no"}`)
	case luck == 6:
		return deferredTo(q)
	case luck == 7:
		return answerTo(q, events.Failed, events.EffectUnknown, `{"code":"busy"}`)
	case luck == 8:
		return answer(map[string]string{"outcome": "perhaps"})
	case luck > 8:
		return answer(map[string]string{"outcome": "unknown"})
	case d.effect && !d.undone:
		return answer(map[string]any{"outcome": "completed", "output": d.output})
	case d.undone:
		return answer(map[string]string{"outcome": "unknown"})
	}
	l.noneBefore(q, v.CheckOf.Key)
	return answer(map[string]string{"outcome": "none"})
}

// noneBefore bars the requests for a key that were made so far.
func (l *ledger) noneBefore(q *events.Request, key string) {
	for _, before := range l.asked(q.Ref.Step, key) {
		l.refused[before] = true
	}
}

// askedBefore checks that an unknown effect is asked about before the step is retried or undone (P23).
func (w *scenario) askedBefore(e *events.Event, f *events.AttemptStarted) {
	if f.Kind == events.Check || w.fold.Plan.Steps[w.index(f.Step)].Check == nil {
		return
	}
	x, c := w.effects[f.Step], w.run(events.Slot{Step: f.Step, Kind: events.Check})
	if own := w.fold.Steps[w.index(f.Step)].Attempt; x.unknown && !x.completed && c.checked != own {
		w.failf("%s of step %q begins with event %d, and nobody asked what became of attempt %d", f.Kind, f.Step, e.Seq, own)
	}
}

// checkBegins checks that only an unknown effect is asked about, and returns the state that the task must be in.
func (w *scenario) checkBegins(f *events.AttemptStarted) events.TaskState {
	x, c := w.effects[f.Step], w.run(events.Slot{Step: f.Step, Kind: events.Check})
	if !x.unknown || x.completed || x.running {
		w.failf("a check of step %q, whose effect is known: %+v", f.Step, *x)
	}
	own := w.fold.Steps[w.index(f.Step)].Attempt
	if c.checked == own {
		w.failf("a second check of attempt %d of step %q", own, f.Step)
	}
	w.checkAbout(f.Step, f.Kind)
	s := w.fold.Steps[w.index(f.Step)]
	switch {
	case w.fold.State == events.StateUndoing:
		return events.StateUndoing
	case s.State == events.StepError: // being caught
		w.catchesError(f.Step, s.Error)
		w.counts["checks of errors to catch"]++
	}
	return events.StateProcessing
}

// checked applies the answer to a check.
func (w *scenario) checked(e *events.Event, f *events.CheckCompleted) {
	w.counts["checks: "+string(f.Became)]++
	c := w.run(events.Slot{Step: f.Step, Kind: events.Check})
	c.checked = w.fold.Steps[w.index(f.Step)].Attempt
	x := w.effects[f.Step]
	switch f.Became {
	case events.BecameCompleted:
		*x = effect{completed: true, startedAt: x.startedAt, completedAt: e.Seq, catching: x.catching}
	case events.BecameNone:
		x.unknown = false
	case events.BecameUnknown:
	}
	if w.undo.made && f.Became != events.BecameUnknown { // another order
		w.undo.made = false
	}
}

// unanswered counts a check that ended without an answer.
func (w *scenario) unanswered(step string, k events.Kind) {
	if k == events.Check {
		w.counts["checks without an answer"]++
		w.run(events.Slot{Step: step, Kind: k}).checked = w.fold.Steps[w.index(step)].Attempt
	}
}

// checkCheckValue checks that a check names the key and the input of the step's last attempt.
func (w *scenario) checkCheckValue(q *events.Request) {
	var v struct {
		CheckOf struct {
			Key   string `json:"idempotency_key"`
			Input json.RawMessage
		} `json:"check_of"`
	}
	if err := json.Unmarshal(q.Value, &v); err != nil {
		w.failf("%v", err)
	}
	if key := w.run(events.Slot{Step: q.Ref.Step, Kind: events.Do}).key; v.CheckOf.Key != key || len(v.CheckOf.Input) == 0 {
		w.failf("the check of step %q, of the key %s, is asked for by %s", q.Ref.Step, key, q.Value)
	}
}

// askedUnder returns the attempts at a step that were made under a key.
func (w *scenario) askedUnder(step, key string) (refs []events.RequestRef) {
	for _, q := range w.sent {
		if q.Ref.Step == step && q.Ref.Kind == events.Do && q.IdempotencyKey == key {
			refs = append(refs, q.Ref)
		}
	}
	return refs
}

// interruptChecks gives checks that a hold or an undo interrupts their whole budget again.
func (w *scenario) interruptChecks() {
	for s, r := range w.runs {
		if s.Kind == events.Check {
			r.about = 0
		}
	}
}

// checkAbout gives a check its whole budget if it is about another attempt than the check before.
func (w *scenario) checkAbout(step string, k events.Kind) {
	c, own := w.run(events.Slot{Step: step, Kind: k}), w.fold.Steps[w.index(step)].Attempt
	if k == events.Check && c.about != own {
		c.about, c.attempts, c.final = own, 0, false
	}
}
