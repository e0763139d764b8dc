package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The defaults and bounds of Config.
const (
	DefaultConcurrency  = 64
	ConcurrencyMax      = 10_000
	DefaultGrace        = 10 * time.Second
	DefaultMaxTries     = 10
	DefaultBackoff      = 100 * time.Millisecond
	DefaultFactor       = 2.0
	DefaultBackoffMax   = 5 * time.Second
	DefaultFailures     = 10
	DefaultOpenFor      = 5 * time.Second
	DefaultHealthEvery  = 5 * time.Second
	DefaultHealthFailed = 3
)

// Session is a membership in the consumer group of an agent. Done, CommitSoon, Send, Pause and Resume
// are called from many goroutines, while Poll runs.
type Session interface {
	// Poll returns committed records of the request topic, possibly none. An error ends the
	// membership, unless ctx is done.
	Poll(ctx context.Context) ([]events.Record, error)
	// Done says that a record needs no more work. It is called at most once for each record that Poll
	// returned, in any order, possibly after Close. The session commits below the lowest record
	// that isn't done.
	Done(partition int32, offset int64)
	// CommitSoon asks for a commit as soon as possible, before the session's own interval. It doesn't
	// wait for the commit, and may be called after Close.
	CommitSoon()
	// Send returns when rec is acknowledged by all in-sync replicas. When ctx is done it returns an
	// error, and must not send a record that it hasn't sent yet.
	Send(ctx context.Context, rec events.Record) error
	// Pause makes Poll return no records until Resume. Poll still takes part in the group.
	Pause()
	Resume()
	// Close commits the done records and leaves the group.
	Close(ctx context.Context) error
}

// PartitionHolder is a Session that knows which partitions are assigned to it. Once a request's partition is
// reassigned, a request that waits is not started, and a running one doesn't report that it had no
// effect: the new owner may be working on it.
type PartitionHolder interface {
	// HeldContext returns a context that is done while the session doesn't have the partition.
	HeldContext(partition int32) context.Context
	// MayHaveStarted reports whether a previous owner of the partition may have started the request
	// and died before it replied. Its calls may have had an effect, so a failure of this instance is not
	// reported as one without effect.
	MayHaveStarted(partition int32, offset int64) bool
	// SendAsOwner is Send for a reply that reports no effect to the request at offset of partition. It sends nothing once
	// the partition was reassigned. It must not let another instance have the partition while the reply may still be
	// written. An acknowledged reply counts as Done, so that no other instance gets the request.
	SendAsOwner(ctx context.Context, partition int32, offset int64, rec events.Record) error
}

// CircuitReporter is a Session that shows operators the state of the agent's circuits.
type CircuitReporter interface {
	// ReportCircuit receives the worst state of all circuits: CircuitClosed, CircuitHalfOpen or
	// CircuitOpen. It is called when the session begins and at each change. It must not block, and may be
	// called after Close.
	ReportCircuit(state string)
}

// Config says how an agent runs. Open and Source must be set.
type Config struct {
	// Open joins the agent's group. It is called again after the instance left the group because its health check
	// failed, and after its topic was recreated; then until it succeeds. An error with a method Permanent() bool that
	// returns true ends the run. One with Refused() bool does so if such errors last for a minute.
	Open func(ctx context.Context) (Session, error)
	// Namespace is where replies go; empty: events.DefaultNamespace.
	Namespace events.Namespace
	// Source is the ce_source of the replies.
	Source string
	// Clock estimates the brokers' clock; nil: time.Now.
	Clock func() time.Time
	// Concurrency limits the handlers that run at once, 1 to ConcurrencyMax; 0: DefaultConcurrency. In
	// memory are at most as many more requests, and those of one Poll, that wait for their first call.
	// Requests that wait for another call are bounded, too: five times as many after a failure, four times as
	// many for an open circuit, and 4,096 plus Concurrency whose work goes on elsewhere (Pending).
	Concurrency int
	// Grace is how long handlers may go on after Run's ctx is done. Then their contexts are
	// cancelled. 0: DefaultGrace.
	Grace time.Duration
	// Retry says how a Transient failure is tried again before complete-by.
	Retry    Retry
	Breaker  Breaker
	Health   Health
	Listener Listener
	// Liveness reports stalled loops of the run; nil: none is needed.
	Liveness *Liveness
}

// Retry is the backoff between the calls of one attempt. Zero fields have
// defaults.
type Retry struct {
	MaxTries int           // calls in one attempt, the first included
	Backoff  time.Duration // before the second call
	Factor   float64       // of each further wait; at least 1
	Max      time.Duration // of a wait
}

// Breaker says when the circuit of a downstream opens and closes. Zero fields have
// defaults.
type Breaker struct {
	Failures uint32        // consecutive failures that open it
	OpenFor  time.Duration // until one call is allowed as a probe
}

// Health is a check of the instance itself, for faults that other instances may not have, such as a full
// disk. It must not check the shared downstream: circuits do.
type Health struct {
	// Check fails if it takes longer than Every, also if it ignores ctx. It is called by one goroutine
	// at a time. nil: always healthy.
	Check    func(ctx context.Context) error
	Every    time.Duration // 0: DefaultHealthEvery
	Failures int           // consecutive failures after which the instance leaves its group; 0: DefaultHealthFailed
}

func orDefault[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// applyDefaults fills in the defaults and checks the result. Its error lists all faults.
func (c *Config) applyDefaults() error {
	orDefault(&c.Namespace, events.DefaultNamespace)
	orDefault(&c.Concurrency, DefaultConcurrency)
	orDefault(&c.Grace, DefaultGrace)
	orDefault(&c.Retry.MaxTries, DefaultMaxTries)
	orDefault(&c.Retry.Backoff, DefaultBackoff)
	orDefault(&c.Retry.Factor, DefaultFactor)
	orDefault(&c.Retry.Max, DefaultBackoffMax)
	orDefault(&c.Breaker.Failures, DefaultFailures)
	orDefault(&c.Breaker.OpenFor, DefaultOpenFor)
	orDefault(&c.Health.Every, DefaultHealthEvery)
	orDefault(&c.Health.Failures, DefaultHealthFailed)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Liveness == nil {
		c.Liveness = &Liveness{}
	}
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.Open == nil, "no Open: give a function that joins the agent's group")
	fault(c.Source == "", "no Source: give the name of the instance, for ce_source of its replies")
	fault(c.Concurrency < 1 || c.Concurrency > ConcurrencyMax, "Concurrency %d: give 1 to %d", c.Concurrency, ConcurrencyMax)
	fault(c.Grace < 0, "Grace %v: give how long handlers may run after the end of ctx, or 0 for %v", c.Grace, DefaultGrace)
	fault(c.Retry.MaxTries < 1, "Retry.MaxTries %d: give 1 or more, or 0 for %d", c.Retry.MaxTries, DefaultMaxTries)
	fault(c.Retry.Backoff < 0, "Retry.Backoff %v: give a wait, or 0 for %v", c.Retry.Backoff, DefaultBackoff)
	fault(c.Retry.Max < c.Retry.Backoff, "Retry.Max %v is less than Retry.Backoff %v: give the longest wait, or 0 for %v", c.Retry.Max, c.Retry.Backoff, DefaultBackoffMax)
	fault(!(c.Retry.Factor >= 1), "Retry.Factor %v: give 1 or more, or 0 for %v", c.Retry.Factor, DefaultFactor)
	fault(c.Breaker.OpenFor < 0, "Breaker.OpenFor %v: give a duration, or 0 for %v", c.Breaker.OpenFor, DefaultOpenFor)
	fault(c.Health.Every < 0, "Health.Every %v: give a duration, or 0 for %v", c.Health.Every, DefaultHealthEvery)
	fault(c.Health.Failures < 0, "Health.Failures %d: give 1 or more, or 0 for %d", c.Health.Failures, DefaultHealthFailed)
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("agent: configuration: %w", err)
	}
	return nil
}
