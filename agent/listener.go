package agent

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Listener observes a run. Nil fields are fine. The functions are called from
// many goroutines; they must be quick, and must not call Run's Config or
// Handler.
type Listener struct {
	// Joined and Left: the instance became a member of the agent's group, or
	// left it for a reason: the failing health check's error, the session's, or
	// context.Canceled.
	Joined func()
	Left   func(reason error)
	// Unhealthy: the health check failed, so many times in a row.
	Unhealthy func(err error, failures int)

	// Started: the first call of a request's handler begins.
	Started func(r Request)
	// Retried: a call failed by err and is made again after wait. tries counts
	// the calls so far.
	Retried func(r Request, err error, tries int, wait time.Duration)
	// Finished: the reply was acknowledged, so long after the request's turn
	// came.
	Finished func(r Request, outcome events.Outcome, took time.Duration)
	// Late: the time was over when the request's turn came; it wasn't begun.
	Late func(r Request, by time.Duration)
	// Dropped: the time ended while the request was worked on; nothing is sent.
	Dropped func(r Request)
	// Overran: the handler had not returned at complete-by. It keeps its place
	// among the concurrent ones until it does.
	Overran func(r Request)
	// Abandoned: the process leaves, or the request's partition has gone; the
	// request is left to another instance.
	Abandoned func(r Request)
	// Panicked: the handler panicked; the request is replied as failed.
	Panicked func(r Request, value any, stack []byte)
	// SendFailed: a reply was not acknowledged; it is sent again while there
	// is time.
	SendFailed func(r Request, err error)
	// Malformed: a record that is no request was passed over.
	Malformed func(rec events.Record, err error)
	// CircuitChanged: the breaker of a downstream went from one state to another
	// ("closed", "open", "half-open").
	CircuitChanged func(downstream, from, to string)
}

func (l *Listener) joined() {
	if l.Joined != nil {
		l.Joined()
	}
}

func (l *Listener) left(reason error) {
	if l.Left != nil {
		l.Left(reason)
	}
}

func (l *Listener) unhealthy(err error, failures int) {
	if l.Unhealthy != nil {
		l.Unhealthy(err, failures)
	}
}

func (l *Listener) started(r Request) {
	if l.Started != nil {
		l.Started(r)
	}
}

func (l *Listener) retried(r Request, err error, tries int, wait time.Duration) {
	if l.Retried != nil {
		l.Retried(r, err, tries, wait)
	}
}

func (l *Listener) finished(r Request, o events.Outcome, took time.Duration) {
	if l.Finished != nil {
		l.Finished(r, o, took)
	}
}

func (l *Listener) late(r Request, by time.Duration) {
	if l.Late != nil {
		l.Late(r, by)
	}
}

func (l *Listener) dropped(r Request) {
	if l.Dropped != nil {
		l.Dropped(r)
	}
}

func (l *Listener) overran(r Request) {
	if l.Overran != nil {
		l.Overran(r)
	}
}

func (l *Listener) abandoned(r Request) {
	if l.Abandoned != nil {
		l.Abandoned(r)
	}
}

func (l *Listener) panicked(r Request, value any, stack []byte) {
	if l.Panicked != nil {
		l.Panicked(r, value, stack)
	}
}

func (l *Listener) sendFailed(r Request, err error) {
	if l.SendFailed != nil {
		l.SendFailed(r, err)
	}
}

func (l *Listener) malformed(rec events.Record, err error) {
	if l.Malformed != nil {
		l.Malformed(rec, err)
	}
}

func (l *Listener) circuitChanged(downstream, from, to string) {
	if l.CircuitChanged != nil {
		l.CircuitChanged(downstream, from, to)
	}
}
