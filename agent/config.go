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

// Session is one stay in the consumer group of an agent. Done, CommitSoon,
// Send, Pause and Resume are called while Poll runs, from many goroutines.
type Session interface {
	// Poll returns committed records of the request topic, possibly none. An
	// error ends the stay, unless ctx is done.
	Poll(ctx context.Context) ([]events.Record, error)
	// Done says that the record needs no more work. It may come in any order
	// and after Close, and is told once for each record that was begun; the session
	// commits below the lowest that isn't done.
	Done(partition int32, offset int64)
	// CommitSoon asks for a commit of what is done, as soon as can be rather than
	// in the session's own time. It doesn't wait for it, and may come after Close.
	CommitSoon()
	// Send returns when rec is acknowledged by all in-sync replicas. When ctx is
	// done it gives up and must not send what it hasn't sent yet.
	Send(ctx context.Context, rec events.Record) error
	// Pause makes Poll return no records until Resume, and still serve the
	// group.
	Pause()
	Resume()
	// Close commits what is done and leaves the group.
	Close(ctx context.Context) error
}

// PartitionHolder is a Session that knows which partitions it has. Once its partition is
// another's, a request that waits for its turn is not begun, and that nothing
// happened is not said of one that runs.
type PartitionHolder interface {
	// Held is a context that has ended if the session doesn't have the
	// partition.
	HeldContext(partition int32) context.Context
	// Inherited reports whether whoever had the partition before may have begun a
	// request, and have died or left without a word. A call of it may have had an
	// effect, so a failure of this instance's isn't said to have had none.
	MayHaveStarted(partition int32, offset int64) bool
}

// CircuitReporter is a Session that shows operators how an agent's downstreams are.
type CircuitReporter interface {
	// ReportCircuit is told the worst state of all circuits, CircuitClosed, CircuitHalfOpen or
	// CircuitOpen: when a stay begins, and at each change. It must not block, and may come
	// after Close.
	ReportCircuit(state string)
}

// Config says how an agent runs. Open and Source must be set.
type Config struct {
	// Open joins the agent's group. It is called again when an instance that
	// left for its health returns.
	Open func(ctx context.Context) (Session, error)
	// Namespace is that of the replies; empty: events.DefaultNamespace.
	Namespace events.Namespace
	// Source is the ce_source of the replies.
	Source string
	// Clock is the broker's time as well as it is known; nil: time.Now.
	Clock func() time.Time
	// Concurrency bounds the handlers that run at once, 1 to ConcurrencyMax; 0:
	// DefaultConcurrency. As many again and what one Poll returns may wait for their first call, and
	// parkedPerSlot times as many for another one.
	Concurrency int
	// Grace is how long running handlers may go on after the end of ctx before
	// theirs ends too; 0: DefaultGrace.
	Grace time.Duration
	// Retry is how failures that are Transient are tried again within
	// complete-by. Breaker and Health: see there.
	Retry    Retry
	Breaker  Breaker
	Health   Health
	Listener Listener
	// Liveness tells whether the run's loops move; nil: nobody asks.
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

// Breaker is how the circuit of a downstream opens and closes. Zero fields have
// defaults.
type Breaker struct {
	Failures uint32        // in a row open it
	OpenFor  time.Duration // then one call is let through
}

// Health is an instance's own check: of what is broken here but may be whole
// on another instance (a full disk, a lost mount). The shared downstream is
// none of its business: that is what the circuit is for.
type Health struct {
	// Check has Every to return; one that takes longer has failed, also if it ignores ctx.
	// nil: always healthy.
	Check    func(ctx context.Context) error
	Every    time.Duration // 0: DefaultHealthEvery
	Failures int           // in a row make the instance leave its group; 0: DefaultHealthFailed
}

func orDefault[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// complete fills in the defaults. Its error lists all faults.
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
	fault(c.Open == nil, "no Open: there is no session to serve; give what joins the agent's group")
	fault(c.Source == "", "no Source: a reply must say who replies; give the instance's name")
	fault(c.Concurrency < 1 || c.Concurrency > ConcurrencyMax, "Concurrency %d: give 1 to %d", c.Concurrency, ConcurrencyMax)
	fault(c.Grace < 0, "Grace %v: give how long handlers may go on after the end, or 0 for %v", c.Grace, DefaultGrace)
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
