// Package agent is the Go implementation of the contract between Waybill and the services that do the
// work; docs/guides/agents.md has the contract for any language. It consumes the requests of one agent,
// calls a Handler for each, and replies.
//
//	for each request of the session {
//		complete-by is over          -> send nothing
//		circuit is open              -> wait, or reply failed, effect none, retry after
//		output, err := Handle(ctx)   -> ctx is done at complete-by
//		transient, and time is left  -> back off and call again
//		reply, acknowledged          -> commit the request's offset
//		complete-by passes meanwhile -> send nothing; commit the offset
//		no progress in a heartbeat   -> the same
//	}
//
// # Guarantees
//
//   - No reply is sent at or after complete-by. The clock is read right before each send, whose context is
//     done at complete-by.
//   - A request's offset is committed only after its reply was acknowledged, or its attempt was ended by complete-by or
//     by a silence of a whole heartbeat. If the process dies before, another instance gets the request. There are two
//     exceptions, which a Listener reports. A record without the headers of a request is skipped (Malformed). A reply
//     that the topic refuses even after it was shortened is dropped (SendFailed, Dropped); its attempt expires.
//   - At most Config.Concurrency handlers run at once, including those that ignore their context.
//   - A rejection means that the attempt had no effect. If an earlier call of the same attempt may have had one,
//     the rejection is replied as failed with unknown effect, so that the scheduler can undo it.
//   - A reply without effect (a rejection, or a failure with effect none) is not sent once the request's partition
//     was reassigned, because the new owner may be calling the handler. A rebalance waits for the acknowledgement of
//     one that is being sent. After it was acknowledged, the offset is committed at once.
//   - A failure is not replied as one without effect if a previous owner of the partition may have started the
//     request and died during the call.
//
// # Not guaranteed
//
// A request may be handled more than once. A crash, a rebalance or a lost acknowledgement repeats the same
// attempt, with the same Request.ID. Services make repetitions harmless by the idempotency key.
//
// Repetitions may be answered differently, unless the service prevents it. The first reply counts. So a key that
// was rejected must never be done, and an attempt that failed without effect must have none when it is
// repeated. A service ensures that by what it stores under the key, or by answers that follow from the request
// alone. Two kinds of failure don't reach the service: an open circuit and a refused connection. Their replies
// are wrong if the same attempt is called elsewhere afterwards. That takes a process that dies between the acknowledgement
// and the commit right after it, or a removed member that goes on.
//
// A reply may arrive after complete-by. A process can be stopped between the check and the socket's write, and
// networks can be slow. Contexts use the monotonic clock, which runs while a process is stopped (SIGSTOP)
// but may pause while a machine sleeps. The check before each send uses the brokers' clock, as corrected by
// the first record that is read afterwards. The scheduler accepts a late reply if it has not recorded the
// attempt's end, and ignores it otherwise: the order of the log decides.
//
// # Files
//
// Services use handler.go and failure.go. attempt.go decides, as pure functions, what follows each call.
// circuit.go has a breaker for each downstream. run.go joins the group, checks the health and leaves.
// membership.go is the bounded pool of workers of one membership, slots.go the slots of the pool, and
// execution.go works on one request.
package agent
