// Package kafka is Waybill's side of Apache Kafka: the only package that knows
// the client library. Roles define small interfaces over std and events, and
// this package has the types that fit them.
//
//	Config       how to reach the cluster: flags, or a Java client.properties
//	Admin        topics, their checks and their format; offsets, lag, groups
//	Worker         a scheduler: inboxes in, and in one transaction events out
//	Follower     a supervisor, as a group's member, or an index, of all partitions: reads events
//	             from its own positions, and knows when it has caught up
//	Session      an agent: requests in any order, replies within their time
//	Restorer     a partition, or a topic, to its end: restores, and the tools
//	Tail         what comes from an offset on, without a group
//	Definitions  the definitions topic, followed to its end as of a question
//	Producer     records outside of transactions: submissions, recoveries
//	Clock        broker time
//
// Below it, apart so that a program that imports the public package links
// neither: embedded, a broker in this process, and kafkametrics, a hook that
// counts for Prometheus.
//
// # Files
//
// A type has a file of its name, and more where it does more: worker_poll.go, worker_commit.go,
// worker_stable_offsets.go (offsets that an open transaction holds back), worker_twin.go (another
// process with the same owner). What several share:
//
//	balancer.go, balancer_plan.go  which member of a group has which partition number
//	reader.go                      one partition, record by record, with its exact position
//	fetcher.go                     the same for a follower: all partitions of a leader at once
//	batch.go                       what a fetch gives, as records that are lent or kept
//	restorer_fence.go              the end of a transaction that its dead owner left open
//	restorer_read_at.go            the records at some offsets
//	restore_progress.go            how far long restores are, for who looks from outside
//	inbox_gate.go                  which inboxes flow, as package inboxgate decides
//	quarantine.go, damage.go       what can't be read, for the broker's disk has changed it
//	leaderless.go                  what no broker leads
//	tracker.go                     which requests of a partition are finished
//	clock_tail.go, clock_written.go  what tells a Clock the time
//
// # An agent's request
//
//	for {
//		requests := session.Poll(ctx)                  // committed ones only
//		for each request, concurrently:
//			ctx := session.Held(partition)             // ends if it goes to another
//			work(ctx, until complete-by)
//			session.Send(until complete-by, reply)     // acknowledged, or its time is over
//			session.Done(partition, offset)            // in any order
//	}
//
// # Guarantees
//
//   - What Send returned nil for is on all in-sync replicas.
//   - An offset is committed only if every request below it is Done. What is
//     Done above it is not delivered again to the next owner, as far as 4096
//     bytes of metadata reach.
//   - A reply that was not on its way at its context's deadline is never written.
//   - ReadToEndNow returns after everything that was committed when it was
//     called has been seen.
//   - Clock.Now goes back only from a time that was wrong by more than a second.
//
// # What is not guaranteed
//
//   - A request once only: its owner may die between its reply and the commit.
//   - A record once only: one whose delivery was given up may have been written,
//     and replies handed over with one whose time ended are sent again.
//   - That a record was not written, when sending it failed with its time.
//   - LogAppendTime, replicas and atomic transactions on the embedded broker
//     (see package embedded).
//
// # Not obvious
//
//   - The client fails a whole partition's buffer with the context of the first
//     record of a batch, and looks at no other record's: hence the flights of a
//     session's replies, with one context each, and none for the records of a
//     Producer. One context for all replies in flight was tried first: on a slow
//     broker each time-out then sent all others again, which made it slower.
//   - A consumer is silent about transaction markers and compacted batches, so
//     it can't tell that it is at the end: whoever must know goes by the position
//     that a fetch response leads to (reader).
//   - The client answers questions about topics from a cache of five seconds;
//     asking for authorized operations goes past it (metadata).
//   - A record's place in the client's buffer is free only after its callback.
//   - OnPartitionsAssigned runs before the committed offsets are read, and
//     OnOffsetsFetched after it and before the first record.
package kafka
