package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

// workflowDiff is a comparison of two definitions, with what it means for a migration.
type workflowDiff struct {
	*consoleapi.DefinitionDiff
	Obstacles []replay.Obstacle `json:"obstacles"`
}

func newWorkflowDiff() *cobra.Command {
	var t tool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two definitions, and say which tasks could be migrated",
		Long: `Compare two definitions line by line. A and B are files, or definitions in the log: NAME/VERSION, or NAME, its
newest version. Below the lines are the steps after which a task can't be migrated from A to B any more, and why.`,
		Example: `  waybill workflow diff docs/examples/checkout.yaml docs/examples/checkout-2.yaml
  waybill workflow diff order/1 order/2`,
		Args: arguments("a definition: NAME/VERSION or a file", "another definition"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := t.definition(cmd, args[0])
			if err != nil {
				return err
			}
			to, err := t.definition(cmd, args[1])
			if err != nil {
				return err
			}
			d := workflowDiff{console.CompareDefinitions(from, to), replay.Obstacles(from, to)}
			return t.printObject(cmd.OutOrStdout(), d, func(out io.Writer) error { return printWorkflowDiff(out, &d) })
		},
	}
	t.flags(cmd)
	return cmd
}

// diffContext is the number of equal lines that are shown around lines that differ.
const diffContext = 2

func printWorkflowDiff(out io.Writer, d *workflowDiff) error {
	shown := make([]bool, len(d.Lines))
	for i := range d.Lines {
		for j := max(0, i-diffContext); d.Lines[i].Op != "same" && j < min(len(d.Lines), i+diffContext+1); j++ {
			shown[j] = true
		}
	}
	for i, line := range d.Lines {
		if !shown[i] {
			continue
		}
		if i > 0 && !shown[i-1] {
			fmt.Fprintln(out, "...")
		}
		fmt.Fprintf(out, "%s %s\n", map[string]string{"same": " ", "added": "+", "removed": "-"}[line.Op], line.Text)
	}
	for _, o := range d.Obstacles {
		fmt.Fprintf(out, "Once step %s has begun, a task can't be migrated: %s\n", o.Step, printable(o.Why))
	}
	if len(d.Obstacles) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "All open tasks of version %d can be migrated to version %d, unless their complete-by has passed\n", d.From, d.To)
	return err
}
