package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
)

// bookingWorkflow is that of the children.
const bookingWorkflow = `
workflow: booking
version: 1
complete_within: 2h
defaults:
  complete_within: 4s
  retry: {max_attempts: 1000, backoff: 200ms, factor: 2, max: 2s}
steps:
  reserve: {agent: shop, operation: reserve, input: {order: "${ task.id }"}, undo: {operation: release}}
  charge: {needs: [reserve], agent: shop, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
output: {booked: "${ task.id }"}
`

// tripWorkflow runs three children, and an item for each of seven numbers. The last child has the order's card.
const tripWorkflow = `
workflow: shop
version: 1
complete_within: 2h
steps:
  first: {workflow: booking, input: {card: tok}}
  second: {workflow: booking, input: {card: tok}}
  each:
    needs: [first]
    for_each: "${ [0, 1, 2, 3, 4, 5, 6] }"
    max_parallel: 3
    outputs: summary
    agent: shop
    operation: reserve
    complete_within: 4s
    retry: {max_attempts: 1000, backoff: 200ms, factor: 2, max: 2s}
    input: {order: "${ task.id }-${ item }"}
    undo: {operation: release}
  third: {needs: [first], workflow: booking, id: "${ task.id }-third", input: {card: "${ input.card }"}}
output: {booked: "${ steps.third.output.booked }", each: "${ steps.each.output }"}
`

// TestChildrenSurviveKills kills a scheduler, a supervisor and an agent on Apache Kafka while tasks run children and items,
// withdraw them and are cancelled. A child of a task that was undone or cancelled is undone or cancelled (P25), and each
// item has its result once (P26).
func TestChildrenSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 60
	c := newCluster(t)
	c.apply(bookingWorkflow)
	c.apply(tripWorkflow)
	c.card = func(i int) string { return []string{demo.CardWorks, demo.CardDeclined, demo.CardSlow}[i%3] }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.startShop(c.url, 2)
	ids := c.submitNumbered(ctx, tasks)
	cancelled := []string{ids[tasks-1], ids[tasks-4], ids[tasks-7]} // with the slow card, so they still run
	c.await("children run", suite.Patience, func() bool {
		return c.running(ids) >= tasks/2 && c.running(cancelled) == len(cancelled)
	})
	for _, id := range cancelled {
		c.waybill("task", "cancel", id, "--why", "a test")
	}
	c.killFirst("scheduler", "supervisor", "agent")
	c.services.Repair()
	c.await("all tasks and their children ended", suite.Patience, func() bool { return c.treesEnded(ids) })
	c.mu.Lock()
	for i, id := range ids {
		task, card := c.log.Task(id), c.card(i)
		if task.State == events.StateProcessed && card == demo.CardDeclined {
			t.Errorf("%s (%s) is %s", id, card, task.State)
		}
		if summary := `"each":{"count":7,"completed":7,"failed":0}`; task.State == events.StateProcessed && !strings.Contains(string(task.Output), summary) {
			t.Errorf("%s: output %s, want %s in it", id, task.Output, summary)
		}
		for _, child := range c.children(task) {
			if (child.State == events.StateProcessed) != (task.State == events.StateProcessed) {
				t.Errorf("%s is %s, and its child %s is %s", id, task.State, child.ID, child.State)
			}
		}
	}
	c.mu.Unlock()
	c.verified(ids)
}

// running counts the tasks whose first child was started. The lock is held.
func (c *cluster) running(ids []string) (n int) {
	for _, id := range ids {
		if t := c.log.Task(fmt.Sprint(id, "/first")); t != nil {
			n++
		}
	}
	return n
}

// treesEnded reports whether all tasks and their children have ended. The lock is held.
func (c *cluster) treesEnded(ids []string) bool {
	for _, id := range ids {
		t := c.log.Task(id)
		if t == nil || t.Open() {
			return false
		}
		for _, child := range c.children(t) {
			if child.Open() {
				return false
			}
		}
	}
	return true
}

// children returns the children of a task that were received: those of its steps, and its items. The lock is held.
func (c *cluster) children(t *events.Task) (all []*events.Task) {
	add := func(id string) {
		if child := c.log.Task(id); child != nil {
			all = append(all, child)
		}
	}
	for i, s := range t.Steps {
		add(s.KindState().Child)
		if s.Items == nil {
			continue
		}
		for item := range s.Items.Count {
			add(events.ItemTaskID(t.KeyName(), t.Plan.Steps[i].ID, item))
		}
	}
	return all
}

// familyWorkflow runs a child and items with the services of the demo. The order says which card the child has.
const familyWorkflow = `
workflow: families
version: 1
complete_within: 2h
defaults:
  complete_within: 4s
  retry: {max_attempts: 1000, backoff: 200ms, factor: 2, max: 2s}
steps:
  wait: {wait: 1s}
  each:
    needs: [wait]
    for_each: "${ [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }"
    max_parallel: 2
    agent: inventory
    operation: reserve
    input: {order: "${ task.id }-${ item }"}
    undo: {operation: release}
  child: {needs: [wait], workflow: pays, input: {card: "${ input.card }"}}
output: "${ steps.each.output }"
`

const paysWorkflow = `
workflow: pays
version: 1
complete_within: 2h
defaults:
  complete_within: 4s
  retry: {max_attempts: 1000, backoff: 200ms, factor: 2, max: 2s}
steps:
  wait: {wait: 2s}
  charge: {needs: [wait], agent: payments, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
`

// TestChildrenSurviveUpKilled kills up with kill -9, with its embedded broker, while items and children run. Every third task
// has a card that is declined, so its items are undone.
func TestChildrenSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	orders := make([]string, 30)
	for i := range orders {
		card := demo.CardWorks
		if i%3 == 0 {
			card = demo.CardDeclined
		}
		orders[i] = fmt.Sprintf(`{"id":"f-%d","workflow":"families","input":{"card":%q}}`, i, card)
	}
	(&upKill{definition: familyWorkflow, exit: exitUndone, args: []string{"--demo", "--workflow", writeIn(t, t.TempDir(), "pays.yaml", paysWorkflow)}, orders: orders,
		ended: func(u *upSystem) {
			for id, state := range map[string]string{"f-0": "undone", "f-1": "processed"} {
				if n := u.waybill(t, exitOK, "task", "list", "--parent", id, "--state", state, "--count", "-o", "jsonl"); n != fmt.Sprintf(`{"state":%q,"tasks":11}`+"\n", state) {
					t.Errorf("%s tasks with the parent %s: %s", state, id, n)
				}
			}
		}}).run(t)
}
