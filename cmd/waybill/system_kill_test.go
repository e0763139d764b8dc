package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
)

// kill -9 of `up` in the middle of 2,000 tasks, a restart, and the same file
// submitted again: all end once.
func TestUpKilledInTheMiddle(t *testing.T) {
	const tasks = 2000
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
	log := checkLog(t, &u.system)
	checkOrders(t, log, u.ledger(), orders)
	u.stop(t)
}

// A role that ends closes its store. What the process says must be why the role
// ended, not that the store was closed.
func TestAClosedStoreHidesNoReason(t *testing.T) {
	n := &node{cfg: kafka.Config{Namespace: events.DefaultNamespace}, dataDir: t.TempDir(), clusterID: "c", partitions: 1, log: slog.New(slog.DiscardHandler)}
	why := errors.New("why")
	err := n.run(t.Context(), func(ctx context.Context) error {
		s, err := n.store(ctx, projections.ViewTasks)
		if err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
		select {
		case <-ctx.Done(): // by somebody else's error
		case <-time.After(100 * time.Millisecond):
		}
		return why
	})
	if !errors.Is(err, why) {
		t.Errorf("the process ends with %v, want the role's reason", err)
	}
}
