package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// SignalStep is the kind of steps that wait for a signal. Nothing happens outside, so there is nothing to undo.
const SignalStep StepKind = "signal"

var _ = registerStepKind(SignalStep, newFactKind(TaskSignalled{}), newFactKind(SignalStarted{}), newFactKind(SignalCompleted{}))

// MaxKeptSignals bounds the signals that a task keeps until a step takes them.
const MaxKeptSignals = 64

// KeptSignal is a signal that a task has received, and that no step has taken yet.
type KeptSignal struct {
	Seq    uint64 // of the event that recorded it
	At     time.Time
	Name   string
	ID     string
	Data   json.RawMessage
	Sender string
}

// TaskSignalled records that a task received a signal. A step takes it at once, or it is kept until one does.
type TaskSignalled struct {
	Name    string
	ID      string
	By      string
	Claimed string
	Data    json.RawMessage
}

func (*TaskSignalled) Type() string { return "waybill.task.signalled.v1" }

func (f *TaskSignalled) About() About {
	return About{Verb: VerbSignalled, Raw: &f.Data}
}

func (f *TaskSignalled) apply(t *Task, e *Event) error {
	switch {
	case !t.TakesSignals():
		return errors.New("its steps take no signals any more")
	case len(t.Signals) >= MaxKeptSignals:
		return fmt.Errorf("it keeps %d signals already", len(t.Signals))
	case t.HasSignal(f.Name, f.ID):
		return fmt.Errorf("it has the signal %q with the id %q already", f.Name, f.ID)
	}
	t.Signals = append(t.Signals, KeptSignal{Seq: e.Seq, At: e.At, Name: f.Name, ID: f.ID, Data: f.Data, Sender: senderOf(f.By, f.Claimed)})
	return nil
}

func (f *TaskSignalled) fields(c *codec) {
	c.str("name", &f.Name)
	c.str("id", &f.ID)
	c.str("by", &f.By)
	c.str("by_claimed", &f.Claimed)
	c.raw("data", &f.Data)
}

func senderOf(by, claimed string) string {
	if by != "" {
		return by
	}
	return claimed
}

// SignalStarted records that a step waits for a signal. The event's due is the end of its time.
type SignalStarted struct {
	Step    string
	Attempt int
	Signal  string
}

func (*SignalStarted) Type() string { return "waybill.signal.started.v1" }

func (f *SignalStarted) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: Do, StepKind: SignalStep, Attempt: f.Attempt, Phase: PhaseBegan,
		Arms: TimerStep, Disarms: DisarmsOwn}
}

func (f *SignalStarted) apply(t *Task, e *Event) error {
	if e.Due.IsZero() {
		return errors.New("a step that waits for a signal without an end")
	}
	return t.onRun(e, f.About(), func(_ *Step, r *Run) { r.CompleteBy = e.Due })
}

func (f *SignalStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("signal", &f.Signal)
}

// SignalCompleted records that a step took a signal. Its output is made of the signal: see KeptSignal.Output.
type SignalCompleted struct {
	Step     string
	Attempt  int
	Received uint64 // the seq of the event that recorded the signal
}

func (*SignalCompleted) Type() string { return "waybill.signal.completed.v1" }

func (f *SignalCompleted) About() About {
	return About{Verb: VerbCompleted, Step: f.Step, Kind: Do, StepKind: SignalStep, Attempt: f.Attempt, Phase: PhaseTaken, Disarms: DisarmsOwn}
}

func (f *SignalCompleted) apply(t *Task, e *Event) error {
	at := slices.IndexFunc(t.Signals, func(k KeptSignal) bool { return k.Seq == f.Received })
	if at < 0 {
		return fmt.Errorf("it keeps no signal of event %d", f.Received)
	}
	k := t.Signals[at]
	if i, ok := t.Plan.Step(f.Step); !ok || t.Plan.Steps[i].Signal != k.Name {
		return fmt.Errorf("step %q takes no signal %q", f.Step, k.Name)
	}
	err := t.onRun(e, f.About(), func(s *Step, r *Run) {
		s.Output, s.CompletedSeq = k.Output(), e.Seq
		x := s.KindState()
		x.SignalID = k.ID
		s.setKindState(x)
		r.EndedAt = e.At
	})
	if err == nil {
		t.Signals = slices.Delete(t.Signals, at, at+1)
	}
	return err
}

func (f *SignalCompleted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.seq("received", &f.Received)
}

// Output returns the output of a step that takes the signal: {"data", "by", "at", "id"}. data and by are null if there
// are none.
func (k *KeptSignal) Output() json.RawMessage {
	b := append([]byte(`{"data":`), orNull(jsonscan.TrimSpace(k.Data))...)
	b = append(b, `,"by":`...)
	if k.Sender == "" {
		b = append(b, "null"...)
	} else {
		b = jsonscan.AppendString(b, k.Sender)
	}
	b = jsonscan.AppendString(append(b, `,"at":`...), k.At.UTC().Format(TimeLayout))
	return append(jsonscan.AppendString(append(b, `,"id":`...), k.ID), '}')
}

func (k *KeptSignal) fields(c *codec) {
	c.seq("seq", &k.Seq)
	c.time("at", &k.At)
	c.str("name", &k.Name)
	c.str("id", &k.ID)
	c.str("by", &k.Sender)
	c.raw("data", &k.Data)
}

func (k *KeptSignal) bytes() int { return len(k.Name) + len(k.ID) + len(k.Data) + len(k.Sender) }

// TakesSignals reports whether steps of the task may still take signals. They don't once its undo has begun.
func (t *Task) TakesSignals() bool { return takesSignals(t.State, t.Ending) }

func takesSignals(s TaskState, ending TaskState) bool {
	return s == StatePending || s == StateProcessing || s == StateError && ending == ""
}

// HasSignal reports whether the task has received a signal with this name and id: it is kept, or a step took it.
func (t *Task) HasSignal(name, id string) bool {
	if slices.ContainsFunc(t.Signals, func(k KeptSignal) bool { return k.Name == name && k.ID == id }) {
		return true
	}
	for i, s := range t.Steps {
		if taken := s.KindState().SignalID; t.Plan.Steps[i].Signal == name && taken != "" && taken == id {
			return true
		}
	}
	return false
}

// AwaitsSignal reports whether a step of the task waits for the signal, or may do so later.
func (t *Task) AwaitsSignal(name string) bool {
	for i, s := range t.Steps {
		if t.Plan.Steps[i].StepKind == SignalStep && t.Plan.Steps[i].Signal == name && s.State != StepCompleted && s.State != StepSkipped && s.State != StepCaught {
			return true
		}
	}
	return false
}

// WaitingSignals returns the names of the signals that running steps wait for, in the order of the plan, each once.
func (t *Task) WaitingSignals() []string {
	var names []string
	if t.Plan == nil {
		return nil
	}
	for i, s := range t.Steps {
		if p := &t.Plan.Steps[i]; p.StepKind == SignalStep && s.State == StepRunning && !slices.Contains(names, p.Signal) {
			names = append(names, p.Signal)
		}
	}
	return names
}
