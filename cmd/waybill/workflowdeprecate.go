package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/workflow"
)

type workflowDeprecateOptions struct {
	tool
	undo     bool
	who, why string
}

func newWorkflowDeprecate() *cobra.Command {
	var o workflowDeprecateOptions
	cmd := &cobra.Command{
		Use:   "deprecate NAME VERSION",
		Short: "Stop new tasks from getting a version unless they name it",
		Long: `Deprecate a version of a workflow. Submissions without a version get the newest version that isn't deprecated.
So do schedules, intakes and steps that name none. Those that name a deprecated version are accepted: 'waybill submit',
'waybill schedule apply' and 'waybill intake apply' print a note, and 'waybill doctor' lists such schedules and intakes.
Tasks of the version continue. If all versions are deprecated, submissions without a version are refused.`,
		Example: `  waybill workflow deprecate order 2 --why 'it charges twice; use 3'
  waybill workflow deprecate order/2 --undo --why 'version 3 is worse'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return arguments("a workflow's name and a version")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runWorkflowDeprecate(cmd, &o, strings.Join(args, "/"))
		},
	}
	o.tool.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.undo, "undo", false, "revoke the deprecation")
	f.StringVar(&o.who, "who", "", "who makes the change (default: user and host); it isn't verified")
	f.StringVar(&o.why, "why", "", "reason, recorded in the log (required)")
	commandLineOnly(f, "undo", "who", "why")
	return cmd
}

// parseVersion parses NAME/VERSION.
func parseVersion(what string) (name string, version int, err error) {
	name, text, _ := strings.Cut(what, "/")
	version, err = strconv.Atoi(text)
	if name == "" || err != nil || version < 1 || version > workflow.MaxVersion {
		return "", 0, usage("%q: a definition is NAME/VERSION; `waybill workflow list` shows those in the log", what)
	}
	return name, version, nil
}

func runWorkflowDeprecate(cmd *cobra.Command, o *workflowDeprecateOptions, what string) error {
	name, version, err := parseVersion(what)
	switch {
	case err != nil:
		return err
	case o.why == "" || len(o.why) > events.MaxWhyBytes:
		return usage("give the reason, which is logged, of at most %d bytes: --why 'use version %d'", events.MaxWhyBytes, version+1)
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	if o.who == "" {
		o.who = currentUser()
	}
	d := &events.Deprecation{Deprecated: !o.undo, Why: o.why, By: o.who, At: time.Now()}
	changed := false
	err = l.askBrokers(cmd.Context(), func(ctx context.Context) (err error) {
		changed, err = registry.Deprecate(ctx, l.cfg, name, version, d)
		return err
	})
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return exit(exitNotFound, "there is no definition %s/%d; `waybill workflow list` shows those in the log", name, version)
	case err != nil:
		return err
	}
	done := appliedDefinition{name, version, "unchanged", []string{}}
	if changed {
		done.Result = map[bool]string{true: "deprecated", false: "restored"}[d.Deprecated]
	}
	if err := noteNewest(cmd, l, name); err != nil {
		return err
	}
	return o.printApplied(cmd.OutOrStdout(), []appliedDefinition{done})
}

// noteNewest says which version new tasks get that name none.
func noteNewest(cmd *cobra.Command, l *logbook, name string) error {
	list, err := l.definitions(cmd.Context())
	if err != nil {
		return err
	}
	newest := 0
	for i := range list {
		if d := &list[i]; d.Workflow == name && d.Definition != nil && d.Deprecated == nil {
			newest = d.Version // they are in order
		}
	}
	if newest == 0 {
		fmt.Fprintf(l.note, "waybill: every version of %s is deprecated: submissions that name no version are refused, also those of schedules, intakes and steps\n", printable(name))
	} else {
		fmt.Fprintf(l.note, "waybill: new tasks of %s that name no version get version %d\n", printable(name), newest)
	}
	return nil
}

// noteDeprecated notes what submissions use that is deprecated. It refuses a name without a version that new tasks can
// get, unless the scheduler's refusal is waited for.
func noteDeprecated(l *logbook, used []string, known registry.Known, waits bool) error {
	for _, what := range used {
		switch why := known[what]; {
		case why == "":
		case strings.Contains(what, "/"):
			fmt.Fprintf(l.note, "waybill: %s is deprecated: %s\n", printable(what), printable(text.Shorten(why, 200)))
		case !waits:
			return exit(exitRefused, "nothing was submitted: every version of workflow %s is deprecated; name one with --version, or apply a new one", printable(what))
		}
	}
	return nil
}
