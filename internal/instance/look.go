package instance

import (
	"context"
	"fmt"
	"sync"

	"github.com/waybill-run/waybill/scheduler"
)

// Catalog is the definitions that were applied, followed from now on; those that
// were there are in it when it returns.
func (n *Instance) Catalog(ctx context.Context) (*scheduler.Compiled, error) {
	if err := n.follow(ctx); err != nil {
		return nil, fmt.Errorf("read the workflow definitions: %w", err)
	}
	return n.catalog.Compiled, nil
}

// circuits are those of the agents of this process: by agent, the state of each
// downstream that was ever called in vain.
type circuits struct {
	mu sync.Mutex
	of map[string]map[string]string
}

// The states of a circuit, as its breaker calls them.
const (
	circuitClosed   = "closed"
	circuitHalfOpen = "half-open"
	circuitOpen     = "open"
)

// runs takes note that an agent runs here.
func (c *circuits) runs(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]map[string]string{}
	}
	if c.of[agent] == nil {
		c.of[agent] = map[string]string{}
	}
}

func (c *circuits) changed(agent, downstream, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[agent][downstream] = to; to == circuitClosed {
		delete(c.of[agent], downstream)
	}
}

// Circuit is the worst state of the circuits of an agent that runs in this process;
// empty: it doesn't.
func (n *Instance) Circuit(agent string) string {
	n.circuits.mu.Lock()
	defer n.circuits.mu.Unlock()
	downstreams, here := n.circuits.of[agent]
	if !here {
		return ""
	}
	worst := circuitClosed
	for _, state := range downstreams {
		if state == circuitOpen || worst == circuitClosed && state == circuitHalfOpen {
			worst = state
		}
	}
	return worst
}
