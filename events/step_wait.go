package events

import (
	"errors"
	"time"
)

// WaitStep is the kind of steps that wait for an instant. Nothing happens outside, so there is nothing to undo.
const WaitStep StepKind = "wait"

var _ = registerStepKind(WaitStep, newFactKind(WaitStarted{}), newFactKind(WaitCompleted{}))

// CodeWaitTooLong is the code of a wait that wouldn't end before the task's complete-by.
const CodeWaitTooLong = "wait_too_long"

// WaitStarted records that a step waits. The event's due is the end of the wait: Wait from now, or Until, but not before
// now.
type WaitStarted struct {
	Step    string
	Attempt int
	Wait    time.Duration // 0 if Until is set
	Until   time.Time     // zero if Wait counts
}

func (*WaitStarted) Type() string { return "waybill.wait.started.v1" }

func (f *WaitStarted) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: Do, StepKind: WaitStep, Attempt: f.Attempt, Phase: PhaseBegan,
		Arms: TimerStep, Disarms: DisarmsOwn}
}

func (f *WaitStarted) apply(t *Task, e *Event) error {
	if e.Due.IsZero() {
		return errors.New("a wait without an end")
	}
	return t.onRun(e, f.About(), func(_ *Step, r *Run) { r.CompleteBy = e.Due })
}

func (f *WaitStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.millis("wait_ms", &f.Wait)
	c.time("until", &f.Until)
}

// End returns the end of a wait that starts at now.
func (f *WaitStarted) End(now time.Time) time.Time {
	end := f.Until
	if end.IsZero() {
		end = now.Add(f.Wait)
	}
	if end.Before(now) {
		return now
	}
	return end
}

// WaitCompleted records that a wait ended at its time. It has no output.
type WaitCompleted struct {
	Step    string
	Attempt int
}

func (*WaitCompleted) Type() string { return "waybill.wait.completed.v1" }

func (f *WaitCompleted) About() About {
	return About{Verb: VerbCompleted, Step: f.Step, Kind: Do, StepKind: WaitStep, Attempt: f.Attempt, Phase: PhaseFired, Disarms: DisarmsOwn}
}

func (f *WaitCompleted) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) { r.EndedAt, s.CompletedSeq = e.At, e.Seq })
}

func (f *WaitCompleted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
}
