package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/agent"
)

var errBusy = errors.New("the bank is busy")

// bank is a service that honours the idempotency key.
func bank(_ context.Context, key string, amount int) (string, error) {
	if amount > 1000 {
		return "", errBusy
	}
	return "ch_" + key, nil
}

func ExampleHandlerFunc() {
	h := agent.HandlerFunc(func(ctx context.Context, r agent.Request) (any, error) {
		var in struct{ Amount int }
		if err := r.Into(&in); err != nil {
			return nil, err // a rejection
		}
		if in.Amount <= 0 {
			return nil, agent.Rejected("bad_amount", "the amount must be positive")
		}
		id, err := bank(ctx, r.IdempotencyKey, in.Amount)
		if errors.Is(err, errBusy) {
			return nil, agent.NoEffect(agent.Transient(err))
		}
		return map[string]string{"charge": id}, err
	})
	for _, input := range []string{`{"amount":5}`, `{"amount":0}`, `"five"`, `{"amount":5000}`} {
		output, err := h.Handle(context.Background(), agent.Request{Operation: "charge", IdempotencyKey: "k", Input: json.RawMessage(input)})
		fmt.Println(output, err)
	}
	// Output:
	// map[charge:ch_k] <nil>
	// <nil> the amount must be positive
	// <nil> input of charge: json: cannot unmarshal string into Go value of type struct { Amount int }
	// <nil> the bank is busy
}
