// Package kafkatest provides tests with a broker: the embedded one (kfake, in process) and a real Apache Kafka, behind
// one type. Only tests use it.
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
// Run each test on both: the embedded broker has no replication, no delay of transaction markers and no timestamp
// checks.
//
// # The real broker
//
// All test processes of one user share one node. The first process that needs it starts a host process, which runs the
// same test binary. Every process holds a shared lock while it may use the node. When nobody has held the lock for five
// seconds, the host kills the node, removes its data and ends. The locks are flocks, so the kernel releases those of a
// killed test process. When a host is killed, the kernel kills its node.
//
// Tests on the node must not affect each other: each uses its own Namespace. A test that kills, pauses or configures
// nodes starts its own cluster with KafkaNodes.
//
// Tests on real Kafka run with WAYBILL_TEST=all, and then fail if Java or Maven is missing. Otherwise they are skipped,
// and the last line of Main says so. WAYBILL_TEST_KAFKA=off skips them even with WAYBILL_TEST=all.
package kafkatest
