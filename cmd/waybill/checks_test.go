package main

import (
	"context"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
)

// checkedWorkflow asks the service what became of a charge before it charges again, gives up or refunds.
const checkedWorkflow = `
workflow: shop
version: 1
complete_within: 2h
on_error: undo
defaults:
  complete_within: 4s
  retry: {max_attempts: 1000, backoff: 200ms, factor: 2, max: 2s}
steps:
  reserve: {agent: shop, operation: reserve, input: {order: "${ task.id }"}, undo: {operation: release}}
  charge:
    needs: [reserve]
    agent: shop
    operation: charge
    input: {card: "${ input.card }"}
    undo: {operation: refund}
    check: {operation: status}
  ship: {needs: [charge], agent: shop, operation: create, input: {order: "${ task.id }"}, undo: {operation: recall}}
output: {charge: "${ steps.charge.state }"}
`

// TestChecksSurviveKills kills a scheduler, a supervisor and an agent on Apache Kafka while checks of charges run, whose
// effect is unknown. A charge that happened isn't charged again: each task is processed with one charge (P23, P6).
func TestChecksSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 80
	c := newCluster(t)
	c.apply(checkedWorkflow)
	c.card = func(i int) string { return []string{demo.CardWorks, demo.CardSlow, demo.CardStuckUndo}[i%3] }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 2)
	ids := c.submitNumbered(ctx, tasks)
	c.await("charges are checked", suite.Patience, func() bool { return c.checked(ids) >= tasks/8 })
	c.killFirst("scheduler", "supervisor", "agent")
	c.awaitProcessed(tasks)
	if n := c.checked(ids); n < tasks/2 {
		t.Errorf("%d charges of unknown effect were checked", n)
	}
	for i, id := range ids {
		if charge := c.log.Task(id).Steps[1]; c.card(i) == demo.CardStuckUndo && charge.KindState().Became != events.BecameCompleted {
			t.Errorf("%s: the service says that each charge failed, and the check found %q", id, charge.KindState().Became)
		}
	}
	c.verified(ids)
}

// checked counts the tasks whose charge was checked.
func (c *cluster) checked(ids []string) (n int) {
	for _, id := range ids {
		if t := c.log.Task(id); t != nil && t.Steps[1].Check != nil {
			n++
		}
	}
	return n
}

// silentWorkflow is a workflow whose agent answers neither calls nor checks.
const silentWorkflow = `workflow: silent
version: 1
complete_within: 2h
on_error: undo
defaults: {complete_within: 3s, retry: {max_attempts: 2, backoff: 1s}}
steps:
  first: {agent: nobody, operation: first, check: {operation: status, retry: {max_attempts: 1}}, catch: ["*"]}
  after: {needs: [first], wait: 2s, when: "${ steps.first.state == 'caught' }"}
output: {first: "${ steps.first.error.code }"}
`

// TestChecksSurviveUpKilled kills up with kill -9, with its embedded broker, while checks run that nobody answers.
func TestChecksSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	(&upKill{definition: silentWorkflow, orders: numberedOrders("silent", 50)}).run(t)
}
