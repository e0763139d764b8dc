package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
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
		Short: "Say whose path a new definition would change",
		Long: `Run every open task of the workflow on, in a sandbox, under its own definition and under the new
one, and list those whose path would change or stall. With --finished N the last N tasks that
ended are run again from their start, with the answers that are recorded of their agents. A wait
before another attempt, more or less, is no other path. Nothing is written to any topic.

What isn't recorded, and of an open task that is all that comes, is answered as --assume says.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, &o) },
	}
	o.historyTool.flags(cmd)
	o.forkFlags.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.finished, "finished", 0, "the last so many tasks that ended, instead of the open ones")
	f.StringArrayVar(&o.old, "old", nil, "with --file: the file of a definition that open tasks have, once for each (else: those in the log)")
	f.BoolVar(&o.all, "all", false, "list also those whose path stays the same")
	return cmd
}

// planned is what is printed of a plan.
type planned struct {
	Workflow string           `json:"workflow"`
	Version  int              `json:"version"`
	Tasks    int              `json:"tasks"`
	Changed  int              `json:"changed"`
	Stalled  int              `json:"stalled"`
	Broken   int              `json:"broken"` // that can't be folded
	Outlooks []replay.Outlook `json:"outlooks"`
}

func runPlan(cmd *cobra.Command, o *planOptions) error {
	if err := o.begin(cmd); err != nil {
		return err
	}
	program, err := o.program()
	if err != nil {
		return err
	}
	if o.finished < 0 {
		return usage("--finished %d: how many of those that ended", o.finished)
	}
	h, err := o.openHistory(cmd)
	if err != nil {
		return err
	}
	defer h.close()
	def := program.Definition()
	choice := replay.NewChoice(def.Name, o.finished)
	err = h.read(cmd.Context(), "", func(r *events.Record) error {
		choice.Add(r)
		return nil
	})
	if err != nil {
		return err
	}
	p := &replay.Plan{Program: program, Assume: replay.Assume(o.assume), Old: o.definitions(cmd.Context(), h)}
	v := &planned{Workflow: def.Name, Version: def.Version, Outlooks: []replay.Outlook{}}
	v.Broken, err = choice.Each(func(records []events.Record) error {
		look, err := p.Look(records)
		if err != nil {
			return fmt.Errorf("task %q: %w", records[0].Key, err)
		}
		v.add(look, o.all)
		return nil
	})
	if err != nil {
		return err
	}
	return o.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error { return planTable(out, v) })
}

func (v *planned) add(o *replay.Outlook, all bool) {
	v.Tasks++
	if o.Changed {
		v.Changed++
	}
	if o.Stalled != "" {
		v.Stalled++
	}
	if all || o.Changed || o.Stalled != "" {
		v.Outlooks = append(v.Outlooks, *o)
	}
}

// definitions finds the one that a task has: in the files that were named, or in the
// log. They are read when the first is asked for.
func (o *planOptions) definitions(ctx context.Context, h eventSource) func(string, int) (*workflow.Program, error) {
	known := map[string]*workflow.Program{}
	return func(name string, version int) (*workflow.Program, error) {
		key := name + "/" + strconv.Itoa(version)
		if p := known[key]; p != nil {
			return p, nil
		}
		p, err := o.definition(ctx, h, key)
		if err != nil {
			return nil, err
		}
		known[key] = p
		return p, nil
	}
}

func (o *planOptions) definition(ctx context.Context, h eventSource, key string) (*workflow.Program, error) {
	if len(o.old) > 0 {
		return o.named(key)
	}
	l, is := h.(*logHistory)
	if !is {
		return nil, usage("it is open, and a file has no definitions: name that of %s with --old", key)
	}
	there, err := l.definitions(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range there {
		if d.Definition != nil && d.Definition.Key() == key {
			return workflow.Compile(d.Definition)
		}
	}
	return nil, fmt.Errorf("no definition %s in the log; name its file with --old", key)
}

// named finds a definition among the files that were named.
func (o *planOptions) named(key string) (*workflow.Program, error) {
	var there []string
	for _, path := range o.old {
		p, err := compileFile(path)
		if err != nil {
			return nil, err
		}
		if p.Definition().Key() == key {
			return p, nil
		}
		there = append(there, p.Definition().Key())
	}
	return nil, usage("it runs under %s, and --old defines %s; give one --old for each", key, strings.Join(there, ", "))
}

// planTable shows a plan to people.
func planTable(out io.Writer, v *planned) error {
	w := newTable(out, "")
	w.row("Workflow", v.Workflow+"/"+strconv.Itoa(v.Version))
	w.row("Tasks", fmt.Sprintf("%d looked at: the path of %d changes, %d stall", v.Tasks, v.Changed, v.Stalled))
	if v.Broken > 0 {
		w.row("Passed over", fmt.Sprintf("%d whose events can't be folded; `waybill verify` says why", v.Broken))
	}
	if err := w.Flush(); err != nil || len(v.Outlooks) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "TASK NOW OTHERWISE THEN FIRST-DIFFERENCE ASSUMED STALLED")
	for _, o := range v.Outlooks {
		first := "-"
		if o.First != nil {
			first = eventText(o.First, false)
		}
		w.row(o.Task, string(o.Now), string(o.Otherwise), string(o.Then), first, strconv.Itoa(o.Assumed), dash(shorten(o.Stalled, 100)))
	}
	return w.Flush()
}
