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

// transferPart does a part of a transfer, unless it was done under the key before.
func transferPart(context.Context, string, int) error { return nil }

func ExampleProgress() {
	transfer := agent.HandlerFunc(func(ctx context.Context, r agent.Request) (any, error) {
		var done struct{ Parts int }
		if err := r.LastProgress(&done); err != nil {
			return nil, err
		}
		for done.Parts < 10 { // an earlier attempt may have done some
			if err := transferPart(ctx, r.IdempotencyKey, done.Parts); err != nil {
				return nil, err
			}
			done.Parts++
			if err := agent.Progress(ctx, done); err != nil {
				return nil, err // the attempt is over
			}
		}
		return done, nil
	})
	_, err := transfer.Handle(context.Background(), agent.Request{Operation: "transfer", Progress: json.RawMessage(`{"Parts":9}`)})
	fmt.Println(err) // only a run of the library gives handlers a context that takes reports
	// Output: agent: Progress: the context is not a handler's context, nor derived from one
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
