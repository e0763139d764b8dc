package replay

import (
	"encoding/json"
	"math"
	"time"

	"github.com/waybill-run/waybill/events"
)

// answer is an agent's answer to an attempt in a sandbox.
type answer struct {
	outcome events.Outcome // empty: no answer, the attempt expires
	effect  events.Effect
	later   time.Duration // the wait that the agent asked for after its failure
	body    json.RawMessage
	from    string        // the instance that replied
	after   time.Duration // delay since the attempt's start
	written time.Duration // upper bound of the delay until it was written; it is accepted if the attempt had this time
	assumed bool          // the attempt has no recorded answer
	seq     uint64        // of the event that records it; 0: none
}

// Assume is what a fork assumes about attempts without a recorded answer.
type Assume string

// The assumptions.
const (
	AssumeCompleted Assume = "completed" // with the step's recorded output, else null
	AssumeFailed    Assume = "failed"    // without an effect
	AssumeRejected  Assume = "rejected"
	AssumeSilent    Assume = "silent" // no answer until the attempt's deadline
)

// Assumes lists all assumptions.
var Assumes = []Assume{AssumeCompleted, AssumeFailed, AssumeRejected, AssumeSilent}

// recording holds the agents' answers in the recorded history of a task.
type recording struct {
	answers map[events.RequestRef]answer
	outputs map[string]json.RawMessage     // of steps that completed
	reports map[events.RequestRef][]answer // the progress of each attempt
	started map[events.RequestRef]begun
	asked   map[events.RequestRef]asked
	// unsent are the attempts whose request could not be sent, with the agent that had no request topic.
	unsent map[events.RequestRef]string
	plan   *events.Plan
	course recordedTiming
	items  itemsRecording
	// signals are the signals that the task received, in the order of the log.
	signals []sentSignal
}

// sentSignal is a recorded signal, with the moment at which it came.
type sentSignal struct {
	moment
	signal *events.Signal
}

// asked is the agent and the operation of an attempt.
type asked struct{ agent, operation string }

func newRecording() *recording {
	return &recording{answers: map[events.RequestRef]answer{}, outputs: map[string]json.RawMessage{}, reports: map[events.RequestRef][]answer{}, started: map[events.RequestRef]begun{},
		asked: map[events.RequestRef]asked{}, unsent: map[events.RequestRef]string{}, items: newItemsRecording(), course: recordedTiming{fired: map[armedTimer]moment{}, waiting: map[events.Slot]bool{}}}
}

// addEvent records an event. An operator's release says nothing about an agent.
func (r *recording) addEvent(e *events.Event, of *events.Record) {
	r.course.add(e, of)
	if f, ok := e.Fact.(*events.TaskReceived); ok {
		r.plan = f.Plan
	}
	if f, ok := e.Fact.(*events.TaskSignalled); ok {
		r.signals = append(r.signals, sentSignal{moment{e.At, e.Seq, recorded}, &events.Signal{Task: e.Task, Name: f.Name, ID: f.ID, By: f.By, Claimed: f.Claimed, Data: f.Data}})
	}
	if r.items.add(e) {
		return
	}
	a := e.Fact.About()
	ref := a.Ref()
	if isOfChild(&a) {
		r.recordChild(e, &a)
		return
	}
	switch a.Phase {
	case events.PhaseStarted:
		r.started[ref] = begun{e.At, e.Due}
		if f, ok := e.Fact.(*events.AttemptStarted); ok {
			r.asked[ref], r.started[ref] = asked{f.Agent, f.Operation}, begun{e.At, f.EndsBy(e)}
		}
	case events.PhaseReplied:
		r.recordReply(e, &a)
	case events.PhaseGoesOn:
		r.recordReport(e, &a)
	case events.PhaseExpired:
		r.recordAnswer(e, ref, answer{})
	case events.PhaseNone, events.PhaseWaiting, events.PhaseBegan, events.PhaseFired, events.PhaseTaken: // say nothing about an agent
	}
}

// recordReply records an agent's reply, or an attempt that failed before its request was sent.
func (r *recording) recordReply(e *events.Event, a *events.About) {
	ref := a.Ref()
	says := answer{outcome: outcomeOf(a.Verb), from: a.Instance}
	switch {
	case a.Failure != nil:
		says.body = errorBody(a.Error())
	case a.Raw != nil:
		says.body = *a.Raw
	}
	if f, ok := e.Fact.(*events.AttemptFailed); ok {
		if _, sent := r.started[ref]; !sent {
			r.unsent[ref] = r.agentOf(ref)
			return
		}
		says.effect, says.later = f.Effect, f.RetryAfter
	}
	if f, ok := e.Fact.(*events.CheckCompleted); ok {
		says.body = events.CheckAnswer(f.Became, f.Output)
	}
	if a.Verb == events.VerbCompleted && a.Kind == events.Do {
		r.outputs[a.Step] = says.body
	}
	r.recordAnswer(e, ref, says)
}

// outcomeOf returns the outcome of the reply that led to a fact with this verb.
func outcomeOf(v events.Verb) events.Outcome {
	if v == events.VerbRepeated {
		return events.Completed
	}
	return events.Outcome(v)
}

// agentOf returns the agent of an attempt; empty: the plan has no such run.
func (r *recording) agentOf(ref events.RequestRef) string {
	if r.plan == nil {
		return ""
	}
	i, ok := r.plan.Step(ref.Step)
	if !ok || !r.plan.Has(i, ref.Kind) {
		return ""
	}
	name, _ := r.plan.Agent(i, ref.Kind)
	return name
}

// removeUnlisted removes agents that had no request topic when an attempt was to start, according to the log. any
// reports whether there are such agents. The decision is then made without them.
func (r *recording) removeUnlisted(made []*events.Event, agents map[string]int32) (any bool) {
	for _, e := range made {
		f, ok := e.Fact.(*events.AttemptStarted)
		if !ok {
			continue
		}
		if name, unsent := r.unsent[events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}]; unsent && name == f.Agent {
			delete(agents, name)
			any = true
		}
	}
	return any
}

// recordAnswer records an answer, or the silence until the attempt's deadline. An accepted answer was written
// before the deadline, however late the scheduler read it.
func (r *recording) recordAnswer(e *events.Event, ref events.RequestRef, a answer) {
	if a.body == nil {
		a.body = json.RawMessage("null")
	}
	began, written := r.started[ref], e.At
	if !began.due.IsZero() && began.due.Before(written) {
		written = began.due
	}
	a.after, a.written, a.seq = max(0, e.At.Sub(began.at)), max(0, written.Sub(began.at)), e.Seq
	r.answers[ref] = a
}

// answerTo returns the recorded answer to an attempt with that much time, or the assumed one. Of an attempt that
// was silent until its deadline, nothing later is recorded.
func (r *recording) answerTo(ref events.RequestRef, within time.Duration, assume Assume) answer {
	a, recorded := r.answers[ref]
	if recorded && (a.outcome != "" || within <= a.written) {
		return a
	}
	return r.assumedAnswer(ref, max(a.written, r.lastReport(ref)), assume)
}

// assumedAnswer returns the assumed answer to an attempt, some time after its start.
func (r *recording) assumedAnswer(ref events.RequestRef, after time.Duration, assume Assume) answer {
	a := answer{assumed: true, seq: math.MaxUint64, after: after, written: after, body: json.RawMessage("null")}
	switch assume {
	case AssumeCompleted:
		a.outcome = events.Completed
		if out := r.outputs[ref.Step]; out != nil && ref.Kind == events.Do {
			a.body = out
		}
		if ref.Kind == events.Check {
			a.body = events.CheckAnswer(events.BecameUnknown, nil)
		}
	case AssumeFailed:
		a.outcome, a.effect, a.body = events.Failed, events.EffectNone, errorBody(assumedError)
	case AssumeRejected:
		a.outcome, a.body = events.Rejected, errorBody(assumedError)
	case AssumeSilent: // no outcome
	}
	return a
}

var assumedError = &events.Error{Code: "assumed", Message: "nothing is recorded of this attempt"}

func errorBody(e *events.Error) json.RawMessage {
	if e == nil {
		return json.RawMessage("null")
	}
	return encode(e)
}
