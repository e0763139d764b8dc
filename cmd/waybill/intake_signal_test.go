package main

import (
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestIntakeSignals takes orders and payments from two topics of another application: the one intake submits tasks, the
// other sends their signals. The same payment twice is one signal.
func TestIntakeSignals(t *testing.T) {
	suite.NeedAll(t, "processes that are started and stopped")
	u := startUpProcess(t, "--listen", "127.0.0.1:0")
	seen := observe(t, &u.system)
	u.broker.CreateTopics(t, 1, "shop.orders", "shop.payments")
	u.waybill(t, exitOK, "workflow", "apply", writeFile(t, "paid.yaml", []byte("workflow: paid\nversion: 1\ncomplete_within: 1h\nsteps:\n  pay: {signal: paid, complete_within: 1h}\noutput: {by: \"${ steps.pay.output.data.by }\"}\n")))
	orders := "intake: orders\ntopic: shop.orders\nsubmit: {workflow: paid, id: '${ value.id }'}\n"
	payments := "intake: payments\ntopic: shop.payments\nsignal: {task: '${ value.order }', name: paid, id: '${ value.id }'}\n"
	u.waybill(t, exitOK, "intake", "apply", writeFile(t, "orders.yaml", []byte(orders)), writeFile(t, "payments.yaml", []byte(payments)))
	u.broker.Produce(t, events.Record{Topic: "shop.orders", Value: []byte(`{"id":"o-1"}`)})
	seen.awaitState(t, "o-1", events.StateProcessing) // a signal before would be to no task
	for range 2 {
		u.broker.Produce(t, events.Record{Topic: "shop.payments", Value: []byte(`{"order":"o-1","id":"p-1","by":"card"}`)})
	}
	out := u.waybill(t, exitOK, "task", "wait", "o-1", "--timeout", "2m", "-o", "json")
	if !strings.Contains(out, `"by": "card"`) && !strings.Contains(out, `"by":"card"`) {
		t.Error(out)
	}
	if lines := u.waybill(t, exitOK, "timeline", "o-1", "-o", "jsonl"); strings.Count(lines, "waybill.task.signalled.v1") != 1 || !strings.Contains(lines, "intake payments") {
		t.Error(lines)
	}
}
