package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/intakerun"
	"github.com/waybill-run/waybill/internal/text"
)

func newIntake() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "intake",
		Short: "Run, validate, apply, list, pause and delete intakes, which take in topics of other applications",
		Long: `Run, validate, apply, list, pause and delete intakes. An intake consumes a topic of another application, and makes
a submission or a signal of each record, exactly once. It never writes to that topic.`,
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
	cmd.Flags().StringVar(&namespace, "namespace", events.DefaultNamespace, "namespace that the intake is for: its topics can't be taken in")
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
		Long: `Write intakes to the log: all or none. All files are checked first. An intake that has the name already is replaced, and
goes on after the records that it has consumed. A paused intake stays paused. 'waybill intake run' and 'waybill up' run
the intakes that were applied.`,
		Example: `  waybill intake apply docs/examples/shop-orders/shop-orders.intake.yaml`,
		Args:    atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := t.output.check(); err != nil {
				return err
			}
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
	return newNamedChange(events.IntakeDefinition, pauseNamed, &cobra.Command{
		Use:     "pause NAME",
		Short:   "Pause an intake: it consumes nothing until it is resumed",
		Example: "  waybill intake pause shop-orders --why 'the shop sends test orders'",
	})
}

func newIntakeResume() *cobra.Command {
	return newNamedChange(events.IntakeDefinition, resumeNamed, &cobra.Command{
		Use:     "resume NAME",
		Short:   "Resume an intake: it goes on with the record after the last one that it consumed",
		Example: "  waybill intake resume shop-orders",
	})
}

func newIntakeDelete() *cobra.Command {
	return newNamedChange(events.IntakeDefinition, deleteNamed, &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete an intake: its tasks go on",
		Long: `Delete an intake. Its tasks go on. Its consumer group keeps its positions, until the brokers' offsets.retention.minutes
have passed: an intake that is applied under the same name continues there.`,
		Example: "  waybill intake delete shop-orders",
	})
}

// intakes returns the intakes in the log.
func intakes(t *namedTool, cmd *cobra.Command) (list []intake.IntakeStatus, err error) {
	if err := t.output.check(); err != nil {
		return nil, err
	}
	l, err := t.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	err = l.askBrokers(cmd.Context(), func(ctx context.Context) error {
		list, err = intakerun.Views(ctx, l.admin, l.cfg.Namespace)
		return err
	})
	return list, err
}

func newIntakeList() *cobra.Command {
	var t namedTool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List intakes with their states and lags",
		Example: "  waybill intake list",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := intakes(&t, cmd)
			if err != nil {
				return err
			}
			return printList(&t.output, cmd.OutOrStdout(), "INTAKE STATE TOPIC FORMAT TO LAG FAULT", list, func(v intake.IntakeStatus) []string {
				return []string{v.Name, v.State, v.Topic, string(v.Format), v.To, lagText(v.Lag), text.Shorten(v.Fault, 120)}
			})
		},
	}
	t.flags(cmd)
	return cmd
}

func lagText(lag *int64) string {
	if lag == nil {
		return "-"
	}
	return strconv.FormatInt(*lag, 10)
}

func newIntakeGet() *cobra.Command {
	var t namedTool
	cmd := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show an intake",
		Example: "  waybill intake get shop-orders",
		Args:    arguments("an intake's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := intakes(&t, cmd)
			if err != nil {
				return err
			}
			for i := range list {
				if list[i].Name == args[0] {
					return t.printObject(cmd.OutOrStdout(), &list[i], func(out io.Writer) error { return printIntake(out, &list[i]) })
				}
			}
			return exit(exitNotFound, "there is no intake %q; `waybill intake list` shows those that there are", args[0])
		},
	}
	t.flags(cmd)
	return cmd
}

func printIntake(out io.Writer, v *intake.IntakeStatus) error {
	lines := [][2]string{{"topic", v.Topic}, {"to", v.To}, {"lag", lagText(v.Lag)}, {"workers", strconv.Itoa(v.Members)}, {"by", v.By + v.Claimed}, {"why", v.Why}, {"fault", v.Fault}, {"definition", string(v.Definition)}}
	fmt.Fprintf(out, "intake %s: %s\n", v.Name, v.State)
	for _, line := range lines {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", line[0], printable(line[1])); err != nil {
			return err
		}
	}
	return nil
}
