// Package agentsession is an agent's membership in the consumer group of its requests. Requests are finished in any
// order, and replies are sent by their deadline or not at all.
//
//	for {
//		requests := session.Poll(ctx)                  // committed ones only
//		for each request, concurrently:
//			ctx := session.HeldContext(partition)      // ends when the partition is reassigned
//			work(ctx, until complete-by)
//			session.Send(until complete-by, reply)     // acknowledged, or past its deadline
//			session.Done(partition, offset)            // in any order
//	}
//
// Tracker has the finished requests of a partition, and encodes them in the metadata of commits. circuit.go publishes the
// state of an agent's circuits in the same metadata, and may_have_started.go says which requests an earlier owner may have
// begun.
//
// # Guarantees
//
//   - A reply for which Send returned nil is on all in-sync replicas.
//   - An offset is committed only if every request below it is Done. Requests that are Done above it are not delivered to
//     the next owner again, as far as 4096 bytes of metadata can list them.
//   - A reply that was not sent at its context's deadline is never written.
//   - A partition that is unavailable delays a reply to another one by 50 ms at most.
//   - A reply of SendAsOwner is written before another member gets the request's partition, or never, and the next
//     owner doesn't get its request.
//   - Each assigned partition is read. If its committed offset can't be fetched, the member joins again.
//
// # What is not guaranteed
//
//   - Exactly-once delivery of requests: an owner may die between its reply and the commit.
//   - Exactly-once replies: one whose delivery timed out may have been written, and replies in the same flight as one
//     that timed out are sent again.
//   - A reply of SendAsOwner may be written after the partition was reassigned if the member is removed from its group, or
//     if the brokers don't answer within half the time of a revocation.
//
// # Not obvious
//
//   - The client checks only the context of a batch's first record, and fails the whole buffer of its partition with it.
//     So a session sends replies in flights with one context each, one at a time for each partition. reply_queues.go chooses
//     the partition of a reply before the client gets it.
package agentsession
