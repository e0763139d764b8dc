// Package agent is the Go side of the contract between Waybill and whoever
// does the work (docs/guides/agents.md has it for any language): it consumes the
// requests of one agent, calls a Handler for each, and replies.
//
//	for each request of the session {
//		late?                        -> nothing: whoever asked has given up
//		circuit of the operation     -> open: wait, or reply failed, effect none, retry after
//		output, err := Handle(ctx)   -> ctx ends at complete-by
//		transient, and time is left  -> back off and call again
//		reply, acknowledged          -> the request's offset is done
//		complete-by passes anywhere  -> nothing is sent; the offset is done
//	}
//
// # Guarantees
//
// No reply is begun at or after complete-by: the clock is read right before
// every produce call, and that call's context ends at complete-by. A request is
// done only once its reply was acknowledged or its time is over, so that a
// process that dies leaves its work to another. No more than
// Config.Concurrency handlers run at once, those included that ignore their
// context.
//
// A rejection says that nothing happened. So one that follows, within the same
// attempt, a call which may have had an effect is replied as failed with unknown
// effect, and the scheduler remembers that there may be something to undo.
//
// That nothing happened (a rejection, or a failure without effect) is not said
// of a request whose partition is another instance's by then, who may be at it;
// and once it is said and acknowledged, the request's offset is committed at once
// and not in its turn.
//
// Nor is a failure said to be without effect where the request was there before
// its partition came: whoever had that may have begun the attempt, and have died
// within the call.
//
// # Not guaranteed
//
// That a request is handled once: a crash, a rebalance or a lost acknowledgement
// repeats it, the same attempt under the same Request.ID. The idempotency key is
// what makes a repetition harmless.
//
// That a repetition is answered as before: that is the service's part. The first
// reply is believed. A key that was rejected must never happen; an attempt that
// failed without effect must have none when it comes again. A service keeps to it
// by what it stores under the key, or by answers that follow from the request
// alone. What no key can hold to, since the service didn't see the request (a
// circuit that is open, a connection that was refused), is wrong if the process
// dies between the acknowledgement of the reply and the commit right after it, or
// if another that the group has given up goes on and has the same attempt.
//
// That nothing arrives after complete-by: a process stopped between the check
// and the socket's write, or a slow network, can deliver late. Contexts end
// by the monotonic clock, which runs on while a process is stopped (SIGSTOP)
// but may stand still while a machine sleeps; the check before each produce
// call goes by the broker's time, which the first record that is read
// afterwards corrects. What is late all the same the scheduler accepts if it
// hasn't recorded the attempt's end yet, and ignores after that: the order of
// the log decides, not a clock.
//
// # Files
//
// handler.go and failure.go are what a service writes against; attempt.go
// decides, purely, what follows each call; circuit.go keeps a breaker for each
// downstream; membership.go is the bounded pool of one stay in the consumer group, and
// slots.go what waits outside of it;
// execution.go takes one request through; run.go joins, watches health and leaves.
package agent
