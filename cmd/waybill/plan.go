package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/workflow"
)

type planOptions struct {
	historyTool
	forkFlags
	old      []string
	finished int
	all      bool
}

func newReplayPlan() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan --workflow FILE",
		Short: "Show which tasks a new definition would change",
		Long: `Simulate all open tasks of a workflow to their end, under their own definition and under a new one, and
list the tasks whose events would differ or that would stall. Use it before 'waybill workflow apply'. With
--finished N it simulates the last N finished tasks from their start instead, with the recorded answers of
their agents. It writes nothing.

--assume supplies the answers that are not recorded; for open tasks these are all future answers. The waits
between attempts are not compared. Operators' commands are not simulated, so a task that needed one ends
differently. A task that can't be simulated, because its definition is missing or one of its events can't
be read, is listed with the reason, and the exit code is 1, or 7 if an event can't be read.

Columns: NOW is the current state, OTHERWISE the final state under the task's own definition, THEN the final
state under the new one. FIRST-DIFFERENCE is the first event that only one of them has. ASSUMED is the
number of assumed answers.`,
		Example: `  waybill replay plan --workflow docs/examples/checkout-2.yaml
  waybill replay plan --workflow docs/examples/checkout-2.yaml --finished 500`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, &o) },
	}
	o.historyTool.flags(cmd)
	o.forkFlags.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.finished, "finished", 0, "simulate this number of the last finished tasks instead of the open ones")
	f.StringArrayVar(&o.old, "old", nil, "file of a definition that open tasks have; it replaces the one in the log (repeatable)")
	f.BoolVar(&o.all, "all", false, "also list tasks whose events stay the same")
	return cmd
}

func runPlan(cmd *cobra.Command, o *planOptions) error {
	program, err := o.program(cmd, &o.connection)
	if err != nil {
		return err
	}
	if o.finished < 0 {
		return usage("--finished %d: must not be negative", o.finished)
	}
	named, err := o.oldDefinitions()
	if err != nil {
		return err
	}
	h, err := o.openHistory(cmd)
	if err != nil {
		return err
	}
	defer h.close()
	p := &replay.Plan{Program: program, Assume: replay.Assume(o.assume), Old: definitionsOf(cmd.Context(), h, named), Finished: o.finished, All: o.all}
	v, left, err := p.Run(cmd.Context(), h)
	if err != nil {
		return err
	}
	err = o.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error { return planTable(out, v) })
	if err == nil && v.Failed > 0 {
		code := codeOf(v.FirstError)
		if len(left.Tasks) > 0 {
			code = exitUnreachable
		}
		err = exit(code, "%d of %s could not be simulated; the first: %w", v.Failed, text.Count(v.Tasks, "task"), v.FirstError)
	}
	return cmp.Or(err, leftOutError(left))
}

// oldDefinitions compiles the files of --old, by the keys of their definitions.
func (o *planOptions) oldDefinitions() (map[string]*workflow.Program, error) {
	named := map[string]*workflow.Program{}
	for _, path := range o.old {
		p, err := compileFile(path)
		if err != nil {
			return nil, err
		}
		named[p.Definition().Key()] = p
	}
	return named, nil
}

// definitionsOf returns a lookup of definitions: first in the files of --old, then in the log, which is read on
// first use. A failure to read the log is a replay.PlanStopError.
func definitionsOf(ctx context.Context, h eventSource, named map[string]*workflow.Program) func(string, int) (*workflow.Program, error) {
	l, is := h.(*logHistory)
	inLog := sync.OnceValues(func() ([]registry.Definition, error) {
		list, err := l.allDefinitions(ctx)
		if err != nil {
			return nil, &replay.PlanStopError{Err: err}
		}
		return list, nil
	})
	known := map[string]*workflow.Program{}
	return func(name string, version int) (*workflow.Program, error) {
		key := name + "/" + strconv.Itoa(version)
		switch {
		case named[key] != nil:
			return named[key], nil
		case !is && len(named) > 0:
			return nil, usage("the task runs under %s, and --old defines %s; give one --old for each", key, strings.Join(slices.Sorted(maps.Keys(named)), ", "))
		case !is:
			return nil, usage("the task is open, and an export has no definitions: give the file of %s with --old", key)
		case known[key] != nil:
			return known[key], nil
		}
		all, err := inLog()
		if err != nil {
			return nil, err
		}
		d := registry.Find(all, key)
		switch {
		case d == nil:
			return nil, fmt.Errorf("no definition %s in the log; name its file with --old", key)
		case d.Definition == nil:
			return nil, fmt.Errorf("the definition %s in the log can't be used: %s", key, d.Fault)
		}
		p, err := workflow.Compile(d.Definition)
		if err == nil {
			known[key] = p
		}
		return p, err
	}
}

// planTable prints a plan.
func planTable(out io.Writer, v *replay.PlanResult) error {
	w := newTable(out, "")
	w.row("Workflow", v.Workflow+"/"+strconv.Itoa(v.Version))
	failed := ""
	if v.Failed > 0 {
		failed = fmt.Sprintf(", %d could not be simulated", v.Failed)
	}
	w.row("Tasks", fmt.Sprintf("%d run: the path of %d changes, %d %s%s", v.Tasks, v.Changed, v.Stalled, text.Verb(v.Stalled, "stalls", "stall"), failed))
	if v.Broken > 0 {
		w.row("Skipped", fmt.Sprintf("%d whose events can't be folded; `waybill verify` says why", v.Broken))
	}
	if v.Commanded > 0 {
		w.row("Left out", fmt.Sprintf("operators' commands of %s, marked !: a path may change for that reason alone", text.Count(v.Commanded, "task")))
	}
	if err := w.Flush(); err != nil || len(v.Outlooks) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "TASK NOW OTHERWISE THEN FIRST-DIFFERENCE ASSUMED STALLED")
	for _, o := range v.Outlooks {
		if o.Failed != "" {
			w.row(idText(o.Task), "-", "-", "-", "-", "-", "not run: "+text.Shorten(o.Failed, 160))
			continue
		}
		first := "-"
		if o.First != nil {
			first = o.FirstIn + ": " + eventText(o.First, false)
		}
		if o.Commands > 0 {
			first += " !"
		}
		w.row(idText(o.Task), stateText(o.Now), stateText(o.Otherwise), stateText(o.Then), first, strconv.Itoa(o.Assumed), dash(text.Shorten(o.Stalled, 100)))
	}
	return w.Flush()
}
