// Package kafka is Waybill's side of Apache Kafka: the only package that knows
// the client library. Roles define small interfaces over std and events, and
// this package has the types that fit them.
//
//	Config       how to reach the cluster: flags, or a Java client.properties
//	Follower     a supervisor, as a group member, or an index, with all partitions: reads events
//	             from its own positions, and knows when it has caught up
//	Restorer     reads a partition or a topic to its end: restores, and the tools
//	Tail         reads new records from an offset on, without a group
//	Definitions  follows the definitions topic to its current end
//	Producer     records outside of transactions: submissions, recoveries
//
// Packages below it are kafkaadmin, which manages topics and inspects groups, schedulerworker, a scheduler's transactional
// member of its group, agentsession, an agent's membership in the group of its requests, and brokerclock, an estimate of
// broker time. Two others are separate so that a
// program that imports the public package links neither: embedded, a broker in this process, and kafkametrics, a hook with Prometheus metrics.
//
// # Files
//
// A type has a file of its name, and more where it does more. What several share:
//
//	balancer.go, balancer_plan.go  which member of a group has which partition number
//	reader.go                      one partition, record by record, with its exact position
//	fetcher.go                     the same for a follower: all partitions of a leader at once
//	batch.go                       decodes fetch responses, with reused or owned buffers
//	restorer_fence.go              aborts a transaction that its dead owner left open
//	restorer_read_at.go            the records at some offsets
//	inbox_gate.go                  pauses and resumes inboxes, as package inboxgate decides
//	quarantine.go, corruption.go       what can't be read, for the broker's disk has changed it
//	leaderless.go                  the error of leaderless partitions
//
// # Guarantees
//
//   - A record for which Send returned nil is on all in-sync replicas.
//   - ReadToEndNow returns after all records that were committed at its call were seen.
//
// # What is not guaranteed
//
//   - Exactly-once writes: a record whose delivery timed out may have been written.
//   - After a timeout, that the record was not written.
//   - LogAppendTime, replicas and atomic transactions on the embedded broker
//     (see package embedded).
//
// # Not obvious
//
//   - The client checks only the context of a batch's first record, and fails the whole
//     buffer of its partition with it. So a Producer's records have none.
//   - A consumer client skips transaction markers and compacted batches silently, so it
//     can't tell that it has reached the end. reader uses the position of the fetch
//     response instead.
//   - The client answers metadata requests from a cache of five seconds. A request for
//     authorized operations bypasses it (metadata).
//   - A record's place in the client's buffer is free only after its callback.
package kafka
