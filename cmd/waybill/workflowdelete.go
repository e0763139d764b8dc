package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/registry"
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
		Short: "Delete a definition that no open task has",
		Long: `Delete a workflow definition. New submissions that name the version are refused afterwards, and submissions
without a version get the newest one that is left. The command is refused (exit code 8) while open tasks have the
version. A task that was submitted at the same moment goes on: schedulers keep a copy for it. The version can
be applied again with the same body only.

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
	if err := o.output.check(); err != nil {
		return err
	}
	name, text, _ := strings.Cut(what, "/")
	version, err := strconv.Atoi(text)
	if name == "" || err != nil || version < 1 {
		return usage("%q: a definition is NAME/VERSION; `waybill workflow list` shows those in the log", what)
	}
	if err := o.confirm(cmd, what); err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	if err := refuseIfUsed(cmd.Context(), l, name, version); err != nil {
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

// refuseIfUsed returns an error if open tasks have the definition, by the current log.
func refuseIfUsed(ctx context.Context, l *logbook, name string, version int) error {
	f := newTaskFold()
	err := (&logHistory{logbook: l}).read(ctx, "", func(r *events.Record) error {
		f.add(r, nil)
		return nil
	}, nil)
	if err != nil {
		return err
	}
	var open []string
	for id, t := range f.tasks {
		if t.Open() && t.Workflow == name && t.Version == version {
			open = append(open, idText(id))
		}
	}
	if len(open) == 0 {
		return nil
	}
	slices.Sort(open)
	return exit(exitRefused, "%d open tasks have %s/%d (%s): delete it when they have ended; `waybill task list --workflow %s/%d` shows them",
		len(open), name, version, strings.Join(open[:min(len(open), openNamed)], ", "), name, version)
}
