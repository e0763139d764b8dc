// Package node runs Apache Kafka brokers as child processes: one node, or a
// cluster of three, from the jars that Maven Central publishes. It is what
// `go run ./deploy/kafka` starts for people and what the tests start for
// themselves.
//
//	cluster, err := node.Start(ctx, node.Options{Nodes: 3, Overrides: node.TestOverrides()})
//	...
//	defer cluster.Stop()
//	use(cluster.Brokers())
//	cluster.Kill(0)          // SIGKILL
//	cluster.Restart(ctx, 0)  // same data, same port
//
// Needed on the machine: Linux, a Java 17 or newer, and, the first time only,
// Maven to fetch 46 jars (44 MB) into the user's cache folder.
//
// # Children never outlive their parent
//
// Every JVM asks the kernel for SIGKILL at the death of the thread that
// started it, so one thread starts them all and lives as long as the process
// (see onSpawnThread). Each is in a process group of its own, so that Ctrl-C in a
// terminal reaches the parent only and the parent decides how they end.
//
// # What is not promised
//
// Kafka does not fsync on produce: a node that is killed loses nothing that
// it acknowledged, a machine that loses power can. Brokers listen on loopback
// addresses without authentication. This is for tests and for trying out.
package node
