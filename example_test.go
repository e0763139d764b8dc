package waybill_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
)

// An application submits an order and waits for its result.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := waybill.Open(ctx, waybill.Config{Brokers: []string{"127.0.0.1:9092"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	order := waybill.Order{ID: "o-1", Workflow: "order", Input: map[string]any{
		"items": []any{map[string]any{"sku": "s1", "qty": 1}}, "total": 9.5, "card": "tok", "address": "1 Harbour Road",
	}}
	if err := client.Submit(ctx, order); err != nil {
		log.Fatal(err) // submit it again: it isn't run twice
	}
	task, err := client.Wait(ctx, order.ID)
	if err != nil {
		log.Fatal(err)
	}
	switch task.State {
	case waybill.Processed:
		fmt.Println(string(task.Output))
	case waybill.Undone, waybill.Cancelled:
		fmt.Println("nothing of it remains:", task.Error)
	case waybill.Held:
		fmt.Println("an operator has to look:", task.Error)
	}
}

// A service handles the steps that name it as their agent, until it is interrupted.
func ExampleServe() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	charge := agent.HandlerFunc(func(ctx context.Context, r agent.Request) (any, error) {
		var in struct{ Amount float64 }
		if err := r.Into(&in); err != nil {
			return nil, err
		}
		if in.Amount <= 0 {
			return nil, agent.Rejected("bad_amount", "the amount must be positive")
		}
		// r.IdempotencyKey is the same for every attempt at this step.
		return map[string]string{"charge": "ch-" + r.IdempotencyKey}, nil
	})
	cfg := waybill.Config{Brokers: []string{"127.0.0.1:9092"}}
	if err := waybill.Serve(ctx, cfg, "payments", charge, waybill.Concurrency(16)); err != nil {
		log.Fatal(err)
	}
}

// Call Wait in several goroutines to wait for several tasks.
func ExampleClient_Wait() {
	ctx := context.Background()
	client, err := waybill.Open(ctx, waybill.Config{Brokers: []string{"127.0.0.1:9092"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ids := []string{"o-1", "o-2", "o-3"}
	ended := make(chan waybill.Task, len(ids))
	for _, id := range ids {
		go func() {
			task, err := client.Wait(ctx, id)
			if refused := (*waybill.RefusedError)(nil); errors.As(err, &refused) {
				log.Print("not accepted: ", refused.Reason)
			}
			ended <- task
		}()
	}
	for range ids {
		task := <-ended
		fmt.Println(task.ID, task.State)
	}
}

// Cancel undoes completed steps. Notify the customer after Wait has returned.
func ExampleClient_Cancel() {
	ctx := context.Background()
	client, err := waybill.Open(ctx, waybill.Config{PropertiesFile: "client.properties"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Cancel(ctx, "o-1", waybill.CancelOptions{By: "service desk", Why: "the customer called", RequestID: "call-4711"})
	if errors.Is(err, waybill.ErrNotFound) {
		fmt.Println("there is no such order")
		return
	}
	if err != nil {
		log.Fatal(err) // a *waybill.RefusedError if it has ended
	}
	task, err := client.Wait(ctx, "o-1")
	fmt.Println(task.State, err)
}

// With a console, the client lists tasks and their events.
func ExampleClient_List() {
	ctx := context.Background()
	client, err := waybill.Open(ctx, waybill.Config{
		Brokers: []string{"127.0.0.1:9092"},
		Console: waybill.Console{URL: "http://127.0.0.1:8080"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for task, err := range client.List(ctx, waybill.Query{Workflow: "order", States: []waybill.State{waybill.Held}}) {
		if err != nil {
			log.Fatal(err)
		}
		timeline, err := client.Timeline(ctx, task.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(task.ID, task.StepsInError, timeline[len(timeline)-1].Type)
	}
}
