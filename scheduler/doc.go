// Package scheduler is the role that owns tasks: the only writer of events. It
// decides what runs next, and records every transition on Kafka before it
// believes in it.
//
// # Overview
//
// A scheduler process runs workers. A worker is one member of the scheduler group
// with one transactional producer, and one goroutine that owns the state of
// the worker's partitions:
//
//	for {
//		reconcile()            // drop what went, restore what came
//		records := poll()      // inputs of partitions that may act
//		tx := begin()
//		for each record {
//			input := decode(record)         // or a dead letter, or a forward
//			task := tx.task(input.task)     // a copy
//			d := Decide(task, input, now)   // pure
//			tx.add(d)
//			for each step that has a slot now { tx.add(Start(step)) }
//		}
//		if commit(tx.records) { accept(tx) } else { forget(tx) }
//	}
//
// Decide (decide.go, submit.go, plan.go, task_notifications.go) is pure: state, input and
// time go in, events and the records that they mean to others come out. The
// loop (worker.go, transaction.go, forward.go, partition.go) acts, and runs under run.go.
//
// # What it guarantees
//
// Every transition is an event, committed in one transaction with the requests
// and notifications that follow from it and with the offsets of the inputs that
// led to it. No transaction is committed that consumed nothing, so the group's
// generation fences every write of an owner that lost its place. An input that
// the state reflects already (its offset is below the one that the fold keeps
// for its inbox) is skipped, whatever the group's offsets say. A partition acts
// only after it was restored to the high watermark seen after its assignment.
// Speculative state is dropped with its transaction; an uncertain end of one
// closes the client, and the log says what happened.
//
// A partition is restored from its store, from its snapshot if that is nearer to
// the end of the log, or from all of the log (restore.go). From a snapshot it acts
// as soon as the open tasks are there and the events after it are applied; until
// the ids of finished tasks are there too, submissions wait, and so does any input
// about a task that isn't open. Snapshots are written in the same transactions, of
// the state before them; nothing waits for one.
//
// What the cluster won't take is tried again; from the second time on only the partition
// whose input led to it waits (refused_output.go).
//
// # Flow to agents
//
// An agent may have so many requests outstanding, and no more (flow_control.go); what is more
// waits as a state of its task, in a queue that follows from the tasks (run_queue.go). How
// many is configured, or found out (internal/congestion): few at first, more as answers come
// early, and by the rate of its answers once attempts time out. Who says nothing is
// probed (agent_health.go). Start (start.go) is Decide for a step whose turn it is. An input
// that freed a slot is the cause of what begins then. docs/internals/flow.md
// has the rules.
//
// # Admission
//
// A worker pauses submissions while agents have too much at work (admission.go). A step counts if its
// agent has been sent it, or if it waits for an agent that answers. Neither an agent nor a workflow
// counts for more than a quarter of Config.MaxRunnable, so the backlog of one never stops others. What
// an agent that never answered leaves waiting doesn't count, up to a bound of memory.
//
// # What it doesn't
//
// It fires no timers: a supervisor asks. It judges no effect: an attempt that
// timed out is unknown. What leaves no event (a forward, a dead letter, the
// refusal of a control) may be doubled by a crash at the wrong instant; such
// records name their origin.
package scheduler
