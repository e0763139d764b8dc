package main

import (
	"fmt"
	"sort"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
)

func newTopics() *cobra.Command {
	cmd := &cobra.Command{Use: "topics", Short: "Create and check the topics of a namespace"}
	cmd.AddCommand(newTopicsCreate(), newTopicsCheck())
	return cmd
}

func newTopicsCreate() *cobra.Command {
	var conn connection
	var partitions int32
	var replication int16
	var agents []string
	var agentPartitions int32
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create the topics of a namespace that don't exist",
		Long: `Create the topics of a namespace that don't exist, with the request topics of agents that workflows name.
Run it once before the first role starts. It can be run again: existing topics are not changed.

Replication is 3 with 2 in-sync replicas; on a cluster with fewer brokers it is lower, and the output says
so. Timestamps are LogAppendTime. Inboxes keep records until they are consumed. 'waybill topics check' checks
existing topics.`,
		Example: `  waybill topics create --brokers kafka:9092 --partitions 12`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			partitions, err := partitionsAsked(cmd, partitions)
			if err != nil {
				return err
			}
			want := kafkaadmin.CreateTopicsOptions{Partitions: partitions, Replication: replication}
			if want.Agents, err = requestTopics(agents, agentPartitions); err != nil {
				return err
			}
			if replication < 0 {
				return usage("--replication %d: must be at least 1", replication)
			}
			admin, applied, err := openTopics(cmd, &conn)
			if err != nil {
				return err
			}
			defer admin.Close()
			for _, agent := range applied {
				want.Agents[agent] = agentPartitions
			}
			report, err := admin.CreateTopics(cmd.Context(), want)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICATION\tCREATED\tNOTE")
			for _, r := range report {
				fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%s\n", r.Topic, r.Partitions, r.Replication, r.Created, r.Note)
			}
			return w.Flush()
		},
	}
	conn.flags(cmd)
	f := cmd.Flags()
	f.Int32Var(&partitions, "partitions", events.DefaultPartitions, "number of partitions of the inboxes and of events in a new namespace; it can't be changed later")
	f.Int16Var(&replication, "replication", 0, "replication factor (default 3, or the number of brokers if there are fewer)")
	f.StringSliceVar(&agents, "agent", nil, "further agents whose request topics to create")
	f.Int32Var(&agentPartitions, "agent-partitions", events.DefaultPartitions, "number of partitions of request topics")
	return cmd
}

// requestTopics returns the partitions of the agents' request topics. It refuses names that no workflow can
// use.
func requestTopics(agents []string, partitions int32) (map[string]int32, error) {
	if partitions < 1 {
		return nil, usage("--agent-partitions %d: must be at least 1", partitions)
	}
	topics := map[string]int32{}
	for _, name := range agents {
		if !agentPattern.MatchString(name) {
			return nil, notAnAgent(name)
		}
		topics[name] = partitions
	}
	return topics, nil
}

// openTopics also returns the agents of the workflows in the log.
func openTopics(cmd *cobra.Command, conn *connection) (*kafkaadmin.Admin, []string, error) {
	admin, err := openAdmin(cmd, conn)
	if err != nil {
		return nil, nil, err
	}
	applied, err := registry.ListIfCreated(cmd.Context(), admin, events.Namespace(conn.namespace))
	if err != nil {
		admin.Close()
		return nil, nil, err
	}
	return admin, registry.Agents(applied), nil
}

// partitionsAsked returns the value of --partitions if it was given, else 0: existing topics keep their number,
// and the flag's default is for new ones.
func partitionsAsked(cmd *cobra.Command, value int32) (int32, error) {
	if !cmd.Flags().Changed("partitions") {
		return 0, nil
	}
	if value < 1 {
		return 0, usage("--partitions %d: must be at least 1", value)
	}
	return value, nil
}

func newTopicsCheck() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check topics against the expected settings",
		Long: `Check the topics of a namespace against the expected settings: partitions, replication, in-sync replicas,
retention, timestamps, leader election. Print each finding with its fix. Exit code 1 if a topic is weaker
than it should be.`,
		Example: `  waybill topics check --brokers kafka:9092`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, applied, err := openTopics(cmd, &conn)
			if err != nil {
				return err
			}
			defer admin.Close()
			findings, err := admin.CheckTopics(cmd.Context(), applied...)
			if err != nil {
				return err
			}
			if len(findings) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "all topics have the expected settings")
				return err
			}
			sort.Slice(findings, func(i, j int) bool { return findings[i].Topic < findings[j].Topic })
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "TOPIC\tFINDING\tWHAT TO DO")
			for _, f := range findings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.Topic, f.What, f.Fix)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			return fmt.Errorf("%s: %w", text.Count(len(findings), "finding"), errSilent)
		},
	}
	conn.flags(cmd)
	return cmd
}

// openAdmin connects a command that needs topics and groups only.
func openAdmin(cmd *cobra.Command, conn *connection) (*kafkaadmin.Admin, error) {
	cfg, err := conn.kafka("waybill")
	if err != nil {
		return nil, err
	}
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		return nil, err
	}
	if err := instance.CheckReachable(cmd.Context(), admin); err != nil {
		admin.Close()
		return nil, err
	}
	return admin, nil
}
