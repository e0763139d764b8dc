package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/workflow"
)

// longestWait is the longest wait of the policies below: the cool-down of the workflow held.
const longestWait = 5 * time.Second

// definitions are the workflows under chaos: a sequence; branches with a condition; one that is held for an operator
// after a cool-down; one whose own deadline may pass first.
var definitions = []string{`
workflow: chain
version: 1
complete_within: 10m
on_error: undo
defaults:
  complete_within: 3s
  retry: {max_attempts: 3, backoff: 100ms, factor: 2, max: 1s}
steps:
  reserve: {agent: inventory, operation: reserve, input: {order: "${ task.id }"}, undo: {operation: release}}
  charge: {needs: [reserve], agent: payments, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
  ship: {needs: [charge], agent: shipping, operation: create, input: {order: "${ task.id }"}, undo: {operation: recall}}
output: {tracking: "${ steps.ship.output.tracking }"}
`, `
workflow: fan
version: 1
complete_within: 10m
on_error: undo
defaults:
  complete_within: 3s
  retry: {max_attempts: 4, backoff: 50ms, factor: 2, max: 500ms}
steps:
  reserve: {agent: inventory, operation: reserve, input: {order: "${ task.id }"}, undo: {operation: release}}
  charge: {agent: payments, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
  insure: {agent: shipping, operation: insure, when: "${ input.total > 100.0 }", input: {total: "${ input.total }"}, undo: {operation: refund}}
  ship: {needs: [reserve, charge, insure], agent: shipping, operation: create, input: {order: "${ task.id }"}, undo: {operation: recall}}
  thank: {needs: [ship], agent: shipping, operation: thank, input: {order: "${ task.id }"}}
`, `
workflow: held
version: 1
complete_within: 10m
on_error: hold
defaults:
  complete_within: 2s
  retry: {max_attempts: 2, backoff: 200ms, factor: 2, max: 1s, cool_down: 5s}
steps:
  reserve: {agent: inventory, operation: reserve, input: {order: "${ task.id }"}, undo: {operation: release}}
  charge: {needs: [reserve], agent: payments, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
`, `
workflow: brief
version: 1
complete_within: 8s
on_error: undo
defaults:
  complete_within: 2s
  retry: {max_attempts: 5, backoff: 500ms, factor: 2, max: 2s}
steps:
  charge: {agent: payments, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
  ship: {needs: [charge], agent: shipping, operation: create, input: {order: "${ task.id }"}, undo: {operation: recall}}
`}

// workflows are the names of the definitions, weighted by their share of submissions.
var workflows = []string{"chain", "chain", "chain", "fan", "fan", "held", "brief"}

// cards are the demo's cards, weighted by their share of orders.
var cards = []string{demo.CardWorks, demo.CardWorks, demo.CardWorks, demo.CardWorks, demo.CardWorks, demo.CardWorks, demo.CardWorks,
	demo.CardDeclined, demo.CardSlow, demo.CardDown, demo.CardStuckUndo}

// repliesTo is a topic to which the results of some orders are sent.
const repliesTo = "told"

// prepare creates the namespace's topics and applies the definitions.
func prepare(ctx context.Context, t *testing.T, cfg kafka.Config) {
	t.Helper()
	admin, producer := openClients(t, cfg)
	topics := kafkaadmin.CreateTopicsOptions{Partitions: events.DefaultPartitions, Agents: map[string]int32{}}
	for _, name := range demo.ServiceNames {
		topics.Agents[name] = events.DefaultPartitions
	}
	if _, err := admin.CreateTopics(ctx, topics); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.EnsureTopic(ctx, repliesTo, 1); err != nil {
		t.Fatal(err)
	}
	for i, text := range definitions {
		d, err := workflow.ParseYAML(fmt.Sprintf("workflow %d", i), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r := events.Record{Topic: cfg.Namespace.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
			Headers: events.CloudHeaders(events.TypeDefinition, "chaos", d.Key())}
		if err := producer.Send(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
}
