// Package verify holds the checkers of what Waybill promises (P1 to P18 and P24, in
// docs/explanation/guarantees.md). They are pure: what was written and what was seen goes in,
// what is broken comes out. Every ring of tests uses them, the demo, and
// `waybill verify`.
//
// A Checker is fed, by one goroutine, in any order between the kinds of feed,
// but each partition of a topic in the order of its offsets, committed records
// only:
//
//	c := verify.New(verify.Options{Inputs: true, Ledger: true, LatestBy: 50 * time.Millisecond})
//	c.EventsThere(p, next)   // of a system that runs, before its inboxes are read
//	c.Input(r)               // inboxes, before the events where memory counts
//	c.Event(r)               // the log
//	c.Request(r)             // what agents were asked
//	c.Deadletter(r)          // what was refused
//	c.Alert(r)               // what operators were told
//	c.Effect(e)              // the agents' ledger
//	c.Acknowledged(id, at)   // submissions that the producer's broker took
//	c.Read(client, p, off)   // answers, with the offset that they name
//	c.Digest(d)              // of projections, at the offset that they reflect
//	c.Disturbed(p, from, to) // takeovers: timers may be late
//	c.Quiet(at)              // all faults are off
//	c.Lag(at, n)             // records that nobody has consumed
//	report := c.Finish(now)  // broker time
//
// What isn't fed is unknown, and never a fault: nothing is concluded from an
// absence unless Options says that the feed is whole. Of an inbox it is known to
// be whole from the first to the last offset that were fed: it is trimmed below.
//
// Finish changes nothing. It may be asked for again after more was fed, so that
// safety can be checked while faults go on, and liveness after Quiet.
//
// A task has one fault of its history at most; what follows from it isn't told.
// Faults of time (P16, P17) are told beside it. Report.Timeline collects, in a
// second pass over the log, the events around the first broken task.
//
// Memory goes with tasks: some 500 bytes for one of three steps that has ended
// (measured), unless Keep keeps them whole. Inputs are kept in short until they
// have met the event that they led to; with InputsRead before the events, what
// was trimmed or came later isn't waited for. A log too large for memory is checked partition
// by partition, with a Checker for each.
//
// # Files
//
// checker.go is the door. history.go takes each event of the log: event_check.go, plan.go, timers.go,
// undo.go and chain.go hold it against what is known of its task, before and after the fold. inbox.go
// takes inputs, and input_match.go holds each against the events that name it as their cause. request.go,
// ledger.go, observations.go and timing.go take the rest. finish.go concludes what only the end can tell,
// merge.go makes one checker of one for each partition. count.go counts attempts and failures apart
// from the fold: the checkers must not lean on what they check.
package verify
