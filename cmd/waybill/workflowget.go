package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/graph"
	"github.com/waybill-run/waybill/internal/graph/steps"
	"github.com/waybill-run/waybill/workflow"
)

// graphSVG is the format of a graph that isn't text.
const graphSVG = "svg"

func newWorkflowGet() *cobra.Command {
	var t tool
	cmd := &cobra.Command{
		Use:   "get NAME[/VERSION] [VERSION]",
		Short: "Print a definition in the log",
		Long: `Print a definition in the log: its newest version unless one is given; a deleted version as long as the log
has it. The output is YAML, which 'waybill workflow validate' and 'waybill workflow apply' read. Comments aren't kept.
-o json prints what the HTTP API returns: the canonical form, and the graph of the steps.`,
		Example: `  waybill workflow get order
  waybill workflow get order 1 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return arguments("a workflow's name")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			what := args[0]
			if len(args) == 2 {
				what += "/" + args[1]
			}
			d, err := t.loggedDefinition(cmd, what)
			if err != nil {
				return err
			}
			vs := steps.OfDefinition(d.Definition)
			v := console.DescribeDefinition(d.Definition, d.Deleted, consoleapi.StepGraph{Steps: vs, Layout: graph.Draw(vs, false)})
			v.Deprecated = d.Deprecated
			return t.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error {
				if d := v.Deprecated; d != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s/%d is deprecated: %s\n", printable(v.Workflow), v.Version, printable(d.Why))
				}
				_, err := io.WriteString(out, v.Source)
				return err
			})
		},
	}
	t.flags(cmd)
	return cmd
}

// drawGraph draws a definition in one of the formats of workflow.Definition.Graph, or as an SVG.
func drawGraph(d *workflow.Definition, format string, unfolded bool) (string, error) {
	if format != graphSVG {
		drawn, err := d.Graph(format)
		if err != nil {
			return "", exit(exitUsage, "--format: %w, or "+graphSVG, err)
		}
		return drawn, nil
	}
	vs := steps.OfDefinition(d)
	return graph.SVG(d.Key(), vs, graph.Draw(vs, unfolded)), nil
}
