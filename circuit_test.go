package waybill_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/suite"
)

// testCircuit: a failing operation fails its own orders, and doesn't affect orders of other operations.
func testCircuit(t *testing.T, s *system) {
	suite.NeedAll(t, "circuits that open and close")
	s.serve(t, "store", agent.HandlerFunc(func(_ context.Context, r agent.Request) (any, error) {
		if r.Operation == "charge" {
			return nil, agent.Transient(errors.New("503"))
		}
		return nil, nil
	}), waybill.Concurrency(4))
	var orders []waybill.Order
	for n := range 50 {
		if n < 20 {
			orders = append(orders, waybill.Order{ID: fmt.Sprintf("broken-%d", n), Workflow: "broken"})
		}
		orders = append(orders, waybill.Order{ID: fmt.Sprintf("beside-%d", n), Workflow: "beside"})
	}
	for id, task := range s.runAll(t, orders) {
		want := waybill.Processed
		if task.Workflow == "broken" {
			want = waybill.Undone
		}
		if task.State != want {
			t.Errorf("%s is %s; want %s", id, task.State, want)
		}
	}
}

// testUndoCircuit: undos that an open circuit refuses wait until it closes. Each has three attempts. The circuit is
// open for longer than one of them lasts. No task is held.
func testUndoCircuit(t *testing.T, s *system) {
	suite.NeedAll(t, "circuits that open and close")
	const failing = 4 // calls that open the circuit, and one when it is half-open
	var calls, refused atomic.Int64
	s.serve(t, "storeroom", agent.HandlerFunc(func(_ context.Context, r agent.Request) (any, error) {
		switch r.Operation {
		case "ship":
			return nil, agent.Rejected("no", "nothing is shipped")
		case "unbook":
			if calls.Add(1) <= failing {
				refused.Add(1)
				return nil, agent.NoEffect(errors.New("503"))
			}
		}
		return nil, nil
	}), waybill.Tune(func(c *agent.Config) {
		c.Concurrency = 3
		c.Breaker = agent.Breaker{Failures: failing - 1, OpenFor: 6 * time.Second}
	}))
	var orders []waybill.Order
	for n := range 60 {
		orders = append(orders, waybill.Order{ID: fmt.Sprintf("undoing-%d", n), Workflow: "undoing"})
	}
	for id, task := range s.runAll(t, orders) {
		if task.State != waybill.Undone {
			t.Errorf("%s is %s; want %s", id, task.State, waybill.Undone)
		}
	}
	if refused.Load() != failing {
		t.Errorf("%d calls failed; want %d", refused.Load(), failing)
	}
}

// runAll submits orders and returns their results.
func (s *system) runAll(t *testing.T, orders []waybill.Order) map[string]waybill.Task {
	t.Helper()
	ctx, c := t.Context(), s.open(t)
	if err := c.Submit(ctx, orders...); err != nil {
		t.Fatal(err)
	}
	became := map[string]waybill.Task{}
	for _, o := range orders {
		task, err := c.Wait(ctx, o.ID)
		if err != nil {
			t.Fatalf("%s: %v", o.ID, err)
		}
		became[o.ID] = task
	}
	return became
}
