package main

import (
	"context"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/suite"
)

// deliverStep polls the simulated carrier, which delivers at the third call.
const deliverStep = `  deliver:
    needs: [ship]
    agent: shop
    operation: track
    input: {order: "${ task.id }"}
    repeat: {until: "${ output.status == 'delivered' }", every: 6s, max: 5}
`

// TestRepeatsSurviveKills kills a scheduler, a supervisor and an agent on Apache Kafka while 100 tasks wait for their next
// call. Each call has its own key, and none begins early: verify checks it.
func TestRepeatsSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 100
	c := newCluster(t)
	c.apply(clusterWorkflow + deliverStep)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 2)
	ids := c.submitNumbered(ctx, tasks)
	c.await("all first calls", suite.Patience, func() bool { return c.calls >= tasks })
	c.killFirst("scheduler", "supervisor", "agent")
	c.awaitProcessed(tasks)
	c.mu.Lock()
	if c.calls != 2*tasks {
		t.Errorf("%d calls were repeated, want 2 of each of %d tasks", c.calls, tasks)
	}
	c.mu.Unlock()
	c.verified(ids)
}

const pollsOnly = `workflow: polls
version: 1
complete_within: 2h
defaults: {complete_within: 5s, retry: {max_attempts: 1000}}
steps:
` + "  ship: {agent: shipping, operation: create}\n"

// TestRepeatsSurviveUpKilled kills `up` with kill -9, with its embedded broker, between calls.
func TestRepeatsSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	definition := pollsOnly + strings.NewReplacer("agent: shop", "agent: shipping", "every: 6s", "every: 3s").Replace(deliverStep)
	(&upKill{definition: definition, args: []string{"--demo"}, orders: numberedOrders("polls", 50)}).run(t)
}
