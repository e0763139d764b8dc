package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

func newWorkflow() *cobra.Command {
	cmd := &cobra.Command{Use: "workflow", Short: "Validate, test, apply, list, print, draw, compare, migrate, deprecate and delete workflow definitions"}
	cmd.AddCommand(newWorkflowValidate(), newWorkflowTest(), newWorkflowApply(), newWorkflowList(), newWorkflowGet(), newWorkflowGraph(), newWorkflowDiff(), newWorkflowMigrate(), newWorkflowDeprecate(), newWorkflowDelete())
	return cmd
}

func newWorkflowValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check definition files without a cluster",
		Long: `Check definition files without a cluster. Each fault is printed with file, line, column and how to fix it.
Exit code 2 if there is one.`,
		Example: `  waybill workflow validate docs/examples/notice.yaml`,
		Args:    atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error {
			definitions, err := parseFiles(cmd.InOrStdin(), files)
			for i, d := range definitions {
				if d != nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is valid: %s, agents %s\n", files[i], d.Key(), text.Count(len(d.Steps), "step"), strings.Join(d.Agents(), ", "))
				}
			}
			return err
		},
	}
}

func atLeastOneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("`%s` needs a file (-: standard input)", cmd.CommandPath())
	}
	return nil
}

// parseFiles parses definitions: one for each file, nil for a file with faults. The error lists all faults of
// all files.
func parseFiles(stdin io.Reader, files []string) ([]*workflow.Definition, error) {
	definitions := make([]*workflow.Definition, len(files))
	var faults []string
	for i, file := range files {
		d, err := parseFile(stdin, file)
		if errors.Is(err, context.Canceled) {
			return nil, err
		}
		if err != nil {
			faults = append(faults, err.Error())
		}
		definitions[i] = d
	}
	if len(faults) > 0 {
		return definitions, usage("the definition can't be used:\n%s", strings.Join(faults, "\n"))
	}
	return definitions, nil
}

func parseFile(stdin io.Reader, file string) (*workflow.Definition, error) {
	name, src, err := readDefinition(stdin, file)
	if err != nil {
		return nil, err
	}
	return scheduler.ParseDefinition(name, src)
}

// appliedDefinition is the result for one definition as it is printed.
type appliedDefinition struct {
	Workflow string   `json:"workflow"`
	Version  int      `json:"version"`
	Result   string   `json:"result"` // applied, unchanged, deprecated, restored or deleted
	Agents   []string `json:"agents"`
}

func newWorkflowApply() *cobra.Command {
	var t tool
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Write definitions to the log, and create request topics",
		Long: `Write workflow definitions to the log, and create the request topics that their agents lack. All files are
checked first. A version that exists already stays as it is; the same version with another body is refused
(exit code 8). Tasks keep the version they started with, so a changed definition needs a new version.`,
		Example: `  waybill workflow apply docs/examples/notice.yaml
  waybill workflow apply - < docs/examples/notice.yaml`,
		Args: atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error { return runApply(cmd, &t, files) },
	}
	t.flags(cmd)
	return cmd
}

func runApply(cmd *cobra.Command, t *tool, files []string) error {
	definitions, err := parseFiles(cmd.InOrStdin(), files)
	if err != nil {
		return err
	}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	ctx := cmd.Context()
	var list []appliedDefinition
	for _, d := range definitions {
		result := "applied"
		err := l.askBrokers(ctx, func(ctx context.Context) error {
			existed, err := registry.Apply(ctx, l.cfg, d)
			if existed {
				result = "unchanged"
			}
			return err
		})
		if err != nil && len(list) > 0 {
			return errors.Join(err, t.printApplied(cmd.OutOrStdout(), list))
		}
		if err != nil {
			return err
		}
		list = append(list, appliedDefinition{d.Name, d.Version, result, d.Agents()})
	}
	return t.printApplied(cmd.OutOrStdout(), list)
}

func (t *tool) printApplied(out io.Writer, list []appliedDefinition) error {
	return printList(&t.output, out, "WORKFLOW VERSION RESULT AGENTS", list, func(a appliedDefinition) []string {
		return []string{a.Workflow, strconv.Itoa(a.Version), a.Result, strings.Join(a.Agents, ",")}
	})
}

// definitions returns the definitions in the log, without deleted ones.
func (l *logbook) definitions(ctx context.Context) ([]registry.Definition, error) {
	return l.listDefinitions(ctx, registry.List)
}

// allDefinitions also returns deleted definitions that tasks still use.
func (l *logbook) allDefinitions(ctx context.Context) ([]registry.Definition, error) {
	return l.listDefinitions(ctx, registry.ListAll)
}

type listDefinitions func(context.Context, *kafkaadmin.Admin, events.Namespace) ([]registry.Definition, error)

func (l *logbook) listDefinitions(ctx context.Context, read listDefinitions) (list []registry.Definition, err error) {
	err = l.askBrokers(ctx, func(ctx context.Context) error {
		list, err = read(ctx, l.admin, l.cfg.Namespace)
		return err
	})
	return list, err
}

func newWorkflowList() *cobra.Command {
	var t tool
	var api apiFlags
	var inUse bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the definitions in the log",
		Long: `List the workflow definitions in the log, with their agents. New tasks get the newest version that isn't
deprecated, unless they name one.

With --in-use it lists the versions that can't be deleted: open tasks use them, or a schedule, an intake or a step of
another workflow starts tasks of them.`,
		Example: `  waybill workflow list
  waybill workflow list --in-use`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if inUse {
				return runWorkflowsInUse(cmd, &t, api)
			}
			return runWorkflowList(cmd, &t)
		},
	}
	t.flags(cmd)
	api.flags(cmd)
	cmd.Flags().BoolVar(&inUse, "in-use", false, "only versions that are used, with their open tasks and what starts tasks of them")
	commandLineOnly(cmd.Flags(), "in-use")
	return cmd
}

func runWorkflowList(cmd *cobra.Command, t *tool) error {
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	list, err := l.definitions(cmd.Context())
	if err != nil {
		return err
	}
	return printList(&t.output, cmd.OutOrStdout(), "WORKFLOW VERSION STEPS AGENTS APPLIED NOTES", list, func(s registry.Definition) []string {
		steps, agents := "-", "-"
		if s.Definition != nil {
			steps, agents = strconv.Itoa(len(s.Definition.Steps)), strings.Join(s.Definition.Agents(), ",")
		}
		notes := s.Fault
		if s.Deprecated != nil {
			notes = strings.Trim("deprecated: "+s.Deprecated.Why+"; "+s.Fault, "; ")
		}
		return []string{s.Workflow, strconv.Itoa(s.Version), steps, agents, tableTime(s.AppliedAt), text.Shorten(notes, 120)}
	})
}

func newWorkflowGraph() *cobra.Command {
	var conn connection
	var format string
	var unfolded bool
	cmd := &cobra.Command{
		Use:   "graph FILE|NAME[/VERSION]",
		Short: "Draw the steps of a definition",
		Long: `Draw the steps of a definition and the order between them: of a file, or of a definition in the log
(its newest version unless one is given).

An SVG has the layout that the console shows. It needs no other file, and follows the reader's light or dark
setting. Past 200 steps, ranks of steps are folded into one box.`,
		Example: `  waybill workflow graph workflow/order.yaml
  waybill workflow graph order/1 --format mermaid
  waybill workflow graph order --format svg > order.svg`,
		Args: arguments("a file, or a workflow's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := conn.definition(cmd, args[0])
			if err != nil {
				return err
			}
			drawn, err := drawGraph(d, format, unfolded)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.TrimRight(drawn, "\n"))
			return err
		},
	}
	conn.flags(cmd)
	cmd.Flags().StringVar(&format, "format", workflow.GraphText, "output format: text, mermaid, dot or svg")
	cmd.Flags().BoolVar(&unfolded, "unfolded", false, "svg: a box for each step, also past 200 steps")
	return cmd
}

// definition parses a file if one of that name exists, else it reads the definition from the log.
func (c *connection) definition(cmd *cobra.Command, what string) (*workflow.Definition, error) {
	info, err := os.Stat(what)
	if err == nil && !info.IsDir() || what == "-" || strings.HasSuffix(what, ".yaml") || strings.HasSuffix(what, ".yml") || strings.HasSuffix(what, ".json") {
		list, err := parseFiles(cmd.InOrStdin(), []string{what})
		return list[0], err
	}
	t := tool{connection: *c}
	d, err := t.loggedDefinition(cmd, what)
	if err != nil {
		return nil, err
	}
	return d.Definition, nil
}

// loggedDefinition reads a definition that can be used from the log: NAME, its newest version, or NAME/VERSION.
func (t *tool) loggedDefinition(cmd *cobra.Command, what string) (*registry.Definition, error) {
	l, err := t.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	list, err := l.allDefinitions(cmd.Context())
	if err != nil {
		return nil, err
	}
	switch d := registry.Find(list, what); {
	case d == nil:
		return nil, exit(exitNotFound, "no workflow %q in the log%s; `waybill workflow list` lists the existing ones", what, meantDefinitions(what, list))
	case d.Definition == nil:
		return nil, fmt.Errorf("%s can't be used: %s", d.Key(), d.Fault)
	default:
		return d, nil
	}
}
