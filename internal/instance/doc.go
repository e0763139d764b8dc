// Package instance runs roles in one process: it connects scheduler, supervisor, agents and the index to Kafka and
// to their stores. The binary configures it from flags, the simulation runs it in virtual time, and the chaos
// tests run it in processes that they kill. All three use the same wiring, so that tests exercise what ships.
//
//	n, err := instance.Open(ctx, kafkaConfig, instance.Config{...})
//	defer n.Close()
//	err = n.Run(ctx, func(ctx context.Context) error {
//		return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 2, ObserveCapacity: true})
//	})
//
// A role whose client fails restarts by itself. Run ends only for errors that no new client can fix. Metrics and
// log lines are produced by the roles' listeners, in this package only.
//
// # Shared state
//
// The roles of a process share its connection settings, clock, definitions and producer. Each role opens its own
// group members and its own store, a folder of DataDir named after its view: tasks, deadlines, timelines.
//
// instance.go opens and closes the shared parts; roles.go and index.go start a role. metrics.go, agent_gauges.go
// and partition_status.go implement the listeners. stalls.go detects workers that make no progress. definitions.go
// serves commands that read a namespace without running a role.
//
// Config.Seams are wrappers around the dependencies of a role. Only tests set them (internal/chaos/point).
package instance
