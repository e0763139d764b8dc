package events

import "time"

// StepChange is what an event changed of a step, for those who count. The zero value: the event is about no step, or
// can't be folded.
type StepChange struct {
	Step string
	Kind Kind // of the run that the event is about
	// Began is true if an attempt began: a request was sent, or a step that calls no agent began to wait.
	Began bool
	// Failed is true if the attempt counts as a failure: it failed or expired.
	Failed bool
	// Repeated is true if a call of a repeat completed that doesn't complete the step. Released is true if an operator
	// recorded the result of the step by hand.
	Repeated, Released bool
	// Do, Undo and Check are the states that the step, its undo and its check have entered; empty: the same as before.
	Do, Undo, Check StepState
	// Took is how long the step, or its undo, took if an attempt or a check has completed it: from the start of its first
	// attempt since the submission, or since the resubmit that continued it. Done is true if it is known.
	Took time.Duration
	Done bool
	// Agent is the agent whose request has ended: it replied, or the attempt expired; empty: none has. Replied is true if
	// it replied. Answered is then the time from the request's event to the reply's.
	Agent    string
	Replied  bool
	Answered time.Duration
}

// describe describes an event about a step. was are the states of the step before it.
func (p *StepSummary) describe(c *StepChange, a *About, was stepStates) {
	c.Step, c.Kind = p.ID, a.Kind
	c.Began, c.Failed, c.Repeated, c.Released = a.Phase.Begins(), a.Counts, a.Verb == VerbRepeated, a.Verb == VerbReleased
	if p.State != was.step {
		c.Do = p.State
	}
	if p.Undo != was.undo {
		c.Undo = p.Undo
	}
	if p.Check != was.check {
		c.Check = p.Check
	}
}

// clock keeps the start of the step's run, and adds to the change how long the run took. The run of an undo has a start
// of its own. A step in error keeps its start, since a check may still complete it.
func (p *StepSummary) clock(c *StepChange, at time.Time) {
	now := int(at.UnixMilli())
	if c.Began && c.Kind != Check && p.Started == 0 {
		p.Started = now
	}
	completed := c.Kind == p.Kind && (c.Do == StepCompleted || c.Undo == StepCompleted) || c.Kind == Check && c.Do == StepCompleted && p.Kind == Do
	if completed && !c.Released && p.Started != 0 {
		c.Took, c.Done = time.Duration(now-p.Started)*time.Millisecond, true
	}
	if completed || c.Released || c.Do == StepCaught || c.Do == StepSkipped {
		p.Started = 0
	}
}

// timeRequest keeps when the request of the running attempt was sent, and adds to the change how the request ended. A
// step has at most one running attempt.
func (p *StepSummary) timeRequest(c *StepChange, a *About, at time.Time) {
	now := int(at.UnixMilli())
	switch {
	case a.Phase == PhaseStarted:
		p.Sent = now
	case p.Sent == 0:
	case a.Phase.Ends():
		c.Agent, c.Replied, c.Answered = p.Agent, a.Phase == PhaseReplied, time.Duration(now-p.Sent)*time.Millisecond
		p.Sent = 0
	case !p.hasRunning(): // given up
		p.Sent = 0
	}
}
