package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
)

func newTimeline() *cobra.Command {
	var t historyTool
	cmd := &cobra.Command{
		Use:   "timeline ID",
		Short: "Show every event of a task, as it stands in the log",
		Args:  arguments("a task's id"),
		RunE:  func(cmd *cobra.Command, args []string) error { return runTimeline(cmd, &t, args) },
	}
	t.flags(cmd)
	return cmd
}

func runTimeline(cmd *cobra.Command, t *historyTool, args []string) error {
	if err := t.begin(cmd); err != nil {
		return err
	}
	id, h, err := t.openOne(cmd, args)
	if err != nil {
		return err
	}
	defer h.close()
	var lines []events.Line
	err = h.read(cmd.Context(), id, func(r *events.Record) error {
		if string(r.Key) != id {
			return nil
		}
		line, err := events.TimelineLine(r)
		if err != nil {
			noEvent(h.warnings(), r, err)
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
		return t.notThere(id)
	}
	if t.format == formatTable {
		return printTimeline(cmd.OutOrStdout(), lines)
	}
	return printList(&t.output, cmd.OutOrStdout(), "", lines, nil)
}
