// Package verify checks what Waybill promises (P1 to P19, P21 to P28, in docs/explanation/guarantees.md). It does no I/O:
// it is fed what was written and observed, and reports what is broken. All kinds of tests, `waybill demo` and
// `waybill verify` use it.
//
// One goroutine feeds a Checker. The kinds of feed may come in any order, but each partition of a topic is fed in the
// order of its offsets, committed records only:
//
//	c := verify.New(verify.Options{Inputs: true, Ledger: true, LatestBy: 50 * time.Millisecond})
//	c.EventsThere(p, next)   // of a running system, before its inboxes are read
//	c.Input(r)               // inboxes; before the events if memory matters
//	c.Event(r)               // the log
//	c.Request(r)             // requests to agents
//	c.Deadletter(r)          // dead letters
//	c.Alert(r)               // alerts
//	c.Schedule(r)            // decisions of schedules
//	c.Effect(e)              // the agents' ledger
//	c.Acknowledged(id, at)   // acknowledged submissions
//	c.Read(client, p, off)   // answers, with the offset that they name
//	c.Digest(d)              // of projections, at the offset that they reflect
//	c.Disturbed(p, from, to) // takeovers, during which timers may be late
//	c.Quiet(at)              // all faults are off
//	c.Lag(at, n)             // unconsumed records
//	report := c.Finish(now)  // broker time
//
// What isn't fed is unknown, and is no fault. A missing record counts as a fault only if Options says that its feed is
// complete. An inbox is known to be complete from the first to the last offset that were fed, since it is trimmed.
//
// Finish changes nothing and can be called again after further feeds. So safety can be checked while faults are
// injected, and liveness after Quiet.
//
// Only the first fault of a task's history is reported, since later ones follow from it. Faults of time (P16, P17) are
// reported besides. Report.Timeline collects, in a second pass over the log, the events around the first broken task.
//
// Memory grows with the number of tasks: about 500 bytes for an ended task of three steps (measured), unless Keep
// retains them. Inputs are kept in a short form until they were compared with their event. If InputsRead is called
// before the events are fed, inputs that were trimmed or came later are not waited for. A log that exceeds the memory
// is checked partition by partition, with a Checker for each.
//
// # Files
//
// checker.go has the API. history.go takes each event of the log; event_check.go, plan.go, timers.go, undo.go and
// chain.go compare it with what is known of its task, before and after the fold. inbox.go takes inputs, and
// input_match.go compares each with the event that names it as its cause. request.go, ledger.go, observations.go and
// timing.go and schedules.go take the other feeds. finish.go checks what only the end can show. merge.go combines the checkers of
// partitions. onetask.go checks the events of one task alone. count.go counts attempts and failures independently of the fold: the checks must not rely on the code
// that they check.
package verify
