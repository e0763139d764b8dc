package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/schedulerun"
	"github.com/waybill-run/waybill/internal/text"
)

func newSchedule() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Validate, apply, list, pause, trigger and delete schedules, which start tasks at set times",
		Long: `Validate, apply, list, pause, trigger and delete schedules. A schedule starts a task at each of its instants,
by cron in a time zone or at an interval. A supervisor starts the tasks. If it is killed, another one continues.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newScheduleValidate(), newScheduleApply(), newScheduleList(), newScheduleGet(), newSchedulePause(), newScheduleResume(), newScheduleTrigger(), newScheduleBackfill(), newScheduleDelete())
	return cmd
}

// instantsShown is how many instants of a valid schedule are printed.
const instantsShown = 3

func newScheduleValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check definition files of schedules without a cluster, and show the next instants",
		Long: `Check definition files of schedules without a cluster. Each fault is printed with file, line, column and how to
fix it: exit code 2 if there is one. The next three instants of each schedule are printed in its zone.`,
		Example: `  waybill schedule validate docs/examples/reminder/monday.schedule.yaml`,
		Args:    atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error {
			list, err := parseSchedules(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			for i, d := range list {
				at, texts := time.Now(), []string{}
				for range instantsShown {
					if at = d.Rule().Next(at); !at.IsZero() {
						texts = append(texts, at.In(d.Location()).Format(time.RFC3339))
					}
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is valid, next %s\n", files[i], d.Name, strings.Join(texts, ", "))
			}
			return nil
		},
	}
}

func parseSchedules(stdin io.Reader, files []string) ([]*schedule.Definition, error) {
	return parseNamed(events.ScheduleDefinition, stdin, files, func(name string, src []byte) (*schedule.Definition, string, error) {
		d, err := schedule.Parse(name, src)
		if err != nil {
			return nil, "", err
		}
		return d, d.Name, nil
	})
}

func newScheduleApply() *cobra.Command {
	t := namedTool{kind: events.ScheduleDefinition}
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Write schedules to the log",
		Long: `Write schedules to the log: all or none. All files are checked first. An existing schedule with the same name is
replaced. If its rule (cron, every, zone) is unchanged, it continues where it was; otherwise instants count from now
on. A paused schedule stays paused. A schedule may name a workflow that isn't applied yet: a note says so.`,
		Example: `  waybill schedule apply docs/examples/reminder/monday.schedule.yaml`,
		Args:    atLeastOneFile,
		RunE: func(cmd *cobra.Command, files []string) error {
			list, err := parseSchedules(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			definitions := make([]events.NamedDefinition, len(list))
			for i, d := range list {
				body, err := d.JSON()
				if err != nil {
					return err
				}
				definitions[i] = events.NamedDefinition{Kind: events.ScheduleDefinition, Name: d.Name, Body: body, By: t.by()}
			}
			return t.apply(cmd, definitions, schedule.SameRule)
		},
	}
	t.flags(cmd)
	t.changes(cmd)
	return cmd
}

// scheduleError gives errors about schedules their exit codes.
func scheduleError(err error) error {
	switch {
	case errors.Is(err, schedule.ErrNotFound):
		return exit(exitNotFound, "%w; `waybill schedule list` lists the existing ones", err)
	case errors.Is(err, schedule.ErrBadRange), errors.Is(err, schedule.ErrTooManyRequests), errors.Is(err, schedule.ErrUnusable):
		return exit(exitRefused, "%w", err)
	}
	return err
}

func newSchedulePause() *cobra.Command {
	return newNamedChange(events.ScheduleDefinition, registry.PauseNamed, &cobra.Command{
		Use:     "pause NAME",
		Short:   "Pause a schedule: its instants start no tasks until it is resumed",
		Example: "  waybill schedule pause nightly-settlement --why 'the bank is closed'",
	})
}

func newScheduleResume() *cobra.Command {
	return newNamedChange(events.ScheduleDefinition, registry.ResumeNamed, &cobra.Command{
		Use:     "resume NAME",
		Short:   "Resume a schedule: instants count from now on",
		Long:    "Resume a schedule. Instants count from now on. Those of the pause get no tasks; `waybill schedule backfill` starts them.",
		Example: "  waybill schedule resume nightly-settlement",
	})
}

func newScheduleDelete() *cobra.Command {
	return newNamedChange(events.ScheduleDefinition, registry.DeleteNamed, &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a schedule: its tasks continue",
		Example: "  waybill schedule delete nightly-settlement",
	})
}

// askSchedules reads the schedules, and calls ask.
func askSchedules(t *namedTool, cmd *cobra.Command, ask func(ctx context.Context, s *schedulerun.Service) error) error {
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	s := schedulerun.New(schedulerun.Config{Kafka: l.cfg, Admin: l.admin, Producer: producer, Source: toolSource, Log: slog.New(slog.DiscardHandler)})
	running, cancel := context.WithCancel(cmd.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(running) // AwaitRead says what is wrong
	}()
	defer func() {
		cancel()
		<-ended
	}()
	within, done := context.WithTimeout(cmd.Context(), stallTimeout)
	defer done()
	if err := s.AwaitDefinitions(within); err != nil {
		return l.connectionLost(err)
	}
	return scheduleError(ask(cmd.Context(), s))
}

func newScheduleList() *cobra.Command {
	var t namedTool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List schedules with their next and last instants",
		Example: "  waybill schedule list",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askSchedules(&t, cmd, func(_ context.Context, s *schedulerun.Service) error {
				list, err := s.List()
				if err != nil {
					return err
				}
				return printList(&t.output, cmd.OutOrStdout(), "SCHEDULE STATE NEXT LAST RESULT RUNNING FAULT", list, func(v schedule.Schedule) []string {
					last, result := "-", "-"
					if v.Last != nil {
						last, result = tableTime(v.Last.At), outcomeText(v.Last)
					}
					return []string{v.Name, v.State, tableTime(v.Next), last, result, strconv.Itoa(len(v.Running)), text.Shorten(v.Fault, 120)}
				})
			})
		},
	}
	t.flags(cmd)
	return cmd
}

// outcomeText says what became of an instant.
func outcomeText(o *schedule.ScheduleInstant) string {
	switch {
	case o.Task == "" && o.Count > 1:
		return fmt.Sprintf("%d skipped: %s", o.Count, o.Skipped)
	case o.Task == "":
		return "skipped: " + string(o.Skipped)
	case o.Status == "":
		return "submitted"
	}
	return o.Status
}

func newScheduleGet() *cobra.Command {
	var t namedTool
	cmd := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show a schedule with its last instants",
		Example: "  waybill schedule get nightly-settlement",
		Args:    arguments("a schedule's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askSchedules(&t, cmd, func(_ context.Context, s *schedulerun.Service) error {
				v, err := s.Find(args[0])
				if err != nil {
					return err
				}
				return t.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error { return printSchedule(out, v) })
			})
		},
	}
	t.flags(cmd)
	return cmd
}

func printSchedule(out io.Writer, v *schedule.Schedule) error {
	fmt.Fprintf(out, "schedule %s: %s\n%s\n", v.Name, v.State, printable(string(v.Definition)))
	printFields(out, [][2]string{{"fault", v.Fault}, {"by", v.By + v.Claimed}, {"why", v.Why}})
	fmt.Fprintf(out, "next %s, %d started, %d skipped, %d refused, %d running\n", tableTime(v.Next), v.Started, v.Skipped, v.Refused, len(v.Running))
	for i := range v.Recent {
		o := &v.Recent[i]
		if _, err := fmt.Fprintf(out, "  %s  %s  %s\n", tableTime(o.At), outcomeText(o), printable(strings.TrimSpace(o.Task+" "+o.Detail))); err != nil {
			return err
		}
	}
	return nil
}

// triggered is a trigger as it is printed.
type triggered struct {
	Schedule string `json:"schedule"`
	Request  string `json:"request"`
	Task     string `json:"task,omitempty"`
	Skipped  string `json:"skipped,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

func newScheduleTrigger() *cobra.Command {
	var t namedTool
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Start a task of a schedule now",
		Long: `Start a task of a schedule now, even if the schedule is paused or other tasks of it are running. Its instant is the
time of the request.`,
		Example: "  waybill schedule trigger nightly-settlement --why 'the file came late'",
		Args:    arguments("a schedule's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askSchedules(&t, cmd, func(ctx context.Context, s *schedulerun.Service) error {
				request, err := s.Trigger(ctx, args[0], t.by())
				if err != nil {
					return err
				}
				within, done := context.WithTimeout(ctx, defaultAnswerTimeout)
				defer done()
				o, err := s.AwaitRequest(within, args[0], request)
				if err != nil {
					return err
				}
				v := triggered{args[0], request, o.Task, string(o.Skipped), o.Detail}
				err = t.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error {
					if o.Task == "" {
						return nil // the error says it
					}
					_, err := fmt.Fprintf(out, "submitted task %s; `waybill task wait %s` shows how it ends, or why it is refused\n", o.Task, o.Task)
					return err
				})
				if err == nil && o.Task == "" {
					return exit(exitRefused, "no task was started: %s", printable(o.Detail))
				}
				return err
			})
		},
	}
	t.flags(cmd)
	t.changes(cmd)
	return cmd
}

// backfilled is a backfill as it is printed.
type backfilled struct {
	Schedule string `json:"schedule"`
	Request  string `json:"request"`
	Instants int    `json:"instants"`
}

func newScheduleBackfill() *cobra.Command {
	var t namedTool
	var from, to string
	cmd := &cobra.Command{
		Use:   "backfill NAME --from INSTANT --to INSTANT",
		Short: "Start the tasks of past instants of a schedule",
		Long: `Start the tasks of a schedule's instants, from --from (inclusive) to --to (exclusive). An instant that already has a
task gets no second one. With 'overlap: allow' all tasks start at once; otherwise they run one after another.`,
		Example: "  waybill schedule backfill nightly-settlement --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z",
		Args:    arguments("a schedule's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var times [2]time.Time
			for i, text := range []string{from, to} {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					return usage("%s %q: write an instant such as 2026-11-01T00:00:00Z", []string{"--from", "--to"}[i], text)
				}
				times[i] = at
			}
			return askSchedules(&t, cmd, func(ctx context.Context, s *schedulerun.Service) error {
				request, n, err := s.Backfill(ctx, args[0], times[0], times[1], t.by())
				if err != nil {
					return err
				}
				v := backfilled{args[0], request, n}
				return t.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error {
					_, err := fmt.Fprintf(out, "%s of %s: those without a task get one; `waybill schedule get %s` shows them\n", text.Count(n, "instant"), args[0], args[0])
					return err
				})
			})
		},
	}
	t.flags(cmd)
	t.changes(cmd)
	cmd.Flags().StringVar(&from, "from", "", "first instant, RFC 3339 (required)")
	cmd.Flags().StringVar(&to, "to", "", "end of the instants, exclusive, RFC 3339 (required)")
	commandLineOnly(cmd.Flags(), "from", "to")
	return cmd
}
