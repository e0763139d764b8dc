package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
)

// dryRunWhy is the reason of a dry run, if none is given.
const dryRunWhy = "a dry run"

type workflowMigrateOptions struct {
	controlOptions
	batchOptions
	to, from int
	execute  bool
}

func newWorkflowMigrate() *cobra.Command {
	var o workflowMigrateOptions
	cmd := &cobra.Command{
		Use:   "migrate NAME --to VERSION",
		Short: "Move open tasks to another version of their workflow",
		Long: `Move the open tasks of a workflow to another version, if their history fits it: the version has every step
that has begun, with the same kind, agent and operation, and no step has begun before one that it needs. Running
attempts continue. docs/guides/changing-definitions.md says what a migration means for each state of a step.

Without --execute it is a dry run: the schedulers answer for each task whether they would migrate it, and if not,
why. They change nothing. With --execute it is a batch as with resubmit --filter: it asks for confirmation (--yes
replaces it), migrates --canary tasks first, and stops if a migration leaves one held. Tasks that don't fit are refused
and not changed: exit code 8. To revert a migration, migrate back to the previous version.`,
		Example: `  waybill workflow migrate order --to 2
  waybill workflow migrate order --to 2 --from 1 --filter 'state:held' --execute --why 'version 2 has the right address'`,
		Args: arguments("a workflow's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.controlOptions.flags(cmd)
	o.batchOptions.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.to, "to", 0, "version to migrate to (required)")
	f.IntVar(&o.from, "from", 0, "only tasks of this version; 0: all others")
	f.BoolVar(&o.execute, "execute", false, "migrate; without it, only show what would be migrated")
	f.Lookup("filter").Usage = "only tasks that match these terms, such as 'state:held since:1h'"
	f.Lookup("why").Usage = "reason, recorded in the log (required with --execute)"
	for _, name := range []string{"rate", "canary", "canary-within", "batch", "detach"} { // it is always a batch
		f.Lookup(name).Usage = strings.TrimPrefix(f.Lookup(name).Usage, "with --filter: ")
	}
	f.Lookup("canary").Usage = "with --execute: " + f.Lookup("canary").Usage
	for _, name := range []string{"preview", "request-id", "timeout"} { // it is the dry run; they are for a single command
		f.Lookup(name).Hidden = true
	}
	commandLineOnly(f, "to", "from", "execute", "why")
	return cmd
}

func (o *workflowMigrateOptions) run(cmd *cobra.Command, name string) error {
	switch {
	case o.to < 1:
		return usage("give the version to migrate to: --to 2")
	case o.from == o.to:
		return usage("--from %d: it is the version to migrate to", o.from)
	case strings.ContainsAny(name, " /"):
		return usage("%q: must be a workflow's name, without a version; --from selects one", name)
	case !o.execute && onCommandLine(cmd, "canary"):
		return usage("--canary needs --execute")
	}
	if !o.execute {
		o.why, o.plan.Canary, o.yes = cmp.Or(o.why, dryRunWhy), 0, true
		if !onCommandLine(cmd, "rate") {
			o.plan.Rate = 0
		}
	}
	workflow := "workflow:" + name
	if o.from > 0 {
		workflow += "/" + strconv.Itoa(o.from)
	}
	o.filter = strings.TrimSpace(workflow + " " + o.filter)
	return o.runMany(cmd, &o.batchOptions, &events.Control{Command: events.Migrate, Version: o.to, DryRun: !o.execute})
}

// dryRunGroup is a number of tasks with the same answer to a dry run.
type dryRunGroup struct {
	Tasks  int          `json:"tasks"`
	Result batch.Status `json:"result"`
	Why    string       `json:"why,omitempty"`
	Sample string       `json:"sample"`
}

// dryRunGroups groups the answers, the largest group first.
func dryRunGroups(results []batch.Result) []dryRunGroup {
	type answer struct {
		status batch.Status
		why    string
	}
	at := map[answer]int{}
	var groups []dryRunGroup
	for _, r := range results {
		of := answer{r.Status, r.Why}
		i, seen := at[of]
		if !seen {
			i, at[of] = len(groups), len(groups)
			groups = append(groups, dryRunGroup{Result: r.Status, Why: r.Why, Sample: r.Task})
		}
		groups[i].Tasks++
	}
	slices.SortStableFunc(groups, func(a, b dryRunGroup) int { return cmp.Compare(b.Tasks, a.Tasks) })
	return groups
}

func printDryRun(out io.Writer, o *output, results []batch.Result) error {
	return printList(o, out, "TASKS RESULT WHY FOR-EXAMPLE", dryRunGroups(results), func(g dryRunGroup) []string {
		return []string{strconv.Itoa(g.Tasks), string(g.Result), text.Shorten(dash(g.Why), 160), idText(g.Sample)}
	})
}

// printDryRunEnd says how many tasks would be migrated, and how the others can be listed.
func printDryRunEnd(note io.Writer, b *consoleapi.Batch) {
	fmt.Fprintf(note, "dry run: %d of %s would be migrated to version %d; `waybill batch results %s` lists them; --execute migrates\n",
		b.Counts[batch.Accepted], text.Count(b.Tasks, "task"), b.Version, printable(b.ID))
}
