package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

func newTimeline() *cobra.Command {
	var t tool
	cmd := &cobra.Command{
		Use:   "timeline ID",
		Short: "Show every event of a task, as it stands in the log",
		Args:  arguments("a task's id"),
		RunE:  func(cmd *cobra.Command, args []string) error { return runTimeline(cmd, &t, args) },
	}
	t.flags(cmd)
	return cmd
}

func runTimeline(cmd *cobra.Command, t *tool, args []string) error {
	if err := t.begin(cmd); err != nil {
		return err
	}
	id, err := idArgument(args)
	if err != nil {
		return err
	}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	var lines []events.Line
	_, err = l.read(cmd.Context(), l.cfg.Namespace.Events(), kafka.Range{Partitions: []int32{l.partition(id)}}, func(r *events.Record) error {
		if string(r.Key) != id {
			return nil
		}
		line, err := events.TimelineLine(r)
		if err != nil {
			fmt.Fprintf(l.note, "waybill: %s is no event: %s\n", events.Origin(r), printable(err.Error()))
			return nil
		}
		if t.format == formatTable {
			line.Type, line.Step = printable(line.Type), printable(line.Step)
			if _, err := time.Parse(time.RFC3339, line.At); err != nil {
				line.At = r.Time.UTC().Format(events.TimeLayout)
			}
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return notFound(id)
	}
	if t.format == formatTable {
		return printTimeline(cmd.OutOrStdout(), lines)
	}
	return printList(&t.output, cmd.OutOrStdout(), "", lines, nil)
}
