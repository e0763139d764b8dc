package main

import (
	"context"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
)

// failingWorkflow catches every failure of a charge. What may have been charged is refunded first.
const failingWorkflow = `
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
    retry: {except: [expired, connection_reset]}
    catch: ["*"]
    undo: {operation: refund}
  invoice:
    needs: [charge]
    when: "${ steps.charge.state == 'caught' }"
    agent: shop
    operation: invoice
    input: {why: "${ steps.charge.error.code }"}
    undo: {operation: void}
  book: {needs: [invoice], agent: shop, operation: book, pivot: true}
  ship: {needs: [book], agent: shop, operation: create, input: {order: "${ task.id }"}, undo: {operation: recall}}
output: {charge: "${ steps.charge.state }", error: "${ steps.charge.error }"}
`

// TestFailuresSurviveKills kills a scheduler, a supervisor and an agent on Apache Kafka while errors are caught: refunds
// of charges that may have happened run and fail, until the service is repaired. Each task goes on and is processed, and
// no effect of a caught charge is left (P21).
func TestFailuresSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 80
	c := newCluster(t)
	c.apply(failingWorkflow)
	c.card = func(i int) string {
		return []string{demo.CardWorks, demo.CardDeclined, demo.CardSlow, demo.CardStuckUndo}[i%4]
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 2)
	ids := c.submitNumbered(ctx, tasks)
	c.await("refunds of caught charges run", suite.Patience, func() bool { return c.refunding(ids) >= tasks/4 })
	c.killFirst("scheduler", "supervisor", "agent")
	c.services.Repair()
	c.await("all tasks ended", suite.Patience, func() bool { return len(c.ended) >= tasks })
	for i, id := range ids {
		task, card := c.log.Task(id), c.card(i)
		charge := task.Steps[1]
		undone := charge.Undo != nil && charge.Undo.State == events.StepCompleted
		refunds := card == demo.CardSlow || card == demo.CardStuckUndo
		caught := charge.State == events.StepCaught // also a charge of a good card, if its agent was killed
		if task.State != events.StateProcessed || !caught && (card != demo.CardWorks || charge.State != events.StepCompleted) ||
			undone != charge.Unknown || refunds && !undone {
			t.Errorf("%s (%s) is %s; its charge is %s, of unknown effect: %v, undone: %v", id, card, task.State, charge.State, charge.Unknown, undone)
		}
	}
	c.verified(ids)
}

// refunding counts the tasks whose charge is being caught. The lock is held.
func (c *cluster) refunding(ids []string) (n int) {
	for _, id := range ids {
		if t := c.log.Task(id); t != nil && t.Steps[1].State == events.StepUndoing && t.State == events.StateProcessing {
			n++
		}
	}
	return n
}

// unansweredWorkflow is a workflow without an agent: its call times out, and isn't retried.
const unansweredWorkflow = `workflow: unanswered
version: 1
complete_within: 2h
defaults: {complete_within: 3s, retry: {max_attempts: 1000, cool_down: 1m}}
steps:
  call: {agent: nobody, operation: call, retry: {except: [expired]}, catch: [expired]}
  after: {needs: [call], wait: 4s, when: "${ steps.call.state == 'caught' }", pivot: true}
  last: {needs: [after], agent: nobody, operation: last, retry: {only: [busy]}, catch: ["*"]}
output: {call: "${ steps.call.error.code }", last: "${ steps.last.error.code }"}
`

// TestFailuresSurviveUpKilled kills up with kill -9, with its embedded broker, while errors are caught.
func TestFailuresSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	(&upKill{definition: unansweredWorkflow, orders: numberedOrders("unanswered", 50)}).run(t)
}
