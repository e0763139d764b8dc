package scheduler

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// ledger simulates the agents and their effects. It is one service that follows the contract for agents
// (docs/guides/agents.md). It stores its effects by idempotency key. It repeats its reply to a known key, and rejects a
// key that was undone. Its calls may fail before or after their effect.
type ledger struct {
	deeds map[string]*deed // by idempotency key of the step's operation
	undos map[string]events.Outcome
	// refused contains the attempts that the service reported to have no effect. A repetition at another instance must
	// not have one either, since nothing would undo it.
	refused map[events.RequestRef]bool
	asked   func(step, key string) []events.RequestRef // the attempts that were made under a key
	repeats func(step string) bool                     // the calls of such a step have a key each, and an effect each
	tell    func(verify.Effect)
}

// deed is the effect of a key.
type deed struct {
	step                     string
	effect, undone, rejected bool
	output                   json.RawMessage
}

func newLedger(tell func(verify.Effect)) *ledger {
	return &ledger{tell: tell, deeds: map[string]*deed{}, undos: map[string]events.Outcome{}, refused: map[events.RequestRef]bool{}}
}

func (l *ledger) deed(key, step string) *deed {
	if l.deeds[key] == nil {
		l.deeds[key] = &deed{step: step}
	}
	return l.deeds[key]
}

// perform handles a request and returns the reply. luck is from 0 to 9. Below 5 the call succeeds, if it can.
func (l *ledger) perform(q *events.Request, luck int, output json.RawMessage) *events.Reply {
	switch q.Ref.Kind {
	case events.Undo:
		return l.undo(q, luck)
	case events.Check:
		return l.check(q, luck)
	}
	d := l.deed(q.IdempotencyKey, q.Ref.Step)
	switch {
	case d.undone, d.rejected:
		return answerTo(q, events.Rejected, events.EffectUnknown, `{"code":"barred"}`)
	case d.effect:
		return answerTo(q, events.Completed, events.EffectUnknown, string(d.output))
	case l.refused[q.Ref]:
		return answerTo(q, events.Failed, events.EffectNone, `{"code":"as before"}`)
	case luck <= 4:
		l.happens(q, d, output)
		return answerTo(q, events.Completed, events.EffectUnknown, string(output))
	case luck == 5:
		d.rejected = true
		return answerTo(q, events.Rejected, events.EffectUnknown, `{"code":"no","message":"never"}`)
	case luck == 6:
		l.refused[q.Ref] = true
		return deferredTo(q)
	case luck == 7:
		l.refused[q.Ref] = true
		return answerTo(q, events.Failed, events.EffectNone, `{"code":"busy","message":"later"}`)
	case luck == 8:
		l.happens(q, d, output)
	}
	return answerTo(q, events.Failed, events.EffectUnknown, `{"code":"lost"}`)
}

func (l *ledger) happens(q *events.Request, d *deed, output json.RawMessage) {
	d.effect, d.output = true, output
	l.tell(verify.Effect{What: verify.Happened, Key: q.IdempotencyKey})
}

func (l *ledger) undo(q *events.Request, luck int) *events.Reply {
	var v struct {
		UndoOf struct {
			Key string `json:"idempotency_key"`
		} `json:"undo_of"`
	}
	if err := json.Unmarshal(q.Value, &v); err != nil {
		panic(broken{"an undo's value", err.Error()})
	}
	if was, ok := l.undos[q.IdempotencyKey]; ok {
		return answerTo(q, was, events.EffectUnknown, `{"code":"as before"}`)
	}
	switch {
	case luck <= 4:
		l.bar(v.UndoOf.Key, q.Ref.Step)
		l.undos[q.IdempotencyKey] = events.Completed
		return answerTo(q, events.Completed, events.EffectUnknown, `{}`)
	case luck == 5:
		l.undos[q.IdempotencyKey] = events.Rejected
		return answerTo(q, events.Rejected, events.EffectUnknown, `{"code":"settled"}`)
	case luck == 6:
		return deferredTo(q)
	case luck == 7:
		return answerTo(q, events.Failed, events.EffectNone, `{"code":"busy"}`)
	case luck == 8:
		l.bar(v.UndoOf.Key, q.Ref.Step)
	}
	return answerTo(q, events.Failed, events.EffectUnknown, `{"code":"lost"}`)
}

// bar undoes the effect of a key, and prevents later ones.
func (l *ledger) bar(key, step string) {
	d := l.deed(key, step)
	d.undone, d.effect = true, false
	l.tell(verify.Effect{What: verify.Undone, Key: key})
	if !l.repeats(step) {
		return
	}
	for _, call := range l.effects(step) {
		l.deeds[call].undone, l.deeds[call].effect = true, false
		l.tell(verify.Effect{What: verify.Undone, Key: call})
	}
}

func answerTo(q *events.Request, o events.Outcome, e events.Effect, body string) *events.Reply {
	return &events.Reply{Task: q.Task, Ref: q.Ref, Token: q.Token, Outcome: o, Effect: e, Body: json.RawMessage(body)}
}

// deferredTo returns the reply of an agent that had no effect and asks for a retry later.
func deferredTo(q *events.Request) *events.Reply {
	r := answerTo(q, events.Failed, events.EffectNone, `{"code":"circuit_open"}`)
	r.RetryAfter = 1500 * time.Millisecond
	return r
}

// effects returns the keys of a step that have an effect.
func (l *ledger) effects(step string) (keys []string) {
	for key, d := range l.deeds {
		if d.step == step && d.effect {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// checkLedger compares the effects in the ledger with an ended task (P6, P7). A completed step has one effect, under its
// key. An undone step has none. No step has two. It ignores steps that an operator released, or whose reply wasn't sent
// by a service.
func (w *scenario) checkLedger() {
	for i := range w.fold.Steps {
		s, p := w.fold.Steps[i], &w.fold.Plan.Steps[i]
		if w.settled[p.ID] || !p.StepKind.CallsAgent() {
			continue
		}
		keys := w.ledger.effects(p.ID)
		switch {
		case len(keys) > 1 && !w.repeats(p.ID):
			w.failf("step %q has had %d effects: %s", p.ID, len(keys), strings.Join(keys, ", "))
		case s.State == events.StepCompleted && !w.oneEffect(p.ID, s.Key, keys):
			w.failf("step %q completed under the key %s; effects: %q", p.ID, s.Key, keys)
		case s.State == events.StepUndone && len(keys) > 0:
			w.failf("step %q was undone, and its effect is there: %q", p.ID, keys)
		case s.State == events.StepCaught && p.Undo != nil && len(keys) > 0:
			w.failf("the error of step %q was caught, and its effect is there: %q", p.ID, keys)
		case s.State == events.StepSkipped && len(keys) > 0:
			w.failf("step %q was skipped, and its effect is there: %q", p.ID, keys)
		case w.fold.Ending != "" && !w.leftBehind && p.Undo != nil && len(keys) > 0 && !(w.fold.Keep && s.State == events.StepCompleted):
			w.failf("the task is %s; step %q is %s, and its effect is there: %q", w.fold.State, p.ID, s.State, keys)
		}
	}
}

// undoing is the expected order of an undo. It is derived from observed events.
type undoing struct {
	made bool
	left []string
}

// effect is what the events say about a step's effect.
type effect struct {
	completed, unknown bool
	running            bool
	catching           bool   // its undo began while the task went on
	startedAt          uint64 // sequence number of the last start
	completedAt        uint64
}

// expectedUndo returns the order of the undo: first steps with an unknown effect, the last started first; then
// completed steps, the last completed first.
func (w *scenario) expectedUndo() []string {
	if w.undo.made {
		return w.undo.left
	}
	w.undo.made = true
	var unknown, completed []string
	for i := range w.fold.Plan.Steps {
		p := &w.fold.Plan.Steps[i]
		switch x := w.effects[p.ID]; {
		case x.running:
			w.failf("undo begins while step %q runs", p.ID)
		case p.Undo == nil, x.catching: // an undo that has begun isn't in the order
		case w.fold.Steps[i].State == events.StepUndone:
		case x.completed && !w.fold.Keep:
			completed = append(completed, p.ID)
		case x.unknown && !x.completed:
			unknown = append(unknown, p.ID)
		}
	}
	by := func(seq func(*effect) uint64) func(a, b string) int {
		return func(a, b string) int { return int(seq(w.effects[b])) - int(seq(w.effects[a])) }
	}
	slices.SortFunc(unknown, by(func(x *effect) uint64 { return x.startedAt }))
	slices.SortFunc(completed, by(func(x *effect) uint64 { return x.completedAt }))
	w.undo.left = append(unknown, completed...)
	if len(w.undo.left) > 1 {
		w.counts["undos of two steps or more"]++
	}
	if len(unknown) > 0 {
		w.counts["undos of what may have happened"]++
	}
	return w.undo.left
}

// undoBegins is called when the undo of a step starts, or can't start. It checks that this step is the next one.
func (w *scenario) undoBegins(step string) {
	if w.catches(step) {
		return
	}
	if left := w.expectedUndo(); len(left) == 0 || left[0] != step {
		w.failf("step %q is undone; in order are %q", step, left)
	}
}

// undoEnds is called when the undo of a step is done or was released.
func (w *scenario) undoEnds(step string) {
	if w.effects[step].catching {
		return
	}
	if i := slices.Index(w.expectedUndo(), step); i >= 0 {
		w.undo.left = slices.Delete(w.undo.left, i, i+1)
	}
}

// luck draws the outcome of a call. Most calls succeed, since few tasks would get far otherwise.
func (w *scenario) luck() int { return max(0, w.IntN(18)-8) }

// nothingLeft checks that an undone task has no undo left.
func (w *scenario) nothingLeft(state events.TaskState) {
	if left := w.expectedUndo(); len(left) > 0 {
		w.failf("the task is %s before %q are undone", state, left)
	}
}
