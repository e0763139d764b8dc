package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

func newWorkflow() *cobra.Command {
	cmd := &cobra.Command{Use: "workflow", Short: "Validate, apply, list, draw and delete workflow definitions"}
	cmd.AddCommand(newWorkflowValidate(), newWorkflowApply(), newWorkflowList(), newWorkflowGraph(), newWorkflowDelete())
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
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is valid: %d steps, agents %s\n", files[i], d.Key(), len(d.Steps), strings.Join(d.Agents(), ", "))
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
	if file == "-" {
		src, err := io.ReadAll(io.LimitReader(stdin, workflow.MaxDefinitionBytes+1))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return parseDefinition("stdin", src)
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseDefinition(file, src)
}

// parseDefinition parses a definition and checks that its plan isn't too large: a scheduler would refuse each
// of its tasks.
func parseDefinition(file string, src []byte) (*workflow.Definition, error) {
	d, err := workflow.ParseYAML(file, src)
	if err != nil {
		return nil, err
	}
	p, err := workflow.Compile(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n := scheduler.PlanOf(p).Bytes(); n > scheduler.MaxPlanBytes {
		return nil, fmt.Errorf("%s: the plan of %s, which each of its tasks would hold, has %d bytes; at most %d (%d KiB): "+
			"give steps shorter names or fewer needs, or split the workflow", file, d.Key(), n, scheduler.MaxPlanBytes, scheduler.MaxPlanBytes>>10)
	}
	return d, nil
}

// appliedDefinition is the result for one definition as it is printed.
type appliedDefinition struct {
	Workflow string   `json:"workflow"`
	Version  int      `json:"version"`
	Result   string   `json:"result"` // applied, unchanged or deleted
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
	if err := t.output.check(); err != nil {
		return err
	}
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
	there, err := l.definitions(ctx)
	if err != nil {
		return err
	}
	var list []appliedDefinition
	for _, d := range definitions {
		result := "applied"
		if slices.ContainsFunc(there, func(s storedDefinition) bool { return s.Workflow == d.Name && s.Version == d.Version }) {
			result = "unchanged"
		}
		err := l.askBrokers(ctx, func(ctx context.Context) error { return applyDefinition(ctx, l.cfg, d) })
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

// storedDefinition is a definition in the log. If this build can't use it, Definition is null and Fault says
// why.
type storedDefinition struct {
	Workflow   string               `json:"workflow"`
	Version    int                  `json:"version"`
	AppliedAt  *string              `json:"applied_at"`
	Fault      string               `json:"fault,omitempty"`
	Definition *workflow.Definition `json:"definition"`
}

// definitions returns the definitions in the log by name and version, without deleted ones.
func (l *logbook) definitions(ctx context.Context) ([]storedDefinition, error) {
	return l.storedDefinitions(ctx, false)
}

// keptDefinitions also returns deleted definitions whose body schedulers keep for tasks that began with it.
func (l *logbook) keptDefinitions(ctx context.Context) ([]storedDefinition, error) {
	return l.storedDefinitions(ctx, true)
}

func (l *logbook) storedDefinitions(ctx context.Context, deleted bool) ([]storedDefinition, error) {
	last := map[string]events.Record{}
	err := l.askBrokers(ctx, func(ctx context.Context) error {
		clear(last)
		return l.admin.ReadCompacted(ctx, l.cfg.Namespace.Definitions(), func(r events.Record) error {
			last[string(r.Key)] = r
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the definitions: %w", err)
	}
	var list []storedDefinition
	for key, r := range last {
		of, kept, is := events.ParseDefinitionKey(key)
		if !is || kept && (!deleted || len(last[of].Value) > 0) { // the format record, or a copy that isn't wanted
			continue
		}
		name, version, _ := strings.Cut(of, "/")
		if n, err := strconv.Atoi(version); err == nil && len(r.Value) > 0 { // otherwise it was deleted
			s := storedDefinition{Workflow: name, Version: n, AppliedAt: events.InstantText(r.Time)}
			if s.Definition, err = workflow.ParseJSON(r.Value); err != nil {
				s.Fault, s.Definition = err.Error(), nil
			}
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b storedDefinition) int {
		if c := strings.Compare(a.Workflow, b.Workflow); c != 0 {
			return c
		}
		return a.Version - b.Version
	})
	return list, nil
}

func newWorkflowList() *cobra.Command {
	var t tool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the definitions in the log",
		Long: `List the workflow definitions in the log, with their agents. New tasks get the newest version unless
they name one.`,
		Example: `  waybill workflow list`,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runWorkflowList(cmd, &t) },
	}
	t.flags(cmd)
	return cmd
}

func runWorkflowList(cmd *cobra.Command, t *tool) error {
	if err := t.output.check(); err != nil {
		return err
	}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	list, err := l.definitions(cmd.Context())
	if err != nil {
		return err
	}
	return printList(&t.output, cmd.OutOrStdout(), "WORKFLOW VERSION STEPS AGENTS APPLIED FAULT", list, func(s storedDefinition) []string {
		steps, agents := "-", "-"
		if s.Definition != nil {
			steps, agents = strconv.Itoa(len(s.Definition.Steps)), strings.Join(s.Definition.Agents(), ",")
		}
		return []string{s.Workflow, strconv.Itoa(s.Version), steps, agents, tableTime(s.AppliedAt), shorten(s.Fault, 120)}
	})
}

func newWorkflowGraph() *cobra.Command {
	var conn connection
	var format string
	cmd := &cobra.Command{
		Use:   "graph FILE|NAME[/VERSION]",
		Short: "Draw the steps of a definition",
		Long: `Draw the steps of a definition and the order between them: of a file, or of a definition in the log
(its newest version unless one is given).`,
		Example: `  waybill workflow graph workflow/order.yaml
  waybill workflow graph order/1 --format mermaid`,
		Args: arguments("a file, or a workflow's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := conn.definition(cmd, args[0])
			if err != nil {
				return err
			}
			drawn, err := d.Graph(format)
			if err != nil {
				return exit(exitUsage, "--format: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.TrimRight(drawn, "\n"))
			return err
		},
	}
	conn.flags(cmd)
	cmd.Flags().StringVar(&format, "format", workflow.GraphText, "output format: text, mermaid or dot")
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
	l, err := t.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	list, err := l.keptDefinitions(cmd.Context())
	if err != nil {
		return nil, err
	}
	name, version, _ := strings.Cut(what, "/")
	for _, s := range slices.Backward(list) {
		if s.Workflow == name && (version == "" || version == strconv.Itoa(s.Version)) {
			if s.Definition == nil {
				return nil, fmt.Errorf("%s/%d can't be used: %s", s.Workflow, s.Version, s.Fault)
			}
			return s.Definition, nil
		}
	}
	return nil, exit(exitNotFound, "no file and no workflow %q; `waybill workflow list` shows those in the log", what)
}
