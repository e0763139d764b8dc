package agent

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// A handler that names ever new downstreams has so many circuits, and one for all the
// others; each name keeps its own, whoever asks first.
func TestCircuitsAreBounded(t *testing.T) {
	c := &circuits{listener: &Listener{}}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for n := range 2 * circuitsMax {
				c.of(fmt.Sprint(n))
			}
		})
	}
	asking.Wait()
	names := map[string]*circuit{}
	for n := range 2 * circuitsMax {
		k := c.of(fmt.Sprint(n))
		if was := names[k.name]; was != nil && was != k || k.name != fmt.Sprint(n) && k.name != otherDownstreams {
			t.Fatalf("downstream %d has the circuit of %s, and not always the same", n, k.name)
		}
		names[k.name] = k
	}
	if len(names) != circuitsMax+1 || names[otherDownstreams] == nil {
		t.Errorf("%d circuits for %d names; want %d and that of the others", len(names), 2*circuitsMax, circuitsMax)
	}
}

// Who looks from outside is shown the worst of all circuits, at the beginning of a stay and
// when it changes.
func TestWorstOfAllCircuitsIsShown(t *testing.T) {
	var w worst
	var first, second []string
	w.changed("a", CircuitOpen) // before anybody looks
	w.to(func(state string) { first = append(first, state) })
	w.changed("b", CircuitHalfOpen)
	w.changed("a", CircuitClosed)
	w.to(func(state string) { second = append(second, state) })
	w.changed("b", CircuitClosed)
	w.changed("b", CircuitClosed)
	if want := []string{CircuitOpen, CircuitHalfOpen}; !slices.Equal(first, want) {
		t.Errorf("the first stay was shown %v; want %v", first, want)
	}
	if want := []string{CircuitHalfOpen, CircuitClosed}; !slices.Equal(second, want) {
		t.Errorf("the second stay was shown %v; want %v", second, want)
	}
}
