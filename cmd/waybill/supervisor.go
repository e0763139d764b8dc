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
		Short: "Run a supervisor against a Kafka cluster",
		Long: `Run a supervisor: the role that watches deadlines and failures, and asks the scheduler for
recovery. Run as many as you like: each partition is watched by one of them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sweep < supervisor.MinSweepInterval || sweep > supervisor.MaxSweepInterval {
				return usage("--sweep-interval %s: %s to %s", sweep, supervisor.MinSweepInterval, supervisor.MaxSweepInterval)
			}
			return r.runRole(cmd, "supervisor", func(ctx context.Context, n *instance.Instance) error { return n.StartSupervisor(ctx, sweep) })
		},
	}
	r.flags(cmd, true)
	cmd.Flags().DurationVar(&sweep, "sweep-interval", supervisor.DefaultSweepInterval, "longest sleep between two looks at the timers, 10ms to 1m")
	return cmd
}
