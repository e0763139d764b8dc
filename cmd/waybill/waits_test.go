package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// TestWaitsSurviveKills kills a scheduler and a supervisor on Apache Kafka while 100 tasks wait. Each wait ends, and none
// early: verify checks it.
func TestWaitsSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 100
	c := newCluster(t)
	c.apply(strings.ReplaceAll(clusterWorkflow, "  ship: {needs: [charge]", "  settle: {needs: [charge], wait: 20s}\n  ship: {needs: [settle]"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 1)
	ids := c.submitNumbered(ctx, tasks)
	c.await("all waits started", suite.Patience, func() bool { return c.waits >= tasks })
	c.killFirst("scheduler", "supervisor")
	c.mu.Lock()
	if n := len(c.ended); n > 0 {
		t.Errorf("%d tasks had ended before the kill", n)
	}
	c.mu.Unlock()
	c.awaitProcessed(tasks)
	c.verified(ids)
}

const waitsOnly = `workflow: waits
version: 1
complete_within: 2h
steps:
  settle: {wait: 6s}
  slot: {needs: [settle], wait_until: "${ timestamp(input.at) }"}
output: {slot: "${ steps.slot.state }"}
`

// TestWaitsSurviveUpKilled kills `up` with kill -9, with its embedded broker, while tasks wait. It starts again after the
// ends of some of the waits.
func TestWaitsSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	orders := make([]string, 50)
	for i := range orders {
		at := time.Now().Add(time.Duration(i%10) * time.Second).UTC().Format(time.RFC3339)
		orders[i] = fmt.Sprintf(`{"id":"w-%d","workflow":"waits","input":{"at":%q}}`, i, at)
	}
	(&upKill{definition: waitsOnly, orders: orders}).run(t)
}
