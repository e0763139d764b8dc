package events

import (
	"encoding/json"
	"time"
)

var _ = registerCallFacts(newFactKind(CallRepeated{}))

// CodeRepeatExhausted is the code of a step whose last allowed call completed, and whose output doesn't end the repeat.
const CodeRepeatExhausted = "repeat_exhausted"

// PlanRepeat says how a step is repeated. The condition that ends it is in the definition.
type PlanRepeat struct {
	Every time.Duration // between a call that completed and the next call
	Max   int           // calls that may complete since the submission or the last resubmit
}

func (r *PlanRepeat) fields(c *codec) {
	c.millis("every_ms", &r.Every)
	c.int("max", &r.Max)
}

// CallRepeated records that a call of a repeated step completed and doesn't complete the step. The event's due is the
// time of the next call. Without it no call follows: the step ends in error, or the task is held or being undone.
type CallRepeated struct {
	Step    string
	Attempt int
	// Instance is the instance of the agent that replied, from the ce_source of its reply; empty: unknown.
	Instance string
	Output   json.RawMessage // of the call
}

func (*CallRepeated) Type() string { return "waybill.step.repeated.v1" }

func (f *CallRepeated) About() About {
	return About{Verb: VerbRepeated, Step: f.Step, Kind: Do, Attempt: f.Attempt, Phase: PhaseReplied, Instance: f.Instance,
		Arms: TimerWaiting, Disarms: DisarmsOwn, Raw: &f.Output}
}

// apply folds the end of a call. The next call has another key and the whole budget. The effect of the step counts as
// unknown until it is completed.
func (f *CallRepeated) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		x := r.Interim()
		x.Calls++
		x.LastCall = f.Attempt
		r.setInterim(x)
		r.Generation++
		r.FailureCount, r.CooledDown, r.Error = 0, false, nil
		r.DropProgress()
		s.Output, s.Unknown = f.Output, true
	})
}

func (f *CallRepeated) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("instance", &f.Instance)
	c.raw("output", &f.Output)
}

// BetweenCalls reports whether the run waits for the next call of a repeat.
func (r *Run) BetweenCalls() bool {
	last := r.Interim().LastCall
	return r.State == StepWaiting && last > 0 && r.Attempt == last
}
