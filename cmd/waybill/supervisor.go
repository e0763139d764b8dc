package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/supervisor"
)

func newSupervisor() *cobra.Command {
	var r roleFlags
	var sweep time.Duration
	cmd := &cobra.Command{
		Use:   "supervisor",
		Short: "Run a supervisor: it watches deadlines and asks for recovery",
		Long: `Run a supervisor. It watches the deadlines of all attempts and tasks, and the attempts that failed. When
one is due, it asks the scheduler for recovery: retry, wait, undo or hold. It also asks the scheduler
to end steps that wait for a time, and to forget the ids of tasks that ended long ago. It knows nothing
about the workflow and writes no events. Without a supervisor nothing times out and nothing is retried.

Run one or more processes: Kafka's consumer group protocol divides the partitions among them.`,
		Example: `  waybill supervisor --brokers kafka:9092 --instance v1 --data-dir /var/lib/waybill/v1 --metrics-listen :9102`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sweep < supervisor.MinSweepInterval || sweep > supervisor.MaxSweepInterval {
				return usage("--sweep-interval %s: must be %s to %s", sweep, supervisor.MinSweepInterval, supervisor.MaxSweepInterval)
			}
			return r.runRole(cmd, "supervisor", func(ctx context.Context, n *instance.Instance) error { return n.StartSupervisor(ctx, sweep) })
		},
	}
	r.flags(cmd, true)
	cmd.Flags().DurationVar(&sweep, "sweep-interval", supervisor.DefaultSweepInterval, "longest time between two checks of the timers, 10ms to 1m")
	return cmd
}
