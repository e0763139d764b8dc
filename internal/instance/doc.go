// Package instance is one process of roles: it wires scheduler, supervisor,
// agents and audit to Kafka and to their stores. The binary runs it from flags,
// the simulation in a bubble of virtual time, the chaos tests in processes that
// they kill: all three run the same wiring, or they would prove something else.
//
//	n, err := instance.Open(ctx, kafkaConfig, instance.Config{...})
//	defer n.Close()
//	err = n.Run(ctx, func(ctx context.Context) error {
//		return n.StartScheduler(ctx, instance.SchedulerOptions{Lanes: 2, ObserveCapacity: true})
//	})
//
// A role that loses its client begins anew by itself; Run ends only for what no
// new client heals. Metrics and log lines are made from the roles' listeners,
// here and nowhere else.
package instance
