package events

import (
	"encoding/json"
	"errors"
	"time"
)

// RunSkipped records that the step's when was false.
type RunSkipped struct {
	Step string
}

func (*RunSkipped) Type() string { return "waybill.step.skipped.v1" }

func (f *RunSkipped) About() About {
	return About{Verb: VerbSkipped, Step: f.Step, Kind: Do, AnyKind: true, Disarms: DisarmsOwn}
}

func (f *RunSkipped) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) { r.EndedAt = e.At })
}

func (f *RunSkipped) fields(c *codec) { c.interned("step", &f.Step) }

// RunReleased records that an operator set the result of a step by hand.
type RunReleased struct {
	By
	Step   string
	As     StepState // completed or undone
	Output json.RawMessage
}

func (*RunReleased) Type() string { return "waybill.step.released.v1" }

func (f *RunReleased) About() About {
	return About{Verb: VerbReleased, Step: f.Step, Kind: Do, AnyKind: true, As: f.As, Disarms: DisarmsStep, Raw: &f.Output, By: &f.By}
}

func (f *RunReleased) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		unknown := s.Unknown
		s.Unknown, s.Timer = false, Timer{}
		r.Error, r.EndedAt = nil, e.At
		r.DropProgress()
		if u := s.Undo; u != nil {
			u.Error, u.EndedAt, u.Timer = nil, e.At, Timer{}
			u.DropProgress()
		}
		if s.Check != nil {
			s.Check.Timer = Timer{}
		}
		if f.As == StepCompleted {
			s.Output, s.CompletedSeq = f.Output, e.Seq
		}
		if f.As == StepCompleted && !unknown { // its child, if any, was refused or has undone itself: there is nothing to withdraw
			k := s.KindState()
			k.Child = ""
			s.setKindState(k)
		}
	})
}

func (f *RunReleased) fields(c *codec) {
	c.interned("step", &f.Step)
	knownText(c, "as", &f.As)
	c.raw("output", &f.Output)
	f.By.fields(c)
}

// disarmsOf returns the timers that a fact about an attempt disarms. A check ends the wait of the step that it is about.
func disarmsOf(k Kind) Disarms {
	if k == Check {
		return DisarmsStep
	}
	return DisarmsOwn
}

// attemptType returns the ce_type of an event about an attempt: do for a step's operation, undo for its undo.
func attemptType(k Kind, do, undo string) string {
	switch k {
	case Undo:
		return undo
	case Check:
		return typeOfCheck(do)
	case Do:
	}
	return do
}

// AttemptStarted records that a request was sent, in the same transaction. The event's due is the attempt's
// complete-by, or earlier if the run has a heartbeat. Only the first attempt has the input.
type AttemptStarted struct {
	Kind      Kind
	Step      string
	Attempt   int
	Agent     string
	Operation string
	Key       string // idempotency key
	// TokenHash is the hash of the attempt's token (see the function TokenHash). The token itself is only in the
	// request.
	TokenHash string
	Input     json.RawMessage
	// TaskInput is true if the input is the task's. Input is then empty.
	TaskInput bool
	// CompleteBy is the attempt's complete-by if the run has a heartbeat; zero: it is the event's due.
	CompleteBy time.Time
}

func (f *AttemptStarted) Type() string {
	return attemptType(f.Kind, "waybill.step.started.v1", "waybill.undo.started.v1")
}

func (f *AttemptStarted) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseStarted, Agent: f.Agent,
		Arms: TimerAttempt, Disarms: disarmsOf(f.Kind), Raw: &f.Input}
}

func (f *AttemptStarted) apply(t *Task, e *Event) error {
	if f.TaskInput && len(f.Input) > 0 {
		return errors.New("it has an input, and says that its input is the task's")
	}
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Key, r.CompleteBy, r.TokenHash = f.Key, f.EndsBy(e), f.TokenHash
		switch {
		case f.TaskInput:
			r.Input, r.TaskInput = t.Input, true
		case len(f.Input) > 0:
			r.Input, r.TaskInput = f.Input, false
		}
	})
}

// EndsBy returns the attempt's complete-by. e is the event of the fact.
func (f *AttemptStarted) EndsBy(e *Event) time.Time {
	if f.CompleteBy.IsZero() {
		return e.Due
	}
	return f.CompleteBy
}

func (f *AttemptStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("agent", &f.Agent)
	c.interned("operation", &f.Operation)
	c.str("idempotency_key", &f.Key)
	c.str("token_hash", &f.TokenHash)
	c.raw("input", &f.Input)
	c.bool("task_input", &f.TaskInput)
	c.time("complete_by", &f.CompleteBy)
}

// AttemptCompleted records that the agent completed the operation.
type AttemptCompleted struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is the instance of the agent that replied, from the ce_source of its reply; empty: unknown.
	Instance string
	Output   json.RawMessage
}

func (f *AttemptCompleted) Type() string {
	return attemptType(f.Kind, "waybill.step.completed.v1", "waybill.undo.completed.v1")
}

func (f *AttemptCompleted) About() About {
	return About{Verb: VerbCompleted, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseReplied, Instance: f.Instance,
		Disarms: disarmsOf(f.Kind), Raw: &f.Output}
}

func (f *AttemptCompleted) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.EndedAt = nil, e.At
		r.DropProgress()
		if f.Kind == Do {
			s.Output, s.Unknown, s.CompletedSeq = f.Output, false, e.Seq
		}
	})
}

func (f *AttemptCompleted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("instance", &f.Instance)
	c.raw("output", &f.Output)
}

// Effect says whether a failed call may have had an effect, as the agent reported it.
type Effect string

// The effects of a failure.
const (
	EffectNone    Effect = "none"
	EffectUnknown Effect = "unknown"
)

// AttemptFailed records a failure that may be retried. The event's due, if set, is now or RetryAfter from now. When it
// is due, the supervisor asks for the recovery.
type AttemptFailed struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is the instance of the agent that replied, from the ce_source of its reply; empty: unknown.
	Instance string
	Effect   Effect
	Error    *Error
	// RetryAfter is how long the agent asked to wait. It delays the event's due. 0: the agent didn't ask.
	RetryAfter time.Duration
	// Deferred is true if the agent did nothing and asked to be called later (Run.Defers). Such an attempt doesn't
	// count as a failure.
	Deferred bool
}

func (f *AttemptFailed) Type() string {
	return attemptType(f.Kind, "waybill.step.failed.v1", "waybill.undo.failed.v1")
}

func (f *AttemptFailed) About() About {
	return About{Verb: VerbFailed, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseReplied, Instance: f.Instance, Counts: !f.Deferred,
		Arms: TimerFailed, Disarms: disarmsOf(f.Kind), Failure: &f.Error}
}

// apply folds the failure. An attempt that failed before a request was sent (no such agent) has a number of its own.
func (f *AttemptFailed) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		if f.Attempt != r.Attempt { // no request was sent
			r.TokenHash = ""
		}
		if f.Deferred {
			r.CooledDown = false // the attempt past max_attempts was deferred, so it can be granted again
		}
		r.Attempt, r.Error = f.Attempt, f.Error
		s.Unknown = s.Unknown || f.Kind == Do && f.Effect != EffectNone
	})
}

func (f *AttemptFailed) fields(c *codec) {
	c.interned("step", &f.Step)
	c.bool("deferred", &f.Deferred)
	c.int("attempt", &f.Attempt)
	c.interned("instance", &f.Instance)
	c.millis("retry_after_ms", &f.RetryAfter)
	knownText(c, "effect", &f.Effect)
	c.errorField("error", &f.Error)
}

// AttemptRejected records that the agent rejected the request. It isn't retried.
type AttemptRejected struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is the instance of the agent that replied, from the ce_source of its reply; empty: unknown.
	Instance string
	Error    *Error
}

func (f *AttemptRejected) Type() string {
	return attemptType(f.Kind, "waybill.step.rejected.v1", "waybill.undo.rejected.v1")
}

func (f *AttemptRejected) About() About {
	return About{Verb: VerbRejected, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseReplied, Instance: f.Instance,
		Disarms: disarmsOf(f.Kind), Failure: &f.Error}
}

func (f *AttemptRejected) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.Rejected, r.EndedAt = f.Error, f.Kind != Check, e.At
		if f.Kind == Check {
			s.endCheck(BecameUnknown)
		}
	})
}

func (f *AttemptRejected) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("instance", &f.Instance)
	c.errorField("error", &f.Error)
}

// AttemptExpired records that complete-by passed without a reply, or a heartbeat without progress. The effect is
// unknown.
type AttemptExpired struct {
	Kind    Kind
	Step    string
	Attempt int
	// Silence is the heartbeat that passed without progress; 0: complete-by passed.
	Silence time.Duration
}

func (f *AttemptExpired) Type() string {
	return attemptType(f.Kind, "waybill.step.expired.v1", "waybill.undo.expired.v1")
}

func (f *AttemptExpired) About() About {
	return About{Verb: VerbExpired, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseExpired, Counts: true, Disarms: disarmsOf(f.Kind)}
}

func (f *AttemptExpired) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		if r.Error = (&Error{Code: CodeExpired}); f.Silence > 0 {
			r.Error = silenceError(f.Silence)
		}
		s.Unknown = s.Unknown || f.Kind == Do
	})
}

func (f *AttemptExpired) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.millis("silence_ms", &f.Silence)
}

// AttemptWaiting records that another attempt follows at due, after a backoff or the cool-down.
type AttemptWaiting struct {
	Kind     Kind
	Step     string
	Attempt  int // the last attempt
	CoolDown bool
}

func (f *AttemptWaiting) Type() string {
	return attemptType(f.Kind, "waybill.step.waiting.v1", "waybill.undo.waiting.v1")
}

func (f *AttemptWaiting) About() About {
	return About{Verb: VerbWaiting, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseWaiting, Arms: TimerWaiting, Disarms: disarmsOf(f.Kind)}
}

func (f *AttemptWaiting) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) { r.CooledDown = r.CooledDown || f.CoolDown })
}

func (f *AttemptWaiting) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.bool("cool_down", &f.CoolDown)
}

// RunErrored records that no further attempt is made: the tries are exhausted, an expression failed, or a record would
// be too large.
type RunErrored struct {
	Kind  Kind
	Step  string
	Error *Error
}

func (f *RunErrored) Type() string {
	return attemptType(f.Kind, "waybill.step.errored.v1", "waybill.undo.errored.v1")
}

func (f *RunErrored) About() About {
	return About{Verb: VerbErrored, Step: f.Step, Kind: f.Kind, AnyKind: true, Disarms: disarmsOf(f.Kind), Failure: &f.Error}
}

func (f *RunErrored) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.EndedAt = f.Error, e.At
		if f.Kind == Check {
			s.endCheck(BecameUnknown)
		}
	})
}

func (f *RunErrored) fields(c *codec) {
	c.interned("step", &f.Step)
	c.errorField("error", &f.Error)
}
