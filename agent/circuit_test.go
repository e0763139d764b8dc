package agent

import (
	"fmt"
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
