package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/internal/listener"
)

// A handler that always names new downstreams gets circuitsMax circuits and a shared one. Concurrent first calls for a
// name get the same circuit.
func TestCircuitsAreBounded(t *testing.T) {
	c := &circuits{listener: listener.Complete[Listener](nil)}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for n := range 2 * circuitsMax {
				c.forDownstream(fmt.Sprint(n), Do)
			}
		})
	}
	asking.Wait()
	names := map[string]*circuit{}
	for n := range 2 * circuitsMax {
		k := c.forDownstream(fmt.Sprint(n), Do)
		if was := names[k.name]; was != nil && was != k || k.name != fmt.Sprint(n) && k.name != sharedCircuitName {
			t.Fatalf("downstream %d has the circuit of %s, and not always the same", n, k.name)
		}
		names[k.name] = k
	}
	if len(names) != circuitsMax+1 || names[sharedCircuitName] == nil {
		t.Errorf("%d circuits for %d names; want %d and that of the others", len(names), 2*circuitsMax, circuitsMax)
	}
}

// A subscriber receives the worst state of all circuits, at once and after each change.
func TestWorstCircuitStateIsReported(t *testing.T) {
	var w worstState
	var first, second []string
	w.update("a", CircuitOpen) // before anyone subscribes
	w.subscribe(func(state string) { first = append(first, state) })
	w.update("b", CircuitHalfOpen)
	w.update("a", CircuitClosed)
	w.subscribe(func(state string) { second = append(second, state) })
	w.update("b", CircuitClosed)
	w.update("b", CircuitClosed)
	if want := []string{CircuitOpen, CircuitHalfOpen}; !slices.Equal(first, want) {
		t.Errorf("the first stay was shown %v; want %v", first, want)
	}
	if want := []string{CircuitHalfOpen, CircuitClosed}; !slices.Equal(second, want) {
		t.Errorf("the second stay was shown %v; want %v", second, want)
	}
}

// timedOutCall returns a call that timed out after left.
func timedOutCall(left time.Duration) finishedCall {
	return finishedCall{result: result{fail: &Failure{}}, took: left, left: left}
}

// One very slow response doesn't hide that a downstream died after it. If responses are fast, timeouts count at once.
// Otherwise they count after a long time without a response. A burst of calls with too little time doesn't count.
func TestCircuitOfADownstreamThatDiedAfterASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := &circuit{}
		for range 30 {
			if err := quick.classify(finishedCall{took: 100 * time.Millisecond, left: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		slow := &circuit{}
		for _, k := range []*circuit{quick, slow} {
			if err := k.classify(finishedCall{took: time.Minute, left: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		if err := quick.classify(timedOutCall(10 * time.Second)); !errors.Is(err, errDownstream) {
			t.Errorf("10 s without an answer, where they take 100 ms and one took a minute: %v", err)
		}
		time.Sleep(10 * time.Second)
		for range 10_000 {
			if err := slow.classify(timedOutCall(10 * time.Second)); !errors.Is(err, errNotCounted) {
				t.Fatalf("calls beside each other, that were given 10 s where an answer takes a minute: %v", err)
			}
		}
		for n := 1; !errors.Is(slow.classify(timedOutCall(10*time.Second)), errDownstream); n++ {
			if time.Sleep(10 * time.Second); n > 6*unansweredFactor {
				t.Fatalf("%d times 10 s without an answer, where one took a minute, are forgiven", n)
			}
		}
		if err := slow.classify(finishedCall{took: time.Minute, left: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := slow.classify(timedOutCall(10 * time.Second)); !errors.Is(err, errNotCounted) {
			t.Errorf("beside an answer that took a minute: %v", err)
		}
	})
}
