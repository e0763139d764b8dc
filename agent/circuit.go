package agent

import (
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
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
	// usualFor is how many answers it takes to forget two thirds of a slower one.
	usualFor = 64
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
	usual   time.Duration // that a call takes: the slowest of the last answers, about
}

func (c *circuits) of(name string) *circuit {
	if k, ok := c.byName.Load(name); ok {
		return k.(*circuit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.byName.Load(name) // by now
	if !ok && c.n >= circuitsMax {
		name = otherDownstreams
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
// it is with requests that waited for long, while the downstream is well.
func (k *circuit) judge(c call) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case c.fail == nil || c.fail.Rejected:
		k.usual = max(c.took, k.usual-(k.usual-c.took)/usualFor)
		return nil
	case c.leaving || c.fail.Neutral, c.took >= c.left && c.left < k.usual:
		return errNoVerdict
	}
	return errDownstream
}
