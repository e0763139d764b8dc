package agent

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// This file decides what follows each event of an attempt. It is pure: time is an
// argument, and a decision is a value.

// tryDurationMin is the least time before complete-by in which another call, and the reply to it,
// are worth trying.
const tryDurationMin = 20 * time.Millisecond

// action is what the caller of a decision must do next.
type action uint8

const (
	actCall    action = iota // call the handler
	actWait                  // wait until decision.until, then ask start
	actReply                 // send decision.reply; the request is finished then
	actDrop                  // send nothing, since complete-by or a silence has ended the attempt; the request is finished
	actAbandon               // send nothing; another instance gets the request
	actLeft                  // nothing: the request was abandoned
)

// decision is what follows from the state of an attempt.
type decision struct {
	action action
	until  time.Time    // of actWait
	reply  events.Reply // of actReply; of actWait, the reply if the request can't wait or can't be called afterwards
	wait   waitReason   // of actWait
}

// waitReason is what a request waits for before its next call.
type waitReason uint8

const (
	waitBackoff waitReason = iota // a call failed
	waitCircuit                   // a circuit is open
	waitPending                   // the work goes on elsewhere
	waitReasons                   // the number of reasons
)

// attempt is the state of a request between its calls.
type attempt struct {
	req           *Request
	retry         *Retry
	tries         int  // calls that have ended
	mayHaveEffect bool // a call may have had an effect
	pending       bool // the handler has said that the work goes on
	lastFailure   *Failure
}

// start decides whether the handler may be called at now.
func (a attempt) start(now time.Time) decision {
	if !now.Before(a.req.CompleteBy) {
		return decision{action: actDrop}
	}
	return decision{action: actCall}
}

// afterCall decides what follows a call that ended at now. leaving: the call was cancelled because
// the process's grace is over.
func (a attempt) afterCall(r result, now time.Time, leaving bool) (attempt, decision) {
	a.tries++
	switch {
	case !now.Before(a.req.CompleteBy):
		return a, decision{action: actDrop}
	case r.pending != nil:
		return a.afterPending(r.pending, now, leaving)
	case r.fail == nil:
		return a, a.replyWith(events.Reply{Outcome: events.Completed, Body: r.output})
	case r.fail.Rejected && !a.mayHaveEffect:
		return a, a.replyWith(events.Reply{Outcome: events.Rejected, Body: r.fail.errorObject()})
	}
	a.lastFailure = r.fail
	// A rejection says nothing about the effects of earlier calls.
	a.mayHaveEffect = a.mayHaveEffect || !r.fail.NoEffect && !r.fail.Rejected
	if r.fail.Rejected {
		return a, a.failedReply(0)
	}
	if leaving {
		return a, decision{action: actAbandon}
	}
	later := r.fail.After
	if !r.fail.Transient || a.tries >= a.retry.MaxTries {
		return a, a.failedReply(later)
	}
	return a, a.waitOrFail(max(a.backoff(), later), later, now)
}

// afterPending decides what follows a call whose work goes on. Failures before it don't count any more. A later
// rejection is an answer for the whole request, and covers the work. A failure without effect covers its own call only.
func (a attempt) afterPending(p *PendingError, now time.Time, leaving bool) (attempt, decision) {
	a.tries, a.pending = 0, true
	a.lastFailure = &Failure{Code: CodePending, Message: "the work was in progress, and no handler was free to check whether it has ended"}
	if leaving {
		return a, decision{action: actAbandon}
	}
	next := a.failedReply(0)
	next.action, next.until, next.wait = actWait, now.Add(p.After), waitPending
	if next.until.After(a.req.CompleteBy) {
		next.until = a.req.CompleteBy
	}
	return a, next
}

// circuitOpen decides what follows if the downstream's circuit refuses calls at now, and for openFor
// from now.
func (a attempt) circuitOpen(openFor time.Duration, downstream string, now time.Time) (attempt, decision) {
	if !now.Before(a.req.CompleteBy) {
		return a, decision{action: actDrop}
	}
	later := openFor
	if a.lastFailure == nil {
		a.lastFailure = &Failure{Code: CodeCircuitOpen, NoEffect: true,
			Message: "not called: the circuit of " + downstream + " is open after too many failures"}
	} else if a.tries > 0 && !a.mayHaveEffect {
		later = 0 // it was called, so the attempt must count: see events.Run.Defers
	}
	next := a.waitOrFail(openFor, later, now)
	if next.wait = waitCircuit; a.pending {
		next.wait = waitPending // it isn't refused for lack of room: its work goes on
	}
	return a, next
}

// waitOrFail waits for d. If no call would fit in afterwards it fails at once, so that the next attempt
// can be scheduled; the reply asks for it after later.
func (a attempt) waitOrFail(d, later time.Duration, now time.Time) decision {
	next := a.failedReply(later)
	if left := a.req.CompleteBy.Sub(now); d <= left-tryDurationMin {
		next.action, next.until = actWait, now.Add(d)
	}
	return next
}

// backoff is the wait before another call. Its jitter is derived from the attempt's names and is
// not random.
func (a attempt) backoff() time.Duration {
	p := events.Attempts{Backoff: a.retry.Backoff, Factor: a.retry.Factor, Max: a.retry.Max}
	return p.Delay(a.req.Task, a.req.Step, a.req.Kind, a.req.Attempt, a.tries)
}

// failedReply replies with the last failure. The reply says "no effect" only if no call may have had
// one. It asks for the next attempt after later; 0: as the workflow says.
func (a attempt) failedReply(later time.Duration) decision {
	r := events.Reply{Outcome: events.Failed, Effect: events.EffectUnknown, Body: a.lastFailure.errorObject(), RetryAfter: later}
	if !a.mayHaveEffect && !a.pending {
		r.Effect = events.EffectNone
	}
	return a.replyWith(r)
}

func (a attempt) replyWith(r events.Reply) decision {
	r.Task, r.Token = a.req.Task, a.req.token
	r.Ref = events.RequestRef{Step: a.req.Step, Kind: a.req.Kind, Attempt: a.req.Attempt}
	return decision{action: actReply, reply: r}
}

// reportsNoEffect reports whether a reply says that the attempt had no effect. The scheduler then
// undoes nothing, so the attempt must not be called again.
func reportsNoEffect(r *events.Reply) bool {
	return r.Outcome == events.Rejected || r.Outcome == events.Failed && r.Effect == events.EffectNone
}
