// Command hello submits an order and serves the one step of its workflow.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
)

func greet(_ context.Context, r agent.Request) (any, error) {
	var in struct{ Name string }
	err := r.Into(&in)
	return fmt.Sprintf("Hello, %s! (said by process %d, key %s)", in.Name, os.Getpid(), r.IdempotencyKey), err
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	brokers := strings.Split(cmp.Or(os.Getenv("WAYBILL_BROKERS"), "127.0.0.1:9092"), ",")
	cfg, served := waybill.Config{Brokers: brokers, Namespace: os.Getenv("WAYBILL_NAMESPACE")}, make(chan error, 1)
	go func() { defer stop(); served <- waybill.Serve(ctx, cfg, "greeter", agent.HandlerFunc(greet)) }()
	client, err := waybill.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Submit(ctx, waybill.Order{ID: "hello-1", Workflow: "hello", Input: map[string]string{"name": "world"}}); err != nil {
		log.Fatal(err)
	}
	task, err := client.Wait(ctx, "hello-1")
	stop() // the agent commits what it has done, and ends
	fmt.Println(task.State, string(task.Output), errors.Join(err, <-served))
}
