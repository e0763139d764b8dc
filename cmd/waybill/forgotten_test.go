package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestForgottenIDsSurviveKills submits tasks on Apache Kafka, waits until their ids are forgotten, and submits the same
// again. While ids are forgotten, a scheduler, a supervisor and an agent are killed with SIGKILL, and another scheduler is
// while the second tasks run. Each id has exactly two tasks, and the services did the work of each.
func TestForgottenIDsSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 60
	c := newCluster(t)
	c.seen.reusesIDs, c.sweepInterval = true, 20*time.Millisecond // a supervisor asks once in 60 intervals
	c.apply(strings.Replace(clusterWorkflow, "on_error: undo", "on_error: undo\ndedupe_for: 1s", 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 2)
	ids := c.submitNumbered(ctx, tasks)
	c.await("an id is forgotten", suite.Patience, func() bool { return len(c.forgotten) > 0 })
	c.killFirst("scheduler", "supervisor", "agent")
	c.scheduler("scheduler-3")
	c.awaitProcessed(tasks)
	c.await("all ids are forgotten", suite.Patience, func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool {
			return !c.log.Task(id).Forgotten(c.forgotten[events.Partition([]byte(id), events.DefaultPartitions)])
		})
	})

	c.submitNumbered(ctx, tasks)
	c.await("second tasks", suite.Patience, func() bool { return c.received >= tasks+tasks/3 })
	c.kill("scheduler-2")
	c.await("all second tasks processed", suite.Patience, func() bool {
		return c.received >= 2*tasks && !slices.ContainsFunc(ids, func(id string) bool { return c.log.Task(id).State != events.StateProcessed })
	})
	if c.received != 2*tasks {
		t.Errorf("%d tasks of %d ids that were submitted twice", c.received, tasks)
	}
	c.verified(ids)
}
