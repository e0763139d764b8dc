package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/workflow"
)

// forkFlags are the flags of fork and plan.
type forkFlags struct {
	workflow string
	assume   string
}

func (o *forkFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.workflow, "workflow", "", "workflow definition: a file, or NAME/VERSION of one in the log, also of a deleted one that tasks had")
	cmd.Flags().StringVar(&o.assume, "assume", string(replay.AssumeCompleted), "answer to attempts without a recorded answer: completed, failed, rejected or silent")
}

// program checks the flags and compiles the definition.
func (o *forkFlags) program(cmd *cobra.Command, c *connection) (*workflow.Program, error) {
	if !slices.Contains(replay.Assumes, replay.Assume(o.assume)) {
		return nil, usage("--assume %q: must be one of %v", o.assume, replay.Assumes)
	}
	if o.workflow == "" {
		return nil, usage("--workflow FILE: the definition to run under")
	}
	if _, err := os.Stat(o.workflow); err == nil || !definitionKey.MatchString(o.workflow) {
		return compileFile(o.workflow)
	}
	d, err := c.definition(cmd, o.workflow)
	if err != nil {
		return nil, err
	}
	return workflow.Compile(d)
}

// definitionKey matches the key of a definition in the log, NAME/VERSION.
var definitionKey = regexp.MustCompile(`^[^/.]+/[0-9]+$`)

// compileFile reads and compiles a definition.
func compileFile(path string) (*workflow.Program, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, exit(exitUsage, "%w", err)
	}
	def, err := workflow.ParseYAML(path, src)
	if err != nil {
		return nil, usage("the definition can't be used:\n%v", err)
	}
	return workflow.Compile(def)
}

type forkOptions struct {
	oneTaskTool
	forkFlags
	at uint64
}

func newReplayFork() *cobra.Command {
	var o forkOptions
	cmd := &cobra.Command{
		Use:   "fork ID --at SEQ --workflow FILE|NAME/VERSION",
		Short: "Simulate a task under another definition, and compare with what happened",
		Long: `Simulate a task under another definition, from one of its events, and compare the result with what
happened. This shows whether a changed definition would have helped. The simulation runs the scheduler's
code on simulated time. It writes nothing, and doesn't change the task.

Agents answer as recorded, after the recorded time. --assume supplies answers that aren't recorded: those of
attempts that are new, have another agent or operation, or got no reply. Events that depend on an assumed
answer are marked '?'.

Recorded delays are kept: a step that waited for a busy agent doesn't start earlier, and a supervisor that
was late is late again. Operators' commands after --at are not simulated; they are listed. If one decision
wrote several events and --at names one of them, the simulation starts before that decision.`,
		Example: `  waybill replay fork order-7 --at 6 --workflow docs/examples/checkout-2.yaml`,
		Args:    arguments("a task's id"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runFork(cmd, &o, args) },
	}
	o.oneTaskTool.flags(cmd)
	o.forkFlags.flags(cmd)
	cmd.Flags().Uint64Var(&o.at, "at", 0, "number of the last event that the task and its simulation share (default: the last event of the task)")
	return cmd
}

func runFork(cmd *cobra.Command, o *forkOptions, args []string) error {
	program, err := o.program(cmd, &o.connection)
	if err != nil {
		return err
	}
	id, h, err := o.openTask(cmd, args)
	if err != nil {
		return err
	}
	defer h.close()
	var records []events.Record
	var lost error // of an unreadable part that may have had one of its events
	err = h.Read(cmd.Context(), id, func(r *events.Record) error {
		if string(r.Key) == id {
			records = append(records, *r)
		}
		return nil
	}, func(at replay.Loss) {
		if slices.Contains(at.Tasks, id) || !at.All {
			lost = at.Err
		}
	})
	switch {
	case err != nil:
		return err
	case lost != nil:
		return fmt.Errorf("task %q can't be forked, because one of its events may be lost: %w", id, lost)
	case len(records) == 0:
		return o.taskNotFound(id)
	}
	f, err := replay.Fork{Program: program, At: o.at, Assume: replay.Assume(o.assume)}.Run(records)
	if err != nil {
		return exit(exitUsage, "task %q can't be forked: %w", id, err)
	}
	return o.printObject(cmd.OutOrStdout(), f, func(out io.Writer) error { return forkTable(out, f) })
}

// forkTable prints the recorded and the forked events in two columns.
func forkTable(out io.Writer, f *replay.Forked) error {
	w := newTable(out, "")
	w.row("Task", f.Task)
	w.row("Fork", fmt.Sprintf("after event %d", f.At))
	ended := stateText(f.State)
	if f.Error != nil {
		ended += ": " + text.Shorten(errorText(f.Error), 120)
	}
	w.row("Forked", ended)
	if f.Stalled != "" {
		w.row("Stalled", text.Shorten(f.Stalled, 200))
	} else if len(f.Forked) == 0 {
		w.row("New events", "none: the task has ended or is held at that event; choose an earlier one with --at")
	}
	answers := "all are recorded"
	if f.Assumed > 0 {
		answers = fmt.Sprintf("%d assumed, because none is recorded; marked ?", f.Assumed)
	}
	w.row("Answers", answers)
	if len(f.LeftOut) > 0 {
		seqs := strings.Trim(fmt.Sprint(f.LeftOut), "[]")
		w.row("Left out", "operators' commands, recorded as event "+strings.ReplaceAll(seqs, " ", ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "RECORDED AT FORKED AT")
	for _, p := range replay.Pairs(f) {
		var left, leftAt, right, rightAt string
		if p.Recorded != nil {
			left, leftAt = eventText(p.Recorded, false), clock(p.Recorded.At)
		}
		if p.Forked != nil {
			right, rightAt = eventText(&p.Forked.Line, p.Forked.Assumed), clock(p.Forked.At)
		}
		w.row(dash(left), dash(leftAt), dash(right), dash(rightAt))
	}
	return w.Flush()
}

func eventText(l *events.Line, assumed bool) string {
	text := shortType(l.Type)
	if l.Step != "" {
		text += " " + l.Step
	}
	if l.Attempt > 0 {
		text += " (" + strconv.Itoa(l.Attempt) + ")"
	}
	if assumed {
		text += " ?"
	}
	return text
}

// clock returns the time of day of an instant of the log, with its Z.
func clock(at string) string {
	_, t, _ := strings.Cut(at, "T")
	return t
}
