package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
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
	c.follow(ctx)
	for _, n := range []string{"1", "2"} {
		c.scheduler("scheduler-" + n)
		c.supervisor("supervisor-" + n)
		c.agent("agent-"+n, c.url+"/shop/{operation}", 3*time.Second)
	}
	ns := c.cfg.Namespace
	c.owners(ns.SchedulerGroup(), 4, time.Minute)
	c.owners(ns.SupervisorGroup(), 2, time.Minute)
	c.owners(ns.AgentGroup("shop"), 2, time.Minute)
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%05d", i)
	}
	if err := c.submit(ctx, ids, 100); err != nil {
		t.Fatal(err)
	}
	c.await("all first calls", time.Minute, func() bool { return c.calls >= tasks })
	c.kill("scheduler-1")
	c.kill("supervisor-1")
	c.kill("agent-1")
	c.await("all tasks ended", 2*time.Minute, func() bool { return len(c.ended) >= tasks })
	for id, s := range c.ended {
		if s != events.StateProcessed {
			t.Errorf("task %s ended %s", id, s)
		}
	}
	c.mu.Lock()
	if c.calls != 2*tasks {
		t.Errorf("%d calls were repeated, want 2 of each of %d tasks", c.calls, tasks)
	}
	c.mu.Unlock()
	c.verified(ids)
}

const pollsOnly = `workflow: polls
version: 1
complete_within: 10m
defaults: {complete_within: 5s, retry: {max_attempts: 5}}
steps:
` + "  ship: {agent: shipping, operation: create}\n"

// TestRepeatsSurviveUpKilled kills `up` with kill -9, with its embedded broker, between calls.
func TestRepeatsSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 50
	file := filepath.Join(t.TempDir(), "polls.yaml")
	definition := pollsOnly + strings.NewReplacer("agent: shop", "agent: shipping", "every: 6s", "every: 3s").Replace(deliverStep)
	if err := os.WriteFile(file, []byte(definition), 0o644); err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--demo", "--workflow", file)
	var lines strings.Builder
	for i := range tasks {
		fmt.Fprintf(&lines, "{\"id\":\"p-%d\",\"workflow\":\"polls\"}\n", i)
	}
	orders := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(orders, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	seen := observe(t, &u.system)
	u.waybill(t, exitOK, "submit", "-f", orders)
	seen.await(t, "all tasks run", func() bool { return seen.begun() == tasks })
	u.kill()
	u.start(t)
	u.waybill(t, exitOK, "submit", "-f", orders, "--wait", "--timeout", "10m")
	if n := seen.awaitEnded(t, tasks); n != tasks {
		t.Errorf("%d tasks ended", n)
	}
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}
