// Package node runs Apache Kafka brokers as child processes: one node, or a cluster of three, from the jars that Maven
// Central publishes. `go run ./deploy/kafka` and the tests use it.
//
//	cluster, err := node.Start(ctx, node.Options{Nodes: 3, Overrides: node.TestOverrides()})
//	...
//	defer cluster.Stop()
//	use(cluster.Brokers())
//	cluster.Kill(0)          // SIGKILL
//	cluster.Restart(ctx, 0)  // same data, same port
//
// It requires Linux and Java 17 or newer. The first start also requires Maven, to fetch 46 jars (44 MB) into the user's
// cache directory. The first quick start writes an archive of classes (50 MB) next to them.
//
// # Children never outlive their parent
//
// The kernel sends every JVM a SIGKILL when the thread that started it ends. So one thread starts all of them and lives
// as long as the process (see onSpawnThread). Each JVM is in its own process group, so Ctrl-C in a terminal reaches
// only the parent, and the parent decides how the JVMs end.
//
// # Limits
//
// Kafka does not fsync on produce. A killed node loses no acknowledged record, but a power failure can lose some.
// Brokers listen on loopback addresses without authentication. The package is for tests and evaluation only.
package node
