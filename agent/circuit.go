package agent

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/waybill-run/waybill/events"
)

const (
	// circuitsMax bounds the circuits. Downstreams that are named later share one for their kind.
	circuitsMax = 1024
	// probePollInterval is how often a request asks a half-open circuit again, while the call of
	// another request probes the downstream.
	probePollInterval = 100 * time.Millisecond
	// sharedCircuitName names the circuit of the downstreams past circuitsMax.
	sharedCircuitName = "others"
	// undoSuffix ends the name of a circuit for undos.
	undoSuffix = " (undo)"
	// answerTimesKept is the number of answers whose durations are kept.
	answerTimesKept = 64
	// slowAnswersOneIn: one in so many answers is ignored as slow by usualAnswerTime.
	slowAnswersOneIn = 16
	// unansweredFactor times the usual answer time without an answer, while calls were running, means
	// that the downstream fails. Before that, short calls may just have had too little time.
	unansweredFactor = 10
)

// The states of a circuit.
const (
	CircuitClosed   = "closed"    // calls are allowed
	CircuitHalfOpen = "half-open" // one call probes the downstream
	CircuitOpen     = "open"      // no call is allowed
	CircuitUnknown  = "unknown"   // no member of the agent's group reports a state
)

// WorstCircuit returns the worst state that members report, by partition.
func WorstCircuit(reported map[int32]string) string {
	worst := CircuitUnknown
	for _, state := range []string{CircuitClosed, CircuitHalfOpen, CircuitOpen} {
		for _, s := range reported {
			if s == state {
				worst = state
			}
		}
	}
	return worst
}

var (
	errDownstream = errors.New("the downstream failed")
	errNotCounted = errors.New("not counted: says nothing about the downstream")
)

// circuits has a circuit for each downstream, created by its first call. Safe for concurrent use.
type circuits struct {
	breaker  Breaker
	listener *Listener
	byName   sync.Map // name to *circuit; read by each call, rarely written
	mu       sync.Mutex
	count    int // of those in byName

	worst worstState
}

// worstState is the worst state of all circuits: open, then half-open, then closed. Safe for
// concurrent use.
type worstState struct {
	mu        sync.Mutex
	notClosed map[string]string  // state of each circuit that isn't closed
	notify    func(state string) // nil: no subscriber
}

// subscribe calls show now and at each change. It replaces the subscriber before it; nil removes it.
func (w *worstState) subscribe(show func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notify = show; show != nil {
		show(w.state())
	}
}

func (w *worstState) update(name, state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notClosed == nil {
		w.notClosed = map[string]string{}
	}
	before := w.state()
	if w.notClosed[name] = state; state == CircuitClosed {
		delete(w.notClosed, name)
	}
	if now := w.state(); now != before && w.notify != nil {
		w.notify(now)
	}
}

func (w *worstState) state() string {
	state := CircuitClosed
	for _, s := range w.notClosed {
		if state = s; s == CircuitOpen {
			break
		}
	}
	return state
}

// circuit is the breaker of a downstream. It adds what gobreaker doesn't expose: when an open circuit
// becomes half-open, and a signal for changes of state.
type circuit struct {
	name      string
	breaker   *gobreaker.TwoStepCircuitBreaker[struct{}]
	mu        sync.Mutex
	openUntil time.Time     // when an open circuit becomes half-open
	changed   chan struct{} // closed at the next change of state

	answerTimes [answerTimesKept]time.Duration // ring of the last durations
	answerCount int                            // answers so far
	// unanswered is the time since the last answer in which calls ran that timed out, up to
	// unansweredUntil. Concurrent calls count once.
	unanswered      time.Duration
	unansweredUntil time.Time
}

// forDownstream returns the circuit of a downstream, or of its undos. Undos have a circuit of their own,
// because a service that can't do an operation may still be able to undo it.
func (c *circuits) forDownstream(name string, kind events.Kind) *circuit {
	if kind == Undo {
		name += undoSuffix
	}
	if k, ok := c.byName.Load(name); ok {
		return k.(*circuit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.byName.Load(name) // another goroutine may have added it
	if !ok && c.count >= circuitsMax {
		if name = sharedCircuitName; kind == Undo {
			name += undoSuffix
		}
		k, ok = c.byName.Load(name)
	}
	if !ok {
		k = c.newCircuit(name)
		c.byName.Store(name, k)
		c.count++
	}
	return k.(*circuit)
}

func (c *circuits) newCircuit(name string) *circuit {
	k := &circuit{name: name, changed: make(chan struct{})}
	k.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		Timeout:     c.breaker.OpenFor,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= c.breaker.Failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNotCounted) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			k.mu.Lock()
			if to == gobreaker.StateOpen {
				k.openUntil = time.Now().Add(c.breaker.OpenFor)
			}
			close(k.changed)
			k.changed = make(chan struct{})
			k.mu.Unlock()
			c.worst.update(name, to.String())
			c.listener.CircuitChanged(name, from.String(), to.String())
		},
	})
	return k
}

// allow asks for permission to call. If it is granted, verdict isn't nil and must be called with the
// call's result. Otherwise the circuit allows no call for openFor, unless its state changes: that closes
// changed.
func (k *circuit) allow() (verdict func(error), openFor time.Duration, changed <-chan struct{}) {
	k.mu.Lock()
	changed = k.changed // before Allow, so that no change is missed
	k.mu.Unlock()
	verdict, err := k.breaker.Allow()
	if err == nil {
		return verdict, 0, nil
	}
	if errors.Is(err, gobreaker.ErrOpenState) {
		k.mu.Lock()
		openFor = time.Until(k.openUntil) + time.Millisecond // gobreaker opens strictly after its timeout
		k.mu.Unlock()
	}
	if openFor <= 0 {
		openFor = probePollInterval
	}
	return nil, openFor, changed
}

// finishedCall is the result of a call of the handler, and its timing.
type finishedCall struct {
	result
	took, left time.Duration // left: until complete-by when the call began
	leaving    bool          // the process's grace was over
}

// classify says what a call means for the circuit: nil is a success, errDownstream a failure,
// errNotCounted neither. A rejection is a success, because the downstream answered. A call that timed out
// after less than the usual answer time isn't counted, because its request had waited for too long.
// If such calls run without any answer for unansweredFactor times that, the downstream has failed.
func (k *circuit) classify(c finishedCall) error {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case c.fail == nil || c.fail.Rejected:
		k.answerTimes[k.answerCount%answerTimesKept] = c.took
		k.answerCount++
		k.unanswered, k.unansweredUntil = 0, now
		return nil
	case c.leaving || c.fail.Neutral:
		return errNotCounted
	case c.took < c.left:
		return errDownstream
	}
	usual := k.usualAnswerTime()
	if c.left >= usual {
		return errDownstream
	}
	began := now.Add(-c.took)
	if began.Before(k.unansweredUntil) {
		began = k.unansweredUntil
	}
	k.unanswered, k.unansweredUntil = k.unanswered+now.Sub(began), now
	if usual > 0 && k.unanswered > unansweredFactor*usual {
		return errDownstream
	}
	return errNotCounted
}

// usualAnswerTime is the duration of the slowest kept answer, without the slowest few. With them, one slow
// answer would excuse a downstream long after it stopped answering. 0: nothing was answered yet.
func (k *circuit) usualAnswerTime() time.Duration {
	kept := min(k.answerCount, answerTimesKept)
	if kept == 0 {
		return 0
	}
	took := k.answerTimes
	slices.Sort(took[:kept])
	return took[kept-1-kept/slowAnswersOneIn]
}
