// Package waybill is the Go API of Waybill. It submits orders, waits for their tasks, and serves the
// requests of their steps. The scheduler and the supervisor are separate processes; all communication
// goes through Kafka.
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
// A service serves the steps that name it as their agent, until ctx is done:
//
//	err := waybill.Serve(ctx, cfg, "payments", agent.HandlerFunc(charge))
//
// Package agent explains handlers. Package workflow has workflow definitions, in YAML or in Go.
//
// # Guarantees
//
//   - An order whose Submit returned nil is on all in-sync replicas.
//   - An id names one task. The same order again has no effect, whoever submits it. Another order under
//     a used id is refused.
//   - Wait returns the end of a task also if it came before the call, and across restarts of brokers and
//     schedulers. It reads committed events only.
//   - Get reflects all events that were committed when it was called.
//   - Serve sends no reply at or after a request's complete-by.
//
// # Not guaranteed
//
//   - An acknowledged order is not yet accepted. If its workflow doesn't exist, it becomes a dead letter;
//     Wait then returns a *RefusedError to the client that submitted it.
//   - A handler may be called more than once for a request: see package agent.
//
// # Cost
//
// Waiting for a task that this client submitted reads the log's end. Get, and Wait for any other task,
// ask the console that Config.Console names. Without one they read the task's partition of the log: Get
// from its start, Wait backwards to the task's first event. Concurrent calls of Wait share these reads.
//
// List, Timeline and Follow need a console. Submit and Cancel write to Kafka, with or without one: a
// console may be read-only, and orders mustn't depend on it.
//
// # Files
//
// waybill.go has the configuration and the errors, task.go orders and tasks,
// client.go and cancel.go the client, query.go what a console answers, serve.go
// the agent. internal/logclient waits for tasks and sends commands.
package waybill
