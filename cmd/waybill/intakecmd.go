package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
)

func newIntake() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "intake",
		Short: "Run, validate, apply, list, pause and delete intakes, which consume topics of other applications",
		Long: `Run, validate, apply, list, pause and delete intakes. An intake consumes a topic of another application, and turns
each record into a submission or a signal, exactly once. It never writes to that topic.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newIntakeRun(), newIntakeValidate(), newIntakeApply(), newIntakeList(), newIntakeGet(), newIntakePause(), newIntakeResume(), newIntakeDelete())
	return cmd
}

func newIntakeValidate() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check definition files of intakes without a cluster",
		Long: `Check definition files of intakes without a cluster. Each fault is printed with file, line, column and how to fix
it. Exit code 2 if there is one.`,
		Example: `  waybill intake validate docs/examples/shop-orders/shop-orders.intake.yaml`,
		Args:    atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error {
			list, err := parseIntakes(cmd.InOrStdin(), files, events.Namespace(namespace))
			if err != nil {
				return err
			}
			for i, d := range list {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is valid: %s, %s to %s\n", files[i], d.Name, d.Topic, d.Format, d.To())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", events.DefaultNamespace, "namespace of the intake, which can't consume the namespace's own topics")
	commandLineOnly(cmd.Flags(), "namespace")
	return cmd
}

func parseIntakes(stdin io.Reader, files []string, ns events.Namespace) ([]*intake.Definition, error) {
	return parseNamed(events.IntakeDefinition, stdin, files, func(name string, src []byte) (*intake.Definition, string, error) {
		p, err := intake.Parse(name, src, ns)
		if err != nil {
			return nil, "", err
		}
		return p.Definition, p.Definition.Name, nil
	})
}

func newIntakeApply() *cobra.Command {
	t := namedTool{kind: events.IntakeDefinition}
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Write intakes to the log",
		Long: `Write intakes to the log: all or none. All files are checked first. An existing intake with the same name is replaced,
and continues after the records that it has consumed. A paused intake stays paused. 'waybill intake run' and
'waybill up' run the intakes that were applied.`,
		Example: `  waybill intake apply docs/examples/shop-orders/shop-orders.intake.yaml`,
		Args:    atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error {
			list, err := parseIntakes(cmd.InOrStdin(), files, events.Namespace(t.namespace))
			if err != nil {
				return err
			}
			definitions := make([]events.NamedDefinition, len(list))
			for i, d := range list {
				definitions[i] = events.NamedDefinition{Kind: events.IntakeDefinition, Name: d.Name, Body: d.Canonical(), By: t.by()}
			}
			return t.apply(cmd, definitions, nil)
		},
	}
	t.flags(cmd)
	t.changes(cmd)
	return cmd
}

func newIntakePause() *cobra.Command {
	return newNamedChange(events.IntakeDefinition, registry.PauseNamed, &cobra.Command{
		Use:     "pause NAME",
		Short:   "Pause an intake: it consumes nothing until it is resumed",
		Example: "  waybill intake pause shop-orders --why 'the shop sends test orders'",
	})
}

func newIntakeResume() *cobra.Command {
	return newNamedChange(events.IntakeDefinition, registry.ResumeNamed, &cobra.Command{
		Use:     "resume NAME",
		Short:   "Resume an intake: it continues after the last record that it consumed",
		Example: "  waybill intake resume shop-orders",
	})
}

func newIntakeDelete() *cobra.Command {
	return newNamedChange(events.IntakeDefinition, registry.DeleteNamed, &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete an intake: its tasks continue",
		Long: `Delete an intake. Its tasks continue. Its consumer group keeps its positions until the brokers' offsets.retention.minutes
have passed: an intake that is applied under the same name until then continues there.`,
		Example: "  waybill intake delete shop-orders",
	})
}

// intakeQuery is a command that shows intakes.
type intakeQuery struct {
	tool
	queryFlags
}

func (q *intakeQuery) flags(cmd *cobra.Command) {
	q.tool.flags(cmd)
	q.api.flags(cmd)
}

// ask gets an answer about intakes of a console, and prints it.
func (q *intakeQuery) ask(cmd *cobra.Command, path string, into any, print func() error) error {
	return q.query(cmd, &q.tool, noIndex, func(c *apiClient) error {
		if err := c.Get(cmd.Context(), path, nil, into); err != nil {
			return err
		}
		return print()
	})
}

func newIntakeList() *cobra.Command {
	var q intakeQuery
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List intakes with their states, lags and dead letters of the last 24 hours",
		Example: "  waybill intake list",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l console.IntakeList
			return q.ask(cmd, "/intakes", &l, func() error {
				return printList(&q.output, cmd.OutOrStdout(), "INTAKE STATE TOPIC FORMAT TO LAG DEADLETTERS FAULT", l.Intakes, func(v intake.IntakeStatus) []string {
					return []string{v.Name, v.State, v.Topic, string(v.Format), v.To, numberText(v.Lag), deadlettersText(v.Deadletters), text.Shorten(v.Fault, 120)}
				})
			})
		},
	}
	q.flags(cmd)
	return cmd
}

func numberText(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func deadlettersText(d *intake.IntakeDeadletters) string {
	if d == nil {
		return "-"
	}
	return strconv.FormatInt(d.Count, 10)
}

func newIntakeGet() *cobra.Command {
	var q intakeQuery
	cmd := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show an intake, with its position in each partition",
		Example: "  waybill intake get shop-orders",
		Args:    arguments("an intake's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := events.CheckDefinitionName(args[0]); err != nil {
				return usage("%w", err)
			}
			var v intake.IntakeStatus
			return q.ask(cmd, "/intakes/"+args[0], &v, func() error {
				return q.printObject(cmd.OutOrStdout(), &v, func(out io.Writer) error { return printIntake(out, &v) })
			})
		},
	}
	q.flags(cmd)
	return cmd
}

func printIntake(out io.Writer, v *intake.IntakeStatus) error {
	deadletters := deadlettersText(v.Deadletters)
	if v.Deadletters != nil && v.Deadletters.Since != nil {
		deadletters += " since " + *v.Deadletters.Since
	}
	fmt.Fprintf(out, "intake %s: %s\n", v.Name, v.State)
	printFields(out, [][2]string{{"topic", v.Topic}, {"to", v.To}, {"lag", numberText(v.Lag)}, {"dead letters", deadletters}, {"workers", strconv.Itoa(v.Members)},
		{"by", v.By + v.Claimed}, {"why", v.Why}, {"fault", v.Fault}, {"definition", string(v.Definition)}})
	if len(v.Partitions) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := newTable(out, "PARTITION POSITION END LAG WORKER")
	for _, p := range v.Partitions {
		w.row(strconv.Itoa(int(p.Partition)), offsetCell(p.Position), offsetCell(p.End), numberText(p.Lag), dash(p.Worker))
	}
	return w.Flush()
}

func offsetCell(offset *string) string {
	if offset == nil {
		return "-"
	}
	return *offset
}
