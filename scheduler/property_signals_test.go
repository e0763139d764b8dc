package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// signalNames are the signals that people send. No step waits for the last one.
var signalNames = []string{"yes", "paid", "other"}

func init() {
	mustHappen = append(mustHappen, "signals received", "signals again", "signals refused", "signals taken", "signals taken later", "signals taken during a hold")
}

// signal makes some steps wait for signals. It has dice of its own, as lookBack has.
func (g *graph) signal(d dice) {
	for i := range g.steps {
		if !d.oneIn(3) {
			continue
		}
		within := workflow.Duration(d.span(50*time.Millisecond, g.within))
		g.steps[i] = workflow.Step{ID: g.steps[i].ID, Needs: g.steps[i].Needs, When: g.steps[i].When, Signal: pick(d, signalNames[:2]), CompleteWithin: &within}
	}
}

// heard is what was observed of a task's signals.
type heard struct {
	received map[string]bool // by name and id
	kept     []*events.TaskSignalled
	seqs     []uint64 // of kept
	number   int      // of those that were sent
}

// anySignal sends a signal: usually a new one, sometimes one again.
func (w *scenario) anySignal() {
	id := fmt.Sprint("id-", w.between(1, 8))
	if w.coin() {
		w.heard.number++
		id = fmt.Sprint("new-", w.heard.number)
	}
	w.sendSignal(&events.Signal{Task: "t", Name: pick(w.dice, signalNames), ID: id, Data: json.RawMessage(pick(w.dice, bodies)), By: pick(w.dice, []string{"", "ada"})})
}

// sendSignal checks the decision on a signal.
func (w *scenario) sendSignal(s *events.Signal) {
	was := w.task
	w.say("signal %s %s", s.Name, s.ID)
	_, d := w.decide(events.Signals, s.Record(events.DefaultNamespace, "shop"))
	var reason events.Reason
	if d.Unusable != nil {
		reason = d.Unusable.Reason
	}
	want := w.refusal(was, s)
	again := want == "" && w.heard.received[s.Name+"/"+s.ID]
	switch {
	case reason != want && reason != events.ReasonTooLarge && reason != events.ReasonTooManySignals:
		w.failf("the signal %s %s is refused for %q, want %q", s.Name, s.ID, reason, want)
	case reason != "" && len(d.Events) > 0:
		w.failf("a signal that was refused led to %v", d.Events)
	case again != (d.Ignored == IgnoredDuplicate):
		w.failf("the signal %s %s, received before: %v; ignored as %q", s.Name, s.ID, again, d.Ignored)
	case reason == "" && d.Ignored == "":
		w.heard.received[s.Name+"/"+s.ID] = true
		w.counts["signals received"]++
	case again:
		w.counts["signals again"]++
	default:
		w.counts["signals refused"]++
	}
}

// refusal returns why a task can't take a signal; empty: it can.
func (w *scenario) refusal(t *events.Task, s *events.Signal) events.Reason {
	switch {
	case t == nil:
		return events.ReasonUnknownTask
	case t.State.Terminal(), t.State == events.StateUndoing, t.Ending != "":
		return events.ReasonTaskEnded
	case w.heard.received[s.Name+"/"+s.ID]:
		return ""
	}
	for i := range w.definition.Steps {
		if w.definition.Steps[i].Signal == s.Name && t.Steps[i].State != events.StepCompleted && t.Steps[i].State != events.StepSkipped {
			return ""
		}
	}
	return events.ReasonNotAwaited
}

// observeSignal checks an event of a signal against those before it.
func (w *scenario) observeSignal(e *events.Event) {
	switch f := e.Fact.(type) {
	case *events.TaskSignalled:
		w.heard.kept, w.heard.seqs = append(w.heard.kept, f), append(w.heard.seqs, e.Seq)
	case *events.SignalStarted:
		w.afterAncestors(f.Step, "waiting for a signal")
	case *events.SignalCompleted:
		name := w.definition.Steps[w.index(f.Step)].Signal
		first := slices.IndexFunc(w.heard.kept, func(k *events.TaskSignalled) bool { return k.Name == name })
		if first < 0 || w.heard.seqs[first] != f.Received {
			w.failf("step %q took the signal of event %d; kept are those of %v", f.Step, f.Received, w.heard.seqs)
		}
		w.heard.kept, w.heard.seqs = slices.Delete(w.heard.kept, first, first+1), slices.Delete(w.heard.seqs, first, first+1)
		w.counts["signals taken"]++
		if f.Received < e.Seq-1 {
			w.counts["signals taken later"]++
		}
		if w.fold.State == events.StateError {
			w.counts["signals taken during a hold"]++
		}
	}
}

// noneWaits checks that no step waits for a signal that is there.
func (w *scenario) noneWaits() {
	for _, k := range w.heard.kept {
		if w.task.TakesSignals() && slices.Contains(w.task.WaitingSignals(), k.Name) {
			w.failf("a step waits for the signal %s %s, which is kept", k.Name, k.ID)
		}
	}
}

// answerSignals sends the signals that the task waits for. It reports whether there are any.
func (w *scenario) answerSignals() bool {
	names := w.task.WaitingSignals()
	for _, name := range names {
		w.heard.number++
		w.sendSignal(&events.Signal{Task: "t", Name: name, ID: fmt.Sprint("new-", w.heard.number)})
	}
	return len(names) > 0
}
