// Package instance is one process of roles: it wires scheduler, supervisor,
// agents and the index to Kafka and to their stores. The binary runs it from flags,
// the simulation in a bubble of virtual time, the chaos tests in processes that
// they kill: all three run the same wiring, or they would prove something else.
//
//	n, err := instance.Open(ctx, kafkaConfig, instance.Config{...})
//	defer n.Close()
//	err = n.Run(ctx, func(ctx context.Context) error {
//		return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 2, ObserveCapacity: true})
//	})
//
// A role that loses its client begins anew by itself; Run ends only for what no
// new client heals. Metrics and log lines are made from the roles' listeners,
// here and nowhere else.
//
// # What it holds
//
// One process has one connection's settings, one clock, one catalog of definitions and one producer,
// which its roles share. Each role opens its own members of groups and its own store, a folder of
// DataDir by the name of its view: tasks, deadlines, timelines. instance.go opens and closes all
// that; roles.go and index.go start a role; metrics.go, flows.go and restoring.go are the listeners;
// look.go is for commands that look at a system and run none of its roles.
//
// Config.Seams are wrappers around what a role is given. Tests stand there (internal/chaos/point);
// the product sets none.
package instance
