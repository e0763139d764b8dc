package agent

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Listener observes a run. Nil fields are allowed. The functions are called from many goroutines.
// They must return quickly, and must not call the Config's functions or the Handler.
type Listener struct {
	// Joined and Left: the instance joined the agent's group, or left it. The reason is the error of the
	// health check or of the session, or context.Canceled.
	Joined func()
	Left   func(reason error)
	// JoinFailed: the instance could not join the group again. It tries again after wait.
	JoinFailed func(err error, wait time.Duration)
	// Unhealthy: the health check failed; failures counts the consecutive ones.
	Unhealthy func(err error, failures int)

	// Retried: a call failed with err and is repeated after wait. tries counts the calls so far.
	Retried func(r Request, err error, tries int, wait time.Duration)
	// Finished: the reply was acknowledged; took is the time since a worker started the request.
	Finished func(r Request, outcome events.Outcome, took time.Duration)
	// Progressed: a report of progress was acknowledged.
	Progressed func(r Request)
	// Late: complete-by was over, for the duration by, before the request could be started.
	Late func(r Request, by time.Duration)
	// Dropped: complete-by passed before a reply was acknowledged, or no progress was acknowledged for a heartbeat.
	// Nothing more is sent.
	Dropped func(r Request)
	// Overran: the handler had not returned at complete-by. It counts towards Config.Concurrency until
	// it returns. Dropped follows.
	Overran func(r Request)
	// Abandoned: the request is left to another instance, because this one leaves the group or the
	// request's partition was reassigned.
	Abandoned func(r Request)
	// Panicked: the handler panicked; the request is replied as failed.
	Panicked func(r Request, value any, stack []byte)
	// SendFailed: a reply was not acknowledged. It is sent again until complete-by, unless it is too
	// large.
	SendFailed func(r Request, err error)
	// Malformed: a record could not be decoded as a request and was skipped. If only its value can't be used, it is
	// replied as failed, with CodeBadInput.
	Malformed func(rec events.Record, err error)
	// CircuitChanged: a downstream's circuit changed its state: CircuitClosed, CircuitOpen or
	// CircuitHalfOpen.
	CircuitChanged func(downstream, from, to string)
}
