// Package kafka is Waybill's client of Apache Kafka. It and the packages below it are the only ones that know the
// client library. Roles define small interfaces over std and events, and these packages have the types that fit them.
//
//	Config    how to reach the cluster: flags, or a Java client.properties
//	Producer  records outside of transactions: submissions, recoveries
//	ClassOf   what an error means to a reader or a group member
//
// Below it, in the order of their imports:
//
//	brokerclock      an estimate of broker time
//	groupmember      what members of a group share: the balancer, the inbox gate, positions
//	logreader        reads the log, with a group or without one
//	kafkaadmin       topics, groups, offsets; writes definitions
//	agentsession     an agent's membership in the group of its requests
//	schedulerworker  a scheduler's transactional member of its group
//
// Two others are separate so that a program that imports the public package links neither: embedded, a broker in this
// process, and kafkametrics, a hook with Prometheus metrics.
//
// # Guarantees
//
//   - A record for which Send returned nil is on all in-sync replicas.
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
//   - The client answers metadata requests from a cache of five seconds. A request for
//     authorized operations bypasses it (Metadata).
//   - The client may roll back a transaction that is committed right after the first record
//     of a topic, and return nil (EndTransaction).
//   - The client waits 10 s for a broker that hangs, and tries it twice. So dials and first
//     answers have bounds of their own, and silent addresses aren't dialed (dial.go).
//   - A record's place in the client's buffer is free only after its callback.
package kafka
