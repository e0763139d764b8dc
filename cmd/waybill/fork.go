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
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

// forkFlags are those of every fork.
type forkFlags struct {
	workflow string
	assume   string
}

func (o *forkFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.workflow, "workflow", "", "the definition: a file, or NAME/VERSION of one in the log, also of one that was deleted while tasks had it")
	cmd.Flags().StringVar(&o.assume, "assume", string(replay.AssumeCompleted),
		fmt.Sprintf("the answer to attempts of which none is recorded: one of %v", replay.Assumes))
}

// program checks the flags and compiles the definition.
func (o *forkFlags) program(cmd *cobra.Command, c *connection) (*workflow.Program, error) {
	if !slices.Contains(replay.Assumes, replay.Assume(o.assume)) {
		return nil, usage("--assume %q: one of %v", o.assume, replay.Assumes)
	}
	if o.workflow == "" {
		return nil, usage("--workflow FILE: the definition to run under")
	}
	if _, err := os.Stat(o.workflow); err == nil || !inLog.MatchString(o.workflow) {
		return compileFile(o.workflow)
	}
	d, err := c.definition(cmd, o.workflow)
	if err != nil {
		return nil, err
	}
	return workflow.Compile(d)
}

// inLog is the key of a definition.
var inLog = regexp.MustCompile(`^[^/.]+/[0-9]+$`)

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
	askingTool
	forkFlags
	at uint64
}

func newReplayFork() *cobra.Command {
	var o forkOptions
	cmd := &cobra.Command{
		Use:   "fork ID --at SEQ --workflow FILE|NAME/VERSION",
		Short: "Run a task on under another definition, in a sandbox, and compare",
		Long: `Run a task on from one of its events, under another definition, and show both courses side by
side. The decisions are the scheduler's own, time passes at once, and nothing is written to any
topic: the task itself isn't touched.

Agents give the answers that are recorded, after the time that they took, also to another input;
what waited for an agent with enough to do begins no earlier than it did, and a supervisor that was
late is as late again. Who else has an agent's slots is known of the past only: what the log doesn't
have begins at once. --assume says what is answered where nothing is recorded: to an attempt that
wasn't made, or at another agent or operation, or past the time that an agent was silent for. Events
that follow from that are marked. So under the task's own definition it goes as it went, but for
operators' commands after the fork: they are left out, and it is said which. In the midst of a
decision the fork is before it.`,
		Args: arguments("a task's id"),
		RunE: func(cmd *cobra.Command, args []string) error { return runFork(cmd, &o, args) },
	}
	o.askingTool.flags(cmd)
	o.forkFlags.flags(cmd)
	cmd.Flags().Uint64Var(&o.at, "at", 0, "the last event that both courses have (default: the task's last)")
	return cmd
}

func runFork(cmd *cobra.Command, o *forkOptions, args []string) error {
	if err := o.output.check(); err != nil {
		return err
	}
	program, err := o.program(cmd, &o.connection)
	if err != nil {
		return err
	}
	id, h, err := o.openOne(cmd, args)
	if err != nil {
		return err
	}
	defer h.close()
	var records []events.Record
	var lost *kafka.DamagedError // that may have been an event of it
	err = h.read(cmd.Context(), id, func(r *events.Record) error {
		if string(r.Key) == id {
			records = append(records, *r)
		}
		return nil
	}, func(d *kafka.DamagedError) {
		if d.Of(id) || !d.AllKeys {
			lost = d
		}
	})
	switch {
	case err != nil:
		return err
	case lost != nil:
		return fmt.Errorf("task %q can't be forked, for an event of it may be lost: %w", id, lost)
	case len(records) == 0:
		return o.notThere(id)
	}
	if err := sameWorkflow(&records[0], program); err != nil {
		return err
	}
	f, err := replay.Fork{Program: program, At: o.at, Assume: replay.Assume(o.assume)}.Run(records)
	if err != nil {
		return exit(exitUsage, "task %q can't be forked: %w", id, err)
	}
	return o.printObject(cmd.OutOrStdout(), f, func(out io.Writer) error { return forkTable(out, f) })
}

// sameWorkflow refuses a definition of something else.
func sameWorkflow(first *events.Record, p *workflow.Program) error {
	e, err := events.DecodeEvent(first)
	if err != nil {
		return fmt.Errorf("%s: %w", events.Origin(first), err)
	}
	if f, ok := e.Fact.(*events.TaskReceived); ok && f.Workflow != p.Definition().Name {
		return usage("task %q is of workflow %s, and the definition is of %s", e.Task, f.Workflow, p.Definition().Name)
	}
	return nil
}

// forkTable shows both courses side by side.
func forkTable(out io.Writer, f *replay.Forked) error {
	w := newTable(out, "")
	w.row("Task", f.Task)
	w.row("Fork", fmt.Sprintf("after event %d", f.At))
	ended := string(f.State)
	if f.Error != nil {
		ended += ": " + shorten(errorText(f.Error), 120)
	}
	w.row("Forked", ended)
	if f.Stalled != "" {
		w.row("Stalled", shorten(f.Stalled, 200))
	} else if len(f.Forked) == 0 {
		w.row("Nothing", "goes on from there: the task has ended, or is held; --at names an event before that")
	}
	answers := "all are recorded"
	if f.Assumed > 0 {
		answers = fmt.Sprintf("%d assumed, for none is recorded: marked ?", f.Assumed)
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

// clock is the time of day of an instant of the log.
func clock(at string) string {
	_, t, _ := strings.Cut(at, "T")
	return strings.TrimSuffix(t, "Z")
}
