package replay

import (
	"math"
	"time"

	"github.com/waybill-run/waybill/events"
)

// waitingChild explains a step that waits for the end of its child, or a withdrawal that waits for the end of the child's
// undo.
func (s *StepWhy) waitingChild(t *events.Task, run *events.Run, _ map[string]AgentState, _ time.Time) {
	i, _ := t.Plan.Step(s.Step)
	s.Child = t.Steps[i].KindState().Child
	s.Reason, s.Moves = ReasonWaitingChild, "the end of task "+s.Child
	if s.Kind == events.Undo {
		s.Moves = "the end of the undo of task " + s.Child
	}
	if err := run.Interim().ChildError; err != nil {
		s.Reason, s.err = ReasonChildHeld, err
		s.Moves = "an operator, since task " + s.Child + " is held: see waybill task why " + s.Child
	}
}

// A fork runs no children. Their recorded ends are the replies, as those of agents are.

// isOfChild reports whether a fact is about a run of a child or of its withdrawal.
func isOfChild(a *events.About) bool {
	return a.OfStep() && a.StepKind == events.WorkflowStep && !a.AnyKind
}

// isReport reports whether an attempt goes on after a reply with this outcome.
func isReport(o events.Outcome) bool {
	return o == events.Progress || o == events.Held || o == events.Resumed
}

// recordChild records what the log says of a child.
func (r *recording) recordChild(e *events.Event, a *events.About) {
	switch ref := a.Ref(); {
	case a.Phase == events.PhaseBegan:
		r.started[ref] = begun{at: e.At}
	case a.Phase == events.PhaseTaken:
		r.recordReply(e, a)
	default:
		says := answer{outcome: events.Resumed, body: []byte("null"), seq: e.Seq, after: max(0, e.At.Sub(r.started[ref].at))}
		if err := a.Error(); err != nil {
			says.outcome, says.body = events.Held, errorBody(err)
		}
		r.reports[ref] = append(r.reports[ref], says)
	}
}

// scheduleChild schedules the recorded end of a child, or the assumed one. A child that fails has no result.
func (s *sandbox) scheduleChild(ref events.RequestRef, since time.Time) {
	a := s.past.answerTo(ref, math.MaxInt64, s.fork.Assume)
	if a.outcome == events.Failed {
		a.outcome = events.Rejected
	}
	if a.assumed && ref.Kind == events.Undo {
		a.outcome, a.body = events.Completed, []byte("null")
	}
	s.scheduleAnswer(ref, since, a)
	s.scheduleReports(ref, since)
}

// withoutToken returns an event about a child without the hash of the sandbox's token, which is meaningless outside.
func withoutToken(e *events.Event) *events.Event {
	told := *e
	if f, is := e.Fact.(*events.ChildStarted); is {
		fact := *f
		fact.TokenHash, told.Fact = "", &fact
	}
	if f, is := e.Fact.(*events.WithdrawalStarted); is {
		fact := *f
		fact.TokenHash, told.Fact = "", &fact
	}
	if f, is := e.Fact.(*events.ItemsBegan); is {
		fact := *f
		fact.Token, told.Fact = "", &fact
	}
	if f, is := e.Fact.(*events.ItemsUndoStarted); is {
		fact := *f
		fact.Token, told.Fact = "", &fact
	}
	return &told
}
