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

// The tests of kills have the same shape: tasks come to a point, processes are killed with kill -9, and every task ends
// as if nothing had happened. Each test says which point that is, and what must be true at the end.

// startShop starts two schedulers, two supervisors and some agents of the service at url, and waits until they share the
// work.
func (c *cluster) startShop(url string, agents int) {
	c.t.Helper()
	for i := range 2 {
		c.scheduler(fmt.Sprint("scheduler-", i+1))
		c.supervisor(fmt.Sprint("supervisor-", i+1))
	}
	for i := range agents {
		c.agent(fmt.Sprint("agent-", i+1), url+"/shop/{operation}", 3*time.Second)
	}
	ns := c.cfg.Namespace
	c.owners(ns.SchedulerGroup(), 4, suite.Patience)
	c.owners(ns.SupervisorGroup(), 2, suite.Patience)
	c.owners(ns.AgentGroup("shop"), agents, suite.Patience)
}

// submitNumbered submits n tasks, 100 a second, and returns their ids.
func (c *cluster) submitNumbered(ctx context.Context, n int) []string {
	c.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%05d", i)
	}
	if err := c.submit(ctx, ids, 100); err != nil {
		c.t.Fatal(err)
	}
	return ids
}

// killFirst kills the first process of each role.
func (c *cluster) killFirst(roles ...string) {
	for _, role := range roles {
		c.kill(role + "-1")
	}
}

// awaitProcessed waits until n tasks have ended, and reports those that aren't processed.
func (c *cluster) awaitProcessed(n int) {
	c.t.Helper()
	c.await("all tasks ended", suite.Patience, func() bool { return len(c.ended) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.ended {
		if s != events.StateProcessed {
			c.t.Errorf("task %s ended %s", id, s)
		}
	}
}

// upKill is a test that kills `up` with kill -9, with its embedded broker, while tasks run.
type upKill struct {
	definition string
	args       []string // of `up`, besides the definition
	orders     []string // lines of JSON
	exit       int      // of submit --wait; 0: all tasks are processed
	// ready is called before the orders are submitted, killing before the kill, restarted after it, and ended when all
	// tasks have ended; nil: nothing.
	ready, killing, restarted, ended func(u *upSystem)
}

// run submits the orders, kills `up` once all tasks run, and starts it again. Each task ends, and the log keeps all
// promises.
func (k *upKill) run(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	file, orders := filepath.Join(dir, "definition.yaml"), filepath.Join(dir, "orders.jsonl")
	for name, text := range map[string]string{file: k.definition, orders: strings.Join(k.orders, "\n") + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u := startUpProcess(t, append(k.args, "--workflow", file)...)
	call := func(hook func(*upSystem)) {
		if hook != nil {
			hook(u)
		}
	}
	seen := observe(t, &u.system)
	call(k.ready)
	u.waybill(t, exitOK, "submit", "-f", orders)
	seen.await(t, "all tasks run", func() bool { return seen.begun() == len(k.orders) })
	call(k.killing)
	u.kill()
	u.start(t)
	call(k.restarted)
	u.waybill(t, k.exit, "submit", "-f", orders, "--wait", "--timeout", "10m")
	if n := seen.awaitEnded(t, len(k.orders)); n != len(k.orders) {
		t.Errorf("%d tasks ended", n)
	}
	call(k.ended)
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}

// numberedOrders returns n orders of a workflow.
func numberedOrders(workflow string, n int) []string {
	orders := make([]string, n)
	for i := range orders {
		orders[i] = fmt.Sprintf(`{"id":"%s-%d","workflow":%q}`, workflow, i, workflow)
	}
	return orders
}
