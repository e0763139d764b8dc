package main

import (
	"testing"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestUpKilledInTheMiddle kills `up` with kill -9 amid 1,000 tasks, restarts it, and submits the same file again. Each
// task ends exactly once.
func TestUpKilledInTheMiddle(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 1000
	orders := unattended(demo.Orders(tasks, 3, true))
	file := ordersFile(t, orders, "quick")
	u := startUpProcess(t, "--demo", "--workflow", quickWorkflow(t, "quick", "undo", callAttempts))
	seen := observe(t, &u.system)
	for _, share := range []int{4, 2} {
		submit := startProcess(t, u.env(), "submit", "-f", file)
		ended := seen.awaitEnded(t, tasks/share)
		u.kill()
		submit.kill() // it may have ended
		if ended >= tasks {
			t.Fatalf("all %d tasks had ended before the kill: it proves nothing", ended)
		}
		t.Logf("killed with %d of %d tasks ended and %d lines in the ledger", ended, tasks, lines(t, u.ledger()))
		u.start(t)
	}
	u.waybill(t, exitError, "submit", "-f", file, "--wait", "--timeout", "60s") // some are held
	checkOrders(t, &u.system, seen.inputs, u.ledger(), orders)
	u.stop(t)
}
