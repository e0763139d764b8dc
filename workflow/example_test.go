package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/workflow"
)

// The sample order.yaml, built in Go.
func ExampleNew() {
	order, err := workflow.New("order", 1).
		CompleteWithin(30 * time.Minute).
		OnError(workflow.OnErrorUndo).
		AttemptWithin(10 * time.Second).
		Retry(workflow.Retry{
			MaxAttempts: 5,
			Backoff:     workflow.Duration(200 * time.Millisecond),
			Factor:      2,
			Max:         workflow.Duration(30 * time.Second),
			CoolDown:    workflow.Duration(5 * time.Minute),
		}).
		Step(workflow.Step{
			ID: "reserve", Agent: "inventory", Operation: "reserve",
			Input: map[string]string{"order": "${ task.id }", "items": "${ input.items }"},
			Undo:  &workflow.Undo{Operation: "release"},
		}).
		Step(workflow.Step{
			ID: "charge", Needs: []string{"reserve"}, Agent: "payments", Operation: "charge",
			When:  "${ input.total > 0 }",
			Input: map[string]string{"amount": "${ input.total }", "card": "${ input.card }"},
			Undo:  &workflow.Undo{Operation: "refund"},
		}).
		Step(workflow.Step{
			ID: "ship", Needs: []string{"charge"}, Agent: "shipping", Operation: "create",
			Input: map[string]string{"order": "${ task.id }", "address": "${ input.address }"},
		}).
		Output(map[string]string{"tracking": "${ steps.ship.output.tracking }"}).
		Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(order.Key(), bytes.Equal(order.JSON(), workflow.Order().JSON()))
	// Output: order/1 true
}

func ExampleProgram_Input() {
	program, err := workflow.Compile(workflow.Order())
	if err != nil {
		fmt.Println(err)
		return
	}
	scope := workflow.Scope{TaskID: "o-17", Input: json.RawMessage(`{"total": 12.50, "card": "tok_1"}`)}
	charge := program.Definition().Index("charge")
	run, err := program.When(charge, scope)
	fmt.Println(run, err)
	input, err := program.Input(charge, scope)
	fmt.Println(string(input), err)
	ship := program.Definition().Index("ship")
	_, err = program.Input(ship, scope)
	fmt.Println(err)
	// Output:
	// true <nil>
	// {"amount":12.50,"card":"tok_1"} <nil>
	// order.yaml:25:54: steps.ship.input.address: ${ input.address } failed: no such key: address; send the member, or test it first with has(...)
}

func ExampleParseYAML() {
	_, err := workflow.ParseYAML("refund.yaml", []byte(`
workflow: refund
version: 1
complete_within: 5m
steps:
  check: {agent: fraud, operation: check, complete_within: 10}
  pay: {agent: payments, operation: refund, need: [chekc], input: {to: "${ steps.check.output.iban }"}}
`))
	fmt.Println(err)
	// Output:
	// refund.yaml:6:60: steps.check.complete_within: 10 is a number without a unit; write 10s for seconds, or ms, m, h
	// refund.yaml:7:3: steps.pay.complete_within: missing; give the step a deadline such as complete_within: 10s, or all of them one in defaults
	// refund.yaml:7:45: steps.pay.need: no such field; did you mean needs?
	// refund.yaml:7:76: steps.pay.input.to: steps.check is used, but check isn't in needs, neither directly nor through others; add check to the step's needs
}
