// Package kafkatest gives tests a broker: the embedded one (kfake, in
// process) and a real Apache Kafka, behind one type. Tests only.
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
//
//	func TestSubmit(t *testing.T) {
//		kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
//			ns := b.Namespace(t)
//			client := b.Client(t, kgo.DefaultProduceTopic(ns.Inbox(events.Tasks)))
//			...
//		})
//	}
//
// A suite that is green on the embedded broker only is half a suite: that one
// has no replication, no marker delay and no timestamp checks.
//
// # The real broker
//
// All test processes of one user share one node: the first that needs it
// starts a host process, which is the test binary itself again, and every
// process holds a shared lock while it may use the node. Once nobody has held
// the lock for five seconds the host kills the node, removes its data and
// ends. Locks are the kernel's (flock), so a test process that is killed
// leaves no trace, and a host that is killed takes its node along.
//
// What a test does to the node must not be felt by others: it uses a
// Namespace of its own. A test that kills, pauses or configures nodes asks
// KafkaNodes for its own cluster.
//
// Tests on it run with WAYBILL_TEST=all, and fail where it can't be had (no
// Java, no Maven). Else they are skipped, and Main's last line says so.
// WAYBILL_TEST_KAFKA=off leaves them out where all other tests run.
package kafkatest
