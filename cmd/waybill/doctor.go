package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/doctor"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/text"
)

type doctorOptions struct {
	connection
	output
}

func newDoctor() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check brokers, topics, workflows and consumer groups, and print how to fix faults",
		Long: `Check brokers, topics, workflows, consumer groups, agents and open transactions. Print what was found, and
how to fix what is wrong. Run it first when tasks don't advance. It writes nothing.

If records wait, groups are checked twice, 6 s apart, to see whether they make progress. A fault means that tasks
wait or could be lost: exit code 1. A note is not a fault.`,
		Example: `  waybill doctor --brokers kafka:9092`,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, &o) },
	}
	o.connection.flags(cmd)
	o.output.flags(cmd)
	return cmd
}

func runDoctor(cmd *cobra.Command, o *doctorOptions) error {
	admin, err := openAdmin(cmd, &o.connection)
	if err != nil {
		return err
	}
	defer admin.Close()
	cfg, err := o.kafka("waybill")
	if err != nil {
		return err
	}
	reader, err := logreader.OpenRestorer(cfg, nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	find := func(ctx context.Context, addr, clusterID string) string {
		return findConsole(ctx, addr, consoleapi.System{ClusterID: clusterID, Namespace: cfg.Namespace})
	}
	collector := doctor.Collector{Admin: admin, Reader: reader, Namespace: cfg.Namespace, ConsoleAddr: defaultConsole, FindConsole: find}
	observed, err := collector.Collect(cmd.Context())
	if err != nil {
		return err
	}
	findings := doctor.Diagnose(observed)
	err = printList(&o.output, cmd.OutOrStdout(), "CHECK RESULT FOUND FIX", findings, func(f doctor.Finding) []string {
		return []string{f.Check, f.Result, f.Found, f.Fix}
	})
	if err != nil {
		return err
	}
	if n := doctor.Faults(findings); n > 0 {
		return fmt.Errorf("%s: %w", text.Count(n, "fault"), errSilent)
	}
	return nil
}
