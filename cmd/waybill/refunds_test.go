package main

import (
	"context"
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
	c.follow(ctx)
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
	c.await("all tasks processed", patience, func() bool { return count(events.StateProcessed) >= tasks })
	if out := c.waybill("undo", ids[0], "--processed", "--why", "returned", "--yes"); !strings.Contains(out, "accepted") {
		t.Errorf("undo: %s", out)
	}
	c.undoProcessed(ids[1:refunds])
	c.await("some are undone", patience, func() bool { return count(events.StateUndone) >= 5 })
	c.killFirst("scheduler", "supervisor", "agent")
	c.await("all refunds are done", patience, func() bool { return count(events.StateUndone) >= refunds })
	c.mu.Lock()
	for i, id := range ids {
		if want := map[bool]events.TaskState{true: events.StateUndone, false: events.StateProcessed}[i < refunds]; c.ended[id] != want {
			t.Errorf("task %s is %s, not %s", id, c.ended[id], want)
		}
	}
	c.mu.Unlock()
	c.verified(ids)
}

// undoProcessed writes the commands that undo processed tasks. The half of them comes twice.
func (c *cluster) undoProcessed(ids []string) {
	c.t.Helper()
	producer, err := kafka.OpenProducer(c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	defer producer.Close()
	for i, id := range ids {
		x := events.Control{Task: id, Command: events.UndoTask, Processed: true, By: events.By{Claimed: "test", Why: "returned", RequestID: "refund-" + id}}
		for range 1 + i%2 {
			if _, err := producer.SendOne(c.t.Context(), x.Record(c.cfg.Namespace, "test")); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}
