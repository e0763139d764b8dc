package agent

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// This file decides what follows each step of an attempt. It is pure: time is an
// argument, and what is decided is a value.

// tryDurationMin is the least time before complete-by that is worth another
// call, and a reply after it.
const tryDurationMin = 20 * time.Millisecond

// move is what the shell is to do next.
type action uint8

const (
	actCall    action = iota // call the handler
	actWait                  // wait until next.at, then begin again
	actReply                 // send next.reply; then the request is done
	actDrop                  // send nothing: the time is over; the request is done
	actAbandon               // send nothing, and leave the request to another instance
)

// next is a decision.
type decision struct {
	action     action
	until      time.Time    // of doWait
	reply      events.Reply // of doReply; of doWait, what to reply if the request can't wait, or can't be called after it
	forCircuit bool         // the wait is for a circuit
}

// attempt is what is known of a request that is being worked on.
type attempt struct {
	req           *Request
	retry         *Retry
	tries         int  // calls that have ended
	mayHaveEffect bool // one of them may have had an effect
	lastFailure   *Failure
}

// begin says what to do at now if nothing stands in the way.
func (a attempt) start(now time.Time) decision {
	if !now.Before(a.req.CompleteBy) {
		return decision{action: actDrop}
	}
	return decision{action: actCall}
}

// after says what follows a call that ended at now. leaving: the process's
// grace is over and the call was cut short.
func (a attempt) afterCall(r result, now time.Time, leaving bool) (attempt, decision) {
	a.tries++
	switch {
	case !now.Before(a.req.CompleteBy):
		return a, decision{action: actDrop}
	case r.fail == nil:
		return a, a.replyWith(events.Reply{Outcome: events.Completed, Body: r.output})
	case r.fail.Rejected && !a.mayHaveEffect:
		return a, a.replyWith(events.Reply{Outcome: events.Rejected, Body: r.fail.errorObject()})
	}
	a.lastFailure = r.fail
	// A rejection settles nothing about the calls before it.
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

// refused says what follows when the circuit of the downstream lets no call
// through at now, and none before openFor has passed.
func (a attempt) circuitOpen(openFor time.Duration, downstream string, now time.Time) (attempt, decision) {
	if !now.Before(a.req.CompleteBy) {
		return a, decision{action: actDrop}
	}
	later := openFor
	if a.lastFailure == nil {
		a.lastFailure = &Failure{Code: CodeCircuitOpen, NoEffect: true,
			Message: "the circuit of " + downstream + " is open: it failed too often to be called now"}
	} else if a.tries > 0 && !a.mayHaveEffect {
		later = 0 // it was called, and that is to count: see events.Run.Defers
	}
	n := a.waitOrFail(openFor, later, now)
	n.forCircuit = n.action == actWait
	return a, n
}

// wait is for d, or, where no call would fit in after it, a failure at once, which says
// that the next attempt should come later: the sooner it is known, the sooner another attempt begins.
func (a attempt) waitOrFail(d, later time.Duration, now time.Time) decision {
	n := a.failedReply(later)
	if left := a.req.CompleteBy.Sub(now); d <= left-tryDurationMin {
		n.action, n.until = actWait, now.Add(d)
	}
	return n
}

// backoff is the wait before another call. Its jitter is derived from the names,
// never random.
func (a attempt) backoff() time.Duration {
	p := events.Attempts{Backoff: a.retry.Backoff, Factor: a.retry.Factor, Max: a.retry.Max}
	return p.Delay(a.req.Task, a.req.Step, a.req.Kind, a.req.Attempt, a.tries)
}

// failed is the reply that the last failure leads to: without effect only if no
// call had one. The next attempt should come after later; 0: as the workflow says.
func (a attempt) failedReply(later time.Duration) decision {
	r := events.Reply{Outcome: events.Failed, Effect: events.EffectUnknown, Body: a.lastFailure.errorObject(), RetryAfter: later}
	if !a.mayHaveEffect {
		r.Effect = events.EffectNone
	}
	return a.replyWith(r)
}

func (a attempt) replyWith(r events.Reply) decision {
	r.Task, r.Token = a.req.Task, a.req.token
	r.Ref = events.RequestRef{Step: a.req.Step, Kind: a.req.Kind, Attempt: a.req.Attempt}
	return decision{action: actReply, reply: r}
}

// nothingHappened reports whether a reply says that the attempt had no effect:
// whoever believes it undoes nothing, so the attempt must not be made again.
func reportsNoEffect(r *events.Reply) bool {
	return r.Outcome == events.Rejected || r.Outcome == events.Failed && r.Effect == events.EffectNone
}
