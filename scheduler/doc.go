// Package scheduler is the role that owns tasks. It is the only writer of events: it decides what runs next and commits
// every transition to Kafka before it changes its own state.
//
// # Overview
//
// A scheduler process runs workers. A worker is one member of the scheduler group with one transactional producer, and
// one goroutine that owns the state of the worker's partitions:
//
//	for {
//		reconcile()            // drop revoked partitions, restore assigned ones
//		records := poll()      // inputs of restored partitions
//		tx := begin()
//		for each record {
//			input := decode(record)         // or a dead letter, or a forward
//			task := tx.task(input.task)     // a copy
//			d := Decide(task, input, now)   // pure
//			tx.add(d)
//			for each queued step that has a slot now { tx.add(Start(step)) }
//		}
//		if commit(tx.records) { accept(tx) } else { rollback(tx) }
//	}
//
// Decide (decide.go, submit.go, plan.go, task_notifications.go) is pure: its arguments are the state, an input and the
// time; its result is the events and the records that follow. The loop (worker.go, transaction.go, forward.go,
// partition.go) does the I/O. run.go runs the workers.
//
// # Guarantees
//
// Every transition is an event. One transaction commits it with the requests and notifications that follow from it and
// with the offsets of the inputs that caused it. A transaction without inputs is never committed, so the group's
// generation fences every write of an owner that lost its partition. An input below the offset that the state reflects
// for its inbox is skipped, whatever the group's offsets are. A partition acts only after it was restored to the high
// watermark seen after its assignment. Speculative state is dropped with its transaction. If the outcome of a
// transaction is unknown, the worker closes its client, and the log shows the outcome.
//
// A partition is restored from its store, from its snapshot if that is nearer to the end of the log, or from the whole
// log (restore.go). After a restore from a snapshot it acts as soon as the open tasks are loaded and the later events
// are applied. Until the ids of finished tasks are loaded, submissions wait, and so do inputs about tasks that aren't
// open. Snapshots are written in the same transactions, of the state before them. They delay nothing.
//
// Output that the cluster refuses is retried. From the second refusal on, only the partition whose input caused the
// output is paused (refused_output.go).
//
// # Flow to agents
//
// The number of requests outstanding at an agent is limited (flow_control.go). Further steps wait in a queue that is
// derived from the tasks (run_queue.go). The limit is configured or measured (internal/congestion). A silent agent
// receives probes only (agent_health.go). Start (start.go) is Decide for a queued step that has a slot. The input that
// freed the slot is the cause of the events. docs/internals/flow.md has the rules.
//
// # Admission
//
// A worker pauses submissions while agents have too much at work (admission.go). A step counts if it was sent to its
// agent, or if it waits for an agent that answers. One agent or one workflow counts at most a quarter of
// Config.MaxRunnable, so its backlog never stops others. Steps that wait for an agent that never answered don't count,
// up to a limit that bounds memory.
//
// # Non-guarantees
//
// The scheduler fires no timers: a supervisor asks for a recovery. It doesn't know the effect of an attempt that timed
// out: the effect is unknown. A crash may duplicate what writes no event: a forward, a dead letter, the refusal of a
// control. Such records name their origin.
package scheduler
