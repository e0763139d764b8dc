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
	probeWait = 100 * time.Millisecond
	// otherDownstreams names the circuit that is shared.
	otherDownstreams = "others"
	// undoSuffix is behind the name of the circuit of undos.
	undoSuffix = " (undo)"
	// answersKept is of how many answers it is remembered what they took.
	answersKept = 64
	// usualOneOf: one of so many answers may be slower than usual.
	usualOneOf = 16
	// silentTimes times what answers take without one, though calls were under way, are not for
	// want of time any more.
	silentTimes = 10
)

// The states of a circuit.
const (
	CircuitClosed   = "closed"    // calls go through
	CircuitHalfOpen = "half-open" // a few do, to find out
	CircuitOpen     = "open"      // none does
)

var (
	errDownstream = errors.New("the downstream failed")
	errNoVerdict  = errors.New("says nothing of the downstream")
)

// circuits holds the breaker of each downstream. Safe for concurrent use.
type circuits struct {
	breaker  Breaker
	listener *Listener
	byName   sync.Map // of *circuit: asked at each call, and rarely added to
	mu       sync.Mutex
	n        int // of those in byName

	worst worst
}

// worst is the worst state of all circuits, for who looks at the agent from outside. Safe for
// concurrent use.
type worst struct {
	mu   sync.Mutex
	not  map[string]string  // circuits that aren't closed, and what they are
	show func(state string) // nil: there is nobody to show it to
}

// to has show told, now and at each change, until it is told of another one.
func (w *worst) to(show func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.show = show; show != nil {
		show(w.state())
	}
}

func (w *worst) changed(name, state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.not == nil {
		w.not = map[string]string{}
	}
	before := w.state()
	if w.not[name] = state; state == CircuitClosed {
		delete(w.not, name)
	}
	if now := w.state(); now != before && w.show != nil {
		w.show(now)
	}
}

func (w *worst) state() string {
	state := CircuitClosed
	for _, s := range w.not {
		if state = s; s == CircuitOpen {
			break
		}
	}
	return state
}

// circuit is one downstream's breaker, and what gobreaker doesn't tell: until
// when it is open, and that it changed.
type circuit struct {
	name    string
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	mu      sync.Mutex
	until   time.Time     // open until then
	changed chan struct{} // closed at the next change of state

	answers [answersKept]time.Duration // what the last ones took
	n       int                        // how many there were
	// vain is for how long, up to vainTo, calls have been under way since the last answer that
	// ended for want of time, those beside each other counted once.
	vain   time.Duration
	vainTo time.Time
}

// of is the circuit of a downstream. Undos have one of their own: that a service can't do an operation now
// doesn't say that it can't undo what it did before.
func (c *circuits) of(name string, kind events.Kind) *circuit {
	if kind == Undo {
		name += undoSuffix
	}
	if k, ok := c.byName.Load(name); ok {
		return k.(*circuit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.byName.Load(name) // by now
	if !ok && c.n >= circuitsMax {
		if name = otherDownstreams; kind == Undo {
			name += undoSuffix
		}
		k, ok = c.byName.Load(name)
	}
	if !ok {
		k = c.open(name)
		c.byName.Store(name, k)
		c.n++
	}
	return k.(*circuit)
}

func (c *circuits) open(name string) *circuit {
	k := &circuit{name: name, changed: make(chan struct{})}
	k.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		Timeout:     c.breaker.OpenFor,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= c.breaker.Failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNoVerdict) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			k.mu.Lock()
			if to == gobreaker.StateOpen {
				k.until = time.Now().Add(c.breaker.OpenFor)
			}
			close(k.changed)
			k.changed = make(chan struct{})
			k.mu.Unlock()
			c.worst.changed(name, to.String())
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
		openFor = time.Until(k.until) + time.Millisecond // gobreaker wants it strictly past
		k.mu.Unlock()
	}
	if openFor <= 0 {
		openFor = probeWait
	}
	return nil, openFor, changed
}

// call is how a call of the handler went.
type call struct {
	result
	took, left time.Duration // left: of complete-by, when it began
	leaving    bool          // the process's grace was over
}

// judge is what a call says of the downstream. A rejection is an answer. A call that
// was given less time than answers take, and ended for want of it, says nothing: so
// it is with requests that waited for long, while the downstream is well. When nothing was
// answered for much longer than that, it isn't.
func (k *circuit) judge(c call) error {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case c.fail == nil || c.fail.Rejected:
		k.answers[k.n%answersKept] = c.took
		k.n++
		k.vain, k.vainTo = 0, now
		return nil
	case c.leaving || c.fail.Neutral:
		return errNoVerdict
	case c.took < c.left:
		return errDownstream
	}
	usual := k.usual()
	if c.left >= usual {
		return errDownstream
	}
	began := now.Add(-c.took)
	if began.Before(k.vainTo) {
		began = k.vainTo
	}
	k.vain, k.vainTo = k.vain+now.Sub(began), now
	if usual > 0 && k.vain > silentTimes*usual {
		return errDownstream
	}
	return errNoVerdict
}

// usual is what answers take, but for a few that are slower: one of them would have the
// downstream be forgiven for long after it died.
func (k *circuit) usual() time.Duration {
	kept := min(k.n, answersKept)
	if kept == 0 {
		return 0
	}
	took := k.answers
	slices.Sort(took[:kept])
	return took[kept-1-kept/usualOneOf]
}
