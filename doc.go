// Package waybill is the Go API of Waybill: it submits orders, waits for what
// becomes of them, and serves their steps. Waybill itself (the scheduler, the
// supervisor, the command line) runs elsewhere; they meet on Kafka.
//
//	client.Submit(ctx, order) ──> waybill.tasks ──> scheduler ──> waybill.requests.<agent> ──> Serve
//	client.Wait(ctx, id)      <── waybill.events <─────┘  └─────<── waybill.replies <─────────────┘
//
// An application submits and waits:
//
//	client, err := waybill.Open(ctx, waybill.Config{Brokers: []string{"127.0.0.1:9092"}})
//	err = client.Submit(ctx, waybill.Order{ID: "o-1", Workflow: "order", Input: order})
//	task, err := client.Wait(ctx, "o-1")   // task.State: Processed, Undone, Cancelled or Held
//
// A service serves the steps that name it as their agent, until ctx ends:
//
//	err := waybill.Serve(ctx, cfg, "payments", agent.HandlerFunc(charge))
//
// How a handler is written is in package agent; definitions of workflows, in
// YAML or in Go, are in package workflow.
//
// # Guarantees
//
//   - An order whose Submit returned nil is on all in-sync replicas.
//   - An id names one task: the same order again changes nothing, whoever
//     submits it, and another order under a used id is refused.
//   - Wait returns the end of a task also if it came before Wait was called, and
//     across restarts of brokers and schedulers. What it returns is committed.
//   - What Get returns reflects everything that was committed when it was called.
//   - Serve sends no reply at or after a request's complete-by.
//
// # Not guaranteed
//
//   - That an acknowledged order is accepted: of a workflow that doesn't exist it
//     becomes a dead letter. Wait tells the client that submitted it.
//   - That a handler is called once for a request: see package agent.
//
// # Cost
//
// There is no query service behind this package: it reads the log. A task that
// this client submitted is found at the log's end. Any other (Get, Wait of a
// foreign id) costs one read of its partition from the start; waits that begin
// together share it.
//
// # Files
//
// waybill.go has the configuration and the errors, task.go orders and tasks,
// client.go and cancel.go the client, serve.go the agent. eventlog.go reads the
// log, fold.go folds a task's events, and waiter.go and waiter_read.go are the one
// reader behind all calls of Wait.
package waybill
