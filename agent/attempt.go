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
type move uint8

const (
	doCall  move = iota // call the handler
	doWait              // wait until next.at, then begin again
	doReply             // send next.reply; then the request is done
	doStop              // send nothing: the time is over; the request is done
	doLeave             // send nothing, and leave the request to another instance
)

// next is a decision.
type next struct {
	do      move
	at      time.Time    // of doWait
	reply   events.Reply // of doReply; of doWait, what to reply if the request can't wait, or can't be called after it
	refused bool         // the wait is for a circuit
}

// attempt is what is known of a request that is being worked on.
type attempt struct {
	req     *Request
	retry   *Retry
	tries   int  // calls that have ended
	touched bool // one of them may have had an effect
	last    *Failure
}

// begin says what to do at now if nothing stands in the way.
func (a attempt) begin(now time.Time) next {
	if !now.Before(a.req.CompleteBy) {
		return next{do: doStop}
	}
	return next{do: doCall}
}

// after says what follows a call that ended at now. leaving: the process's
// grace is over and the call was cut short.
func (a attempt) after(r result, now time.Time, leaving bool) (attempt, next) {
	a.tries++
	switch {
	case !now.Before(a.req.CompleteBy):
		return a, next{do: doStop}
	case r.fail == nil:
		return a, a.answer(events.Reply{Outcome: events.Completed, Body: r.output})
	case r.fail.Rejected && !a.touched:
		return a, a.answer(events.Reply{Outcome: events.Rejected, Body: r.fail.body()})
	}
	a.last = r.fail
	// A rejection settles nothing about the calls before it.
	a.touched = a.touched || !r.fail.NoEffect && !r.fail.Rejected
	if r.fail.Rejected {
		return a, a.failed(0)
	}
	if leaving {
		return a, next{do: doLeave}
	}
	later := r.fail.After
	if !r.fail.Transient || a.tries >= a.retry.MaxTries {
		return a, a.failed(later)
	}
	return a, a.wait(max(a.backoff(), later), later, now)
}

// refused says what follows when the circuit of the downstream lets no call
// through at now, and none before openFor has passed.
func (a attempt) refused(openFor time.Duration, downstream string, now time.Time) (attempt, next) {
	if !now.Before(a.req.CompleteBy) {
		return a, next{do: doStop}
	}
	later := openFor
	if a.last == nil {
		a.last = &Failure{Code: CodeCircuitOpen, NoEffect: true,
			Message: "the circuit of " + downstream + " is open: it failed too often to be called now"}
	} else if a.tries > 0 && !a.touched {
		later = 0 // it was called, and that is to count: see events.Run.Defers
	}
	n := a.wait(openFor, later, now)
	n.refused = n.do == doWait
	return a, n
}

// wait is for d, or, where no call would fit in after it, a failure at once, which says
// that the next attempt should come later: the sooner it is known, the sooner another attempt begins.
func (a attempt) wait(d, later time.Duration, now time.Time) next {
	n := a.failed(later)
	if left := a.req.CompleteBy.Sub(now); d <= left-tryDurationMin {
		n.do, n.at = doWait, now.Add(d)
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
func (a attempt) failed(later time.Duration) next {
	r := events.Reply{Outcome: events.Failed, Effect: events.EffectUnknown, Body: a.last.body(), RetryAfter: later}
	if !a.touched {
		r.Effect = events.EffectNone
	}
	return a.answer(r)
}

func (a attempt) answer(r events.Reply) next {
	r.Task, r.Token = a.req.Task, a.req.token
	r.Ref = events.RequestRef{Step: a.req.Step, Kind: a.req.Kind, Attempt: a.req.Attempt}
	return next{do: doReply, reply: r}
}

// nothingHappened reports whether a reply says that the attempt had no effect:
// whoever believes it undoes nothing, so the attempt must not be made again.
func nothingHappened(r *events.Reply) bool {
	return r.Outcome == events.Rejected || r.Outcome == events.Failed && r.Effect == events.EffectNone
}
