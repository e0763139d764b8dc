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
	c.follow(ctx)
	for _, n := range []string{"1", "2"} {
		c.scheduler("scheduler-" + n)
		c.supervisor("supervisor-" + n)
	}
	c.agent("agent-1", c.url+"/shop/{operation}", 3*time.Second)
	ns := c.cfg.Namespace
	c.owners(ns.SchedulerGroup(), 4, time.Minute)
	c.owners(ns.SupervisorGroup(), 2, time.Minute)
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%05d", i)
	}
	if err := c.submit(ctx, ids, 100); err != nil {
		t.Fatal(err)
	}
	c.await("all waits started", time.Minute, func() bool { return c.waits >= tasks })
	c.kill("scheduler-1")
	c.kill("supervisor-1")
	c.mu.Lock()
	if n := len(c.ended); n > 0 {
		t.Errorf("%d tasks had ended before the kill", n)
	}
	c.mu.Unlock()
	c.await("all tasks ended", 2*time.Minute, func() bool { return len(c.ended) >= tasks })
	for id, s := range c.ended {
		if s != events.StateProcessed {
			t.Errorf("task %s ended %s", id, s)
		}
	}
	c.verified(ids)
}

const waitsOnly = `workflow: waits
version: 1
complete_within: 10m
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
	const tasks = 50
	file := filepath.Join(t.TempDir(), "waits.yaml")
	if err := os.WriteFile(file, []byte(waitsOnly), 0o644); err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--workflow", file)
	seen := observe(t, &u.system)
	var lines strings.Builder
	for i := range tasks {
		at := time.Now().Add(time.Duration(i%10) * time.Second).UTC().Format(time.RFC3339)
		fmt.Fprintf(&lines, "{\"id\":\"w-%d\",\"workflow\":\"waits\",\"input\":{\"at\":%q}}\n", i, at)
	}
	orders := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(orders, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	u.waybill(t, exitOK, "submit", "-f", orders)
	seen.await(t, "all tasks wait", func() bool { return seen.begun() == tasks })
	u.kill()
	u.start(t)
	u.waybill(t, exitOK, "submit", "-f", orders, "--wait", "--timeout", "10m")
	if n := seen.awaitEnded(t, tasks); n != tasks {
		t.Errorf("%d tasks ended", n)
	}
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}
