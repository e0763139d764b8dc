package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intakerun"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/redrive"
	"github.com/waybill-run/waybill/internal/text"
)

type redriveOptions struct {
	tool
	sinceFlag
	reasons  []string
	intake   string
	execute  bool
	registry registryFlags
}

func newRedrive() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "redrive [PARTITION/OFFSET...]",
		Short: "Write dead letters to their original topics again",
		Long: `Write the original records of dead letters back to the topics that they came from: inboxes or notifications.
Do this when the cause is fixed, for example when a missing workflow has been applied. Select dead
letters by PARTITION/OFFSET, as 'waybill deadletters -o json' shows them, or by --reason, --intake or --since.
Without --execute the command only shows what it would do.

The value and the CloudEvents headers are those of the original. A record that would become a dead letter
again is refused: its bytes were cut or can't be read, its key names another task, its id belongs to
another submission, or it was redriven before and became a later dead letter: redrive that one. If a
record that was named by PARTITION/OFFSET is refused, --execute exits with 8.

A record that an intake could not map is mapped again, with the intake's current definition. For Avro this needs
--schema-registry.

A second redrive has no effect: a task id, an attempt and a request id count once.`,
		Example: `  waybill deadletters redrive --reason unknown_workflow
  waybill deadletters redrive --reason unknown_workflow --execute
  waybill deadletters redrive 4/17 --execute`,
		RunE: func(cmd *cobra.Command, args []string) error { return runRedrive(cmd, &o, args) },
	}
	o.tool.flags(cmd)
	o.sinceFlag.flags(cmd, "only dead letters since")
	cmd.Flags().StringSliceVar(&o.reasons, "reason", nil, "only dead letters with one of these reasons")
	cmd.Flags().StringVar(&o.intake, "intake", "", "only dead letters of this intake")
	commandLineOnly(cmd.Flags(), "reason", "intake")
	o.registry.flags(cmd)
	cmd.Flags().BoolVar(&o.execute, "execute", false, "write the records; without it, only show what would be written")
	return cmd
}

func runRedrive(cmd *cobra.Command, o *redriveOptions, args []string) error {
	named, err := parsePositions(args)
	if err != nil {
		return err
	}
	if err := checkReasons(o.reasons); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	if o.execute && len(named) == 0 && len(o.reasons) == 0 && o.intake == "" && from.IsZero() {
		return usage("redrive --execute: select dead letters by position, --reason, --intake or --since; without --execute it lists all")
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	schemas, err := o.registry.open()
	if err != nil {
		return err
	}
	intakes, err := intakerun.MapAgain(cmd.Context(), l.admin, l.cfg.Namespace, schemas)
	if err != nil {
		return l.connectionLost(err)
	}
	choice := redrive.NewChoice(l.cfg.Namespace, toolSource, named, o.reasons)
	choice.MapIntakes(intakes)
	choice.OnlyIntake(o.intake)
	deadletters, since := l.cfg.Namespace.Deadletters(), logreader.Range{Since: from}
	_, err = l.read(cmd.Context(), deadletters, since, func(r *events.Record) error {
		choice.Add(r)
		return nil
	})
	if err != nil {
		return err
	}
	list, missing := choice.Letters()
	if len(missing) > 0 {
		return exit(exitNotFound, "there is no dead letter %s, or it doesn't match the other flags; `waybill deadletters` lists them", missing[0])
	}
	if o.execute {
		if err := writeLetters(cmd.Context(), l, list, since, intakes); err != nil {
			return err
		}
	}
	err = printList(&o.output, cmd.OutOrStdout(), "DEADLETTER REASON TASK TO DONE WHY", list, func(d redrive.Letter) []string {
		return []string{strconv.Itoa(int(d.Partition)) + "/" + d.Offset, d.Reason, dash(idText(d.Task)), dash(text.Shorten(d.To, 60)), d.Done, dash(text.Shorten(d.Why, 160))}
	})
	if n := redrive.CountRefused(list); err == nil && o.execute && len(named) > 0 && n > 0 {
		return exit(exitRefused, "%d of %s can't be written again; the column WHY gives each reason", n, text.Count(len(list), "named dead letter"))
	}
	return err
}

func parsePositions(args []string) (named []redrive.Position, err error) {
	for _, arg := range args {
		at, err := redrive.ParsePosition(arg)
		if err != nil {
			return nil, usage("%w; `waybill deadletters` shows them", err)
		}
		named = append(named, at)
	}
	return named, nil
}

// writeLetters reads the dead letters again, and writes the accepted ones.
func writeLetters(ctx context.Context, l *logbook, list []redrive.Letter, since logreader.Range, intakes redrive.MapAgain) error {
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	w := redrive.NewWriter(l.cfg.Namespace, toolSource, list, func(ctx context.Context, rs ...events.Record) error {
		return l.askBrokers(ctx, func(ctx context.Context) error { return producer.Send(ctx, rs...) })
	})
	w.MapIntakes(intakes)
	_, err = l.read(ctx, l.cfg.Namespace.Deadletters(), since, func(r *events.Record) error { return w.Add(ctx, r) })
	if err != nil {
		return err
	}
	return w.Finish(ctx, nil) // the read fails if a partition has no leader
}
