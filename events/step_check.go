package events

import (
	"encoding/json"
	"strings"
	"time"
)

// Check is the kind of runs that ask an agent what became of an operation whose effect is unknown. A step is checked
// before it is retried, given up or undone.
const Check Kind = "check"

var _ = registerCallFacts(newFactKind(AttemptStarted{Kind: Check}), newFactKind(CheckCompleted{}), newFactKind(AttemptFailed{Kind: Check}),
	newFactKind(AttemptRejected{Kind: Check}), newFactKind(AttemptExpired{Kind: Check}), newFactKind(AttemptWaiting{Kind: Check}), newFactKind(RunErrored{Kind: Check}))

// CodeBadCheck is the code of a check that was answered by something else than what became of the operation.
const CodeBadCheck = "bad_check"

// Became is what became of an operation, as a check found it.
type Became string

// The results of a check.
const (
	BecameCompleted Became = "completed" // its effect happened
	BecameNone      Became = "none"      // nothing happened, and nothing will happen under its key unless it is retried
	BecameUnknown   Became = "unknown"
)

// checkTypes are the ce_types of a check's attempts, by those of an operation's.
var checkTypes = map[string]string{}

func init() {
	for _, verb := range []Verb{VerbStarted, VerbFailed, VerbRejected, VerbExpired, VerbWaiting, VerbErrored} {
		checkTypes["waybill.step."+string(verb)+".v1"] = "waybill.check." + string(verb) + ".v1"
	}
	knownTexts[string(Check)] = string(Check)
}

func typeOfCheck(do string) string {
	if t := checkTypes[do]; t != "" {
		return t
	}
	return "waybill.check." + strings.TrimPrefix(do, "waybill.step.")
}

// CheckCompleted records that an agent answered a check. If the operation completed, the step is completed with Output.
type CheckCompleted struct {
	Step    string
	Attempt int
	// Instance is the instance of the agent that replied, from the ce_source of its reply; empty: unknown.
	Instance string
	Became   Became
	Output   json.RawMessage // of the operation, if it completed
	// Error says why the answer can't be used. Became is then BecameUnknown.
	Error *Error
}

func (*CheckCompleted) Type() string { return "waybill.check.completed.v1" }

func (f *CheckCompleted) About() About {
	a := About{Verb: VerbCompleted, Step: f.Step, Kind: Check, Attempt: f.Attempt, Phase: PhaseReplied, Instance: f.Instance,
		Disarms: DisarmsStep, Raw: &f.Output, Failure: &f.Error}
	if f.Became == BecameCompleted {
		a.As = StepCompleted
	}
	return a
}

func (f *CheckCompleted) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.EndedAt = f.Error, e.At
		s.endCheck(f.Became)
		switch f.Became {
		case BecameCompleted:
			s.Output, s.Unknown, s.CompletedSeq = f.Output, false, e.Seq
			s.Error, s.EndedAt = nil, e.At
			s.DropProgress()
		case BecameNone:
			s.Unknown = false
		case BecameUnknown: // as before the check
		}
	})
}

func (f *CheckCompleted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("instance", &f.Instance)
	knownText(c, "became", &f.Became)
	c.raw("output", &f.Output)
	c.errorField("error", &f.Error)
}

// known reports whether the kind is one of those of a run.
func (k Kind) known() bool { return k == Do || k == Undo || k == Check }

// beginCheck starts the budget of a check, unless its first attempt was made before.
func (s *Step) beginCheck() {
	if s.KindState().Checking != s.Attempt {
		s.setChecking(s.Attempt)
		s.Check.FailureCount, s.Check.CooledDown, s.Check.StartedAt = 0, false, time.Time{}
	}
}

// setChecking sets the attempt that the last check is about; 0: a check that begins has the whole budget.
func (s *Step) setChecking(attempt int) {
	x := s.KindState()
	x.Checking = attempt
	s.setKindState(x)
}

// endCheck records the result of a check about the step's last attempt.
func (s *Step) endCheck(became Became) {
	x := s.KindState()
	x.Checked, x.Became = s.Attempt, became
	s.setKindState(x)
}

// IsChecking reports whether a check of the step is under way: its attempt runs, or its next one is due later.
func (s *Step) IsChecking() bool {
	return s.Check != nil && (s.Check.State == StepRunning || s.Check.Timer.Armed())
}

// NeedsCheck reports whether a step must be checked before it is retried, given up or undone. Nothing is asked once its undo
// has begun, also if it failed before its first attempt: a migration can add a check then.
func (t *Task) NeedsCheck(i int) bool {
	s := t.Steps[i]
	return s.Undo == nil && t.Plan.Steps[i].Check != nil && s.Unknown && s.CompletedSeq == 0 && s.KindState().Checked != s.Attempt
}

// checkPrefix begins the verbs of a check in the table of steps.
const checkPrefix = "check."

// CheckTransitions is the table of a step's check. From "" is a check that hasn't begun.
var CheckTransitions = []Transition[StepState]{
	{Verb: "started", From: []StepState{"", StepCompleted, StepError, StepCancelled, StepFailed, StepWaiting}, To: StepRunning},
	{Verb: "completed", From: []StepState{StepRunning}, To: StepCompleted},
	{Verb: "failed", From: []StepState{"", StepCompleted, StepError, StepCancelled, StepWaiting, StepFailed, StepRunning}, To: StepFailed},
	{Verb: "expired", From: []StepState{StepRunning}, To: StepFailed},
	{Verb: "waiting", From: []StepState{StepFailed}, To: StepWaiting},
	{Verb: "rejected", From: []StepState{StepRunning}, To: StepError},
	{Verb: "errored", From: []StepState{"", StepCompleted, StepError, StepCancelled, StepRunning, StepFailed, StepWaiting}, To: StepError},
	{Verb: "ended", From: []StepState{StepFailed, StepWaiting}, To: StepCancelled},
}

// nextOfCheck returns the states after a fact about a check. While the task is processed, a step that is checked is
// failed, unless it is in error: then it is being caught. Otherwise the check leaves the state of the step as it is. If
// the operation completed, so has the step.
func (s stepStates) nextOfCheck(a *About, r *Transition[StepState], task TaskState) stepStates {
	switch {
	case a.As == StepCompleted:
		s.step = StepCompleted
	case task == StateProcessing && s.step != StepError:
		s.step = StepFailed
	}
	return s
}

// CheckOf describes the operation that a check asks about, in the check's request.
type CheckOf struct {
	IdempotencyKey string
	Input          json.RawMessage
}

func (u *CheckOf) fields(c *codec) {
	c.str("idempotency_key", &u.IdempotencyKey)
	c.raw("input", &u.Input)
}

// CheckValue returns the value of a check's request.
func CheckValue(u CheckOf) json.RawMessage {
	return append(appendObject([]byte(`{"check_of":`), &u), '}')
}

// checkAnswer is the value of a reply that completes a check.
type checkAnswer struct {
	outcome Became
	output  json.RawMessage
}

func (a *checkAnswer) fields(c *codec) {
	knownText(c, "outcome", &a.outcome)
	c.raw("output", &a.output)
}

// CheckAnswer returns the value of a reply that completes a check.
func CheckAnswer(became Became, output json.RawMessage) json.RawMessage {
	return encodeObject(&checkAnswer{became, output})
}

// Became reads the answer to a check. If it can't be used, err says why, and the result is unknown.
func (r *Reply) Became() (became Became, output json.RawMessage, err *Error) {
	var a checkAnswer
	if why := decodeUntrusted(r.Body, &a, -checkLevels); why != nil {
		return BecameUnknown, nil, &Error{Code: CodeBadCheck, Message: "the answer to a check is an object with outcome: " + why.Error()}
	}
	switch a.outcome {
	case BecameCompleted:
		if len(a.output) == 0 {
			a.output = json.RawMessage("null")
		}
		return a.outcome, a.output, nil
	case BecameNone, BecameUnknown:
		return a.outcome, nil, nil
	}
	return BecameUnknown, nil, &Error{Code: CodeBadCheck, Message: "the outcome of a check is completed, none or unknown"}
}
