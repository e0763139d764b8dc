package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestRefundsSurviveKills undoes processed tasks on Apache Kafka, and kills a scheduler, a supervisor and an agent with
// kill -9 in the middle. Each undo that was asked for is done, once, and no other: verify and the ledger of the services
// check it.
func TestRefundsSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks, refunds = 60, 40
	c := newCluster(t)
	c.apply(clusterWorkflow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 2)
	ids := c.submitNumbered(ctx, tasks)
	count := func(s events.TaskState) (n int) {
		for _, is := range c.ended {
			if is == s {
				n++
			}
		}
		return n
	}
	c.await("all tasks processed", suite.Patience, func() bool { return count(events.StateProcessed) >= tasks })
	if out := c.waybill("undo", ids[0], "--processed", "--why", "returned", "--yes"); !strings.Contains(out, "accepted") {
		t.Errorf("undo: %s", out)
	}
	undoProcessed(t, c.cfg, ids[1:refunds])
	c.await("some are undone", suite.Patience, func() bool { return count(events.StateUndone) >= 5 })
	c.killFirst("scheduler", "supervisor", "agent")
	c.await("all refunds are done", suite.Patience, func() bool { return count(events.StateUndone) >= refunds })
	c.mu.Lock()
	for i, id := range ids {
		if want := map[bool]events.TaskState{true: events.StateUndone, false: events.StateProcessed}[i < refunds]; c.ended[id] != want {
			t.Errorf("task %s is %s, not %s", id, c.ended[id], want)
		}
	}
	c.mu.Unlock()
	c.verified(ids)
}

const refundsOnly = `workflow: refunds
version: 1
complete_within: 2h
defaults: {complete_within: 5s, retry: {max_attempts: 1000}}
steps:
  reserve: {agent: inventory, operation: reserve, undo: {operation: release}}
  create: {needs: [reserve], agent: shipping, operation: create, undo: {operation: recall}}
`

// TestRefundsSurviveUpKilled kills `up` with kill -9, with its embedded broker, while processed tasks are undone. Every
// undo is asked for again after the kill.
func TestRefundsSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks, refunds = 60, 40
	dir := t.TempDir()
	definition, orders := filepath.Join(dir, "definition.yaml"), filepath.Join(dir, "orders.jsonl")
	for name, text := range map[string]string{definition: refundsOnly, orders: strings.Join(numberedOrders("refunds", tasks), "\n") + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u := startUpProcess(t, "--demo", "--workflow", definition)
	seen := observe(t, &u.system)
	u.waybill(t, exitOK, "submit", "-f", orders, "--wait", "--timeout", "10m")
	ids := make([]string, refunds)
	for i := range ids {
		ids[i] = fmt.Sprintf("refunds-%d", i)
	}
	undoProcessed(t, u.config(), ids)
	seen.await(t, "one is undone", func() bool { return seen.counts[events.StateUndone] > 0 })
	u.kill()
	u.start(t)
	undoProcessed(t, u.config(), ids) // the same commands: they count once
	seen.await(t, "all refunds are done", func() bool { return seen.counts[events.StateUndone] >= refunds })
	seen.mu.Lock()
	if n := seen.counts[events.StateProcessed]; n != tasks-refunds {
		t.Errorf("%d tasks are processed, want %d", n, tasks-refunds)
	}
	seen.mu.Unlock()
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}

// undoProcessed writes the commands that undo processed tasks. The half of them comes twice.
func undoProcessed(t *testing.T, cfg kafka.Config, ids []string) {
	t.Helper()
	producer, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for i, id := range ids {
		x := events.Control{Task: id, Command: events.UndoTask, Processed: true, By: events.By{Claimed: "test", Why: "returned", RequestID: "refund-" + id}}
		for range 1 + i%2 {
			if _, err := producer.SendOne(t.Context(), x.Record(cfg.Namespace, "test")); err != nil {
				t.Fatal(err)
			}
		}
	}
}
