package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
)

// openNamed bounds the open tasks that are listed if a definition can't be deleted.
const openNamed = 3

type workflowDeleteOptions struct {
	tool
	yes bool
}

func newWorkflowDelete() *cobra.Command {
	var o workflowDeleteOptions
	cmd := &cobra.Command{
		Use:   "delete NAME/VERSION",
		Short: "Delete a definition that no open task uses",
		Long: `Delete a workflow definition. New submissions that name the version are refused afterwards, and submissions
without a version get the newest one left that isn't deprecated. The command is refused (exit code 8) while open
tasks use the version, or if a schedule, an intake or a step of another workflow starts tasks of it: because it names
the version, or because it names none and this is the last version that isn't deprecated. A task that is submitted at
the same moment continues: schedulers keep a copy of the definition for it. The version can be applied again only
with the same body.

On a terminal it asks for confirmation; elsewhere --yes is required.`,
		Example: `  waybill workflow delete notice/1 --yes`,
		Args:    arguments("a definition, NAME/VERSION"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runWorkflowDelete(cmd, &o, args[0]) },
	}
	o.tool.flags(cmd)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "don't ask for confirmation")
	return cmd
}

func runWorkflowDelete(cmd *cobra.Command, o *workflowDeleteOptions, what string) error {
	name, version, err := parseVersion(what)
	if err != nil {
		return err
	}
	if err := o.confirm(cmd, what); err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	if err := refuseIfStarted(cmd.Context(), l, name, version); err != nil {
		return err
	}
	if err := refuseIfUsed(cmd, l, name, version); err != nil {
		return err
	}
	err = l.askBrokers(cmd.Context(), func(ctx context.Context) error { return registry.Delete(ctx, l.cfg, name, version) })
	if errors.Is(err, registry.ErrNotFound) {
		return exit(exitNotFound, "there is no definition %s/%d; `waybill workflow list` shows those in the log", name, version)
	}
	if err != nil {
		return err
	}
	return o.printApplied(cmd.OutOrStdout(), []appliedDefinition{{name, version, "deleted", []string{}}})
}

// confirm asks for confirmation on a terminal. Elsewhere it requires --yes.
func (o *workflowDeleteOptions) confirm(cmd *cobra.Command, what string) error {
	switch {
	case o.yes:
		return nil
	case !onTerminal(cmd.InOrStdin()):
		return usage("delete %s: standard input isn't a terminal; confirm with --yes", what)
	}
	return askConfirmation(cmd.InOrStdin(), cmd.ErrOrStderr(), fmt.Sprintf("delete the definition %s, after which new submissions of it are refused", what))
}

// definitionsAndUses returns the definitions in the log, and which of them start tasks of others.
func (l *logbook) definitionsAndUses(ctx context.Context) (list []registry.Definition, uses []registry.Use, err error) {
	if list, err = l.definitions(ctx); err != nil {
		return nil, nil, err
	}
	err = l.askBrokers(ctx, func(ctx context.Context) error {
		uses, err = registry.Uses(ctx, l.admin, l.cfg.Namespace, list)
		return err
	})
	return list, uses, err
}

// refuseIfStarted returns an error if a schedule, an intake or a step starts tasks of the definition, and could start none
// without it.
func refuseIfStarted(ctx context.Context, l *logbook, name string, version int) error {
	list, uses, err := l.definitionsAndUses(ctx)
	if err != nil {
		return err
	}
	if users := registry.UsersOf(uses, list, name, version); len(users) > 0 {
		return exit(exitRefused, "%s/%d is used by %s: change or delete that first", name, version, strings.Join(users, ", "))
	}
	return nil
}

// refuseIfUsed returns an error if open tasks have the definition, by the current log.
func refuseIfUsed(cmd *cobra.Command, l *logbook, name string, version int) error {
	return askLocalConsole(cmd.Context(), logSource{l}, indexAll, "", func(c *apiClient) error {
		o := taskListOptions{workflow: fmt.Sprintf("%s/%d", name, version)}
		for _, s := range events.TaskStates {
			if !s.Terminal() {
				o.states = append(o.states, string(s))
			}
		}
		open, _, partial, err := o.list(cmd, c, time.Time{})
		if err := cmp.Or(err, partial); err != nil || len(open) == 0 {
			return err
		}
		var ids []string
		for i := range open {
			ids = append(ids, idText(open[i].ID))
		}
		slices.Sort(ids)
		return exit(exitRefused, "%s %s %s/%d (%s): migrate them, or delete it when they have ended; `waybill task list --workflow %s/%d` shows them",
			text.Count(len(ids), "open task"), text.Verb(len(ids), "uses", "use"), name, version, strings.Join(ids[:min(len(ids), openNamed)], ", "), name, version)
	})
}
