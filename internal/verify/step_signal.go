package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

func init() {
	taskRules[events.VerbSignalled] = &factRule{from: bySignals, only: true, promise: "P20", checkCourse: (*eventCheck).checkSignalled,
		count: (*eventCheck).countSignalled, lead: leadSignalled}
	kindRules[events.SignalStep] = map[events.Verb]*factRule{
		events.VerbStarted: {begins: true, checkCourse: (*eventCheck).checkStarted, arms: signalTimer, count: (*eventCheck).countSignalStarted},
		events.VerbCompleted: {promise: "P20", checkCourse: (*eventCheck).checkSignalCompleted, count: (*eventCheck).countSignalCompleted,
			follows: true},
	}
}

var bySignals = []events.Inbox{events.Signals}

// signal is a signal that a task received, independently of the fold.
type signal struct {
	seq   uint64 // of its event
	name  string
	taken bool
}

// signalTimer returns the end of a step's wait for a signal.
func signalTimer(s *eventCheck) (events.TimerKind, time.Time) {
	t := s.t.open.state
	return events.TimerStep, earlier(events.Millis(s.e.At.Add(t.Plan.AttemptsOf(s.index, events.Do).CompleteWithin)), t.CompleteBy)
}

// checkSignalled checks that a signal counts once: no other of the task has its name and id (P20).
func (s *eventCheck) checkSignalled() *Fault {
	f, ok := s.e.Fact.(*events.TaskSignalled)
	if !ok {
		return nil
	}
	if slices.Contains(s.t.signals, sumOfSignal(f.Name, f.ID)) {
		return faultf("P20", "the signal %q with the id %q counts a second time", f.Name, f.ID)
	}
	return nil
}

// sumOfSignal returns a hash of a signal's name and id.
func sumOfSignal(name, id string) uint64 { return sumOfText(name + "\x00" + id) }

func (s *eventCheck) countSignalled() {
	f, ok := s.e.Fact.(*events.TaskSignalled)
	if !ok {
		return
	}
	s.t.signals = append(s.t.signals, sumOfSignal(f.Name, f.ID))
	s.t.open.signals = append(s.t.open.signals, signal{seq: s.e.Seq, name: f.Name})
}

func (s *eventCheck) countSignalStarted() {
	r := s.run
	r.attempt, r.running, r.began = s.about.Attempt, true, s.e.Seq
}

// checkSignalCompleted checks that the step takes a signal of its name which the log has and no other step took, and the
// oldest of these. It is the step that has waited longest for it (P20).
func (s *eventCheck) checkSignalCompleted() *Fault {
	f, ok := s.e.Fact.(*events.SignalCompleted)
	if !ok {
		return nil
	}
	name := s.t.plan.Steps[s.index].Signal
	at := slices.IndexFunc(s.t.open.signals, func(x signal) bool { return x.seq == f.Received })
	switch {
	case at < 0:
		return faultf("P20", "step %q took a signal of event %d, and the task received none there", f.Step, f.Received)
	case s.t.open.signals[at].taken:
		return faultf("P20", "step %q took the signal of event %d, which another step took", f.Step, f.Received)
	case s.t.open.signals[at].name != name:
		return faultf("P20", "step %q waits for the signal %q, and took %q of event %d", f.Step, name, s.t.open.signals[at].name, f.Received)
	}
	if first := s.t.open.kept(name); first != f.Received {
		return faultf("P20", "step %q took the signal of event %d before the one of event %d, which came first", f.Step, f.Received, first)
	}
	if i, ok := s.t.awaiting(name); ok && i != s.index {
		return faultf("P20", "step %q took the signal of event %d, and step %q has waited longer for it", f.Step, f.Received, s.t.plan.Steps[i].ID)
	}
	return nil
}

func (s *eventCheck) countSignalCompleted() {
	r := s.run
	r.running, r.closed, r.done = false, s.e.Fact.Type(), s.e.Seq
	s.mark(completed)
	f, ok := s.e.Fact.(*events.SignalCompleted)
	if !ok {
		return
	}
	for i := range s.t.open.signals {
		if x := &s.t.open.signals[i]; x.seq == f.Received {
			x.taken = true
		}
	}
}

// kept returns the seq of the oldest signal of a name that no step took; 0: there is none.
func (o *open) kept(name string) uint64 {
	for _, x := range o.signals {
		if x.name == name && !x.taken {
			return x.seq
		}
	}
	return 0
}

// awaiting returns the running step that has waited longest for a signal.
func (t *task) awaiting(name string) (step int, ok bool) {
	for i := range t.steps {
		if p := &t.plan.Steps[i]; p.StepKind != events.SignalStep || p.Signal != name || !t.open.run(i, events.Do).running {
			continue
		}
		if !ok || t.open.run(i, events.Do).began < t.open.run(step, events.Do).began {
			step, ok = i, true
		}
	}
	return step, ok
}

// leftSignal reports a step that waits for a signal which the task keeps; empty: there is none.
func (t *task) leftSignal() string {
	for _, x := range t.open.signals {
		if x.taken {
			continue
		}
		if i, ok := t.awaiting(x.name); ok {
			return fmt.Sprintf("step %q waits for the signal of event %d, which is there", t.plan.Steps[i].ID, x.seq)
		}
	}
	return ""
}

func leadSignalled(s *eventCheck, l *lead, _ *input) {
	if f, ok := s.e.Fact.(*events.TaskSignalled); ok {
		l.slot.Step, l.request, l.by, l.body = f.Name, f.ID, sumOfBy(&events.By{Who: f.By, Claimed: f.Claimed}), sumOf(f.Data)
	}
}

// checkSignal checks that the event is the signal of its input (P20).
func (x *input) checkSignal(cause events.Cause, l *lead) *Fault {
	if x.ref.Step != l.slot.Step || x.request != l.request || x.by != l.by || x.body != l.body {
		return faultf("P20", "%s is the signal %q with the id %q; it led to %s of %q with the id %q, or with other data or another sender",
			cause, x.ref.Step, x.request, l.fact, l.slot.Step, l.request)
	}
	return nil
}

// checkUnheardSignal checks a signal that was consumed, that led to no event, and that isn't a dead letter. An earlier one
// must have its name and id (P20).
func (t *task) checkUnheardSignal(x *input) *Fault {
	if slices.Contains(t.signals, sumOfSignal(x.ref.Step, x.request)) {
		return nil
	}
	return faultf("P20", "the signal %q with the id %q was consumed, and led to nothing", x.ref.Step, x.request)
}
