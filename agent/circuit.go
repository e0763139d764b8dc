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
	// circuitsMax is how many downstreams have a circuit of their own; those
	// named later share one.
	circuitsMax = 1024
	// probeWait is how often a request looks again while another one's call
	// finds out whether the downstream has recovered.
	probePollInterval = 100 * time.Millisecond
	// otherDownstreams names the circuit that is shared.
	sharedCircuitName = "others"
	// undoSuffix is behind the name of the circuit of undos.
	undoSuffix = " (undo)"
	// answersKept is of how many answers it is remembered what they took.
	answerTimesKept = 64
	// usualOneOf: one of so many answers may be slower than usual.
	slowAnswersOneIn = 16
	// silentTimes times what answers take without one, though calls were under way, are not for
	// want of time any more.
	unansweredFactor = 10
)

// The states of a circuit.
const (
	CircuitClosed   = "closed"    // calls go through
	CircuitHalfOpen = "half-open" // a few do, to find out
	CircuitOpen     = "open"      // none does
)

var (
	errDownstream = errors.New("the downstream failed")
	errNotCounted = errors.New("says nothing of the downstream")
)

// circuits holds the breaker of each downstream. Safe for concurrent use.
type circuits struct {
	breaker  Breaker
	listener *Listener
	byName   sync.Map // of *circuit: asked at each call, and rarely added to
	mu       sync.Mutex
	count    int // of those in byName

	worst worstState
}

// worst is the worst state of all circuits, for who looks at the agent from outside. Safe for
// concurrent use.
type worstState struct {
	mu        sync.Mutex
	notClosed map[string]string  // circuits that aren't closed, and what they are
	notify    func(state string) // nil: there is nobody to show it to
}

// to has show told, now and at each change, until it is told of another one.
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

// circuit is one downstream's breaker, and what gobreaker doesn't tell: until
// when it is open, and that it changed.
type circuit struct {
	name      string
	breaker   *gobreaker.TwoStepCircuitBreaker[struct{}]
	mu        sync.Mutex
	openUntil time.Time     // open until then
	changed   chan struct{} // closed at the next change of state

	answerTimes [answerTimesKept]time.Duration // what the last ones took
	answerCount int                            // how many there were
	// vain is for how long, up to vainTo, calls have been under way since the last answer that
	// ended for want of time, those beside each other counted once.
	unanswered      time.Duration
	unansweredUntil time.Time
}

// of is the circuit of a downstream. Undos have one of their own: that a service can't do an operation now
// doesn't say that it can't undo what it did before.
func (c *circuits) forDownstream(name string, kind events.Kind) *circuit {
	if kind == Undo {
		name += undoSuffix
	}
	if k, ok := c.byName.Load(name); ok {
		return k.(*circuit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.byName.Load(name) // by now
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
			c.listener.circuitChanged(name, from.String(), to.String())
		},
	})
	return k
}

// allow asks for a call. verdict, if not nil, must be told how it went. Else
// the circuit lets no call through for openFor; changed is closed if that turns
// out otherwise.
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
		openFor = time.Until(k.openUntil) + time.Millisecond // gobreaker wants it strictly past
		k.mu.Unlock()
	}
	if openFor <= 0 {
		openFor = probePollInterval
	}
	return nil, openFor, changed
}

// call is how a call of the handler went.
type finishedCall struct {
	result
	took, left time.Duration // left: of complete-by, when it began
	leaving    bool          // the process's grace was over
}

// judge is what a call says of the downstream. A rejection is an answer. A call that
// was given less time than answers take, and ended for want of it, says nothing: so
// it is with requests that waited for long, while the downstream is well. When nothing was
// answered for much longer than that, it isn't.
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

// usual is what answers take, but for a few that are slower: one of them would have the
// downstream be forgiven for long after it died.
func (k *circuit) usualAnswerTime() time.Duration {
	kept := min(k.answerCount, answerTimesKept)
	if kept == 0 {
		return 0
	}
	took := k.answerTimes
	slices.Sort(took[:kept])
	return took[kept-1-kept/slowAnswersOneIn]
}
