package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

type replayOptions struct {
	oneTaskTool
	limit
	until  string
	at     string
	states bool
	state  []string
	memory int // MiB
}

// replayMemoryDefault is the default of --max-memory, in MiB.
const replayMemoryDefault = 1024

func newReplay() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay ID, or replay --at TIME",
		Short: "Show how each event changed a task, or all tasks at a past time",
		Long: `Show how the state of a task came about: 'waybill replay ID' shows each event of the task and what it changed.
--until stops after an event's number (7), an offset (offset:42), or a time (2026-01-31T12:00:00Z, or 15m
for 15 minutes ago).

'waybill replay --at TIME' shows all tasks as they were at a past time: the number in each state, the owner of
each partition, and the open tasks. Tasks with an event that can't be read because of corruption on a
broker's disk are left out and named; the exit code is then 7. All tasks are kept in memory, up to
--max-memory; a console answers the same query from its index on disk (GET /api/v1/as-of).

Nothing is written. With --file the events come from a file of 'waybill export'; no broker is needed.`,
		Example: `  waybill replay order-1 --until 6
  waybill replay --at 15m`,
		Args: replayArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.at != "" || len(args) == 0 {
				return runReplayAt(cmd, &o)
			}
			return runReplayOne(cmd, &o, args)
		},
	}
	o.oneTaskTool.flags(cmd)
	o.limit.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.until, "until", "", "with ID: stop after an event number, offset:N, a duration back from now (15m), or an RFC 3339 time")
	f.BoolVar(&o.states, "states", false, "with ID: include the whole state after each event (json and jsonl)")
	f.StringVar(&o.at, "at", "", "show all tasks as of a duration back from now (15m), or an RFC 3339 time")
	f.StringSliceVar(&o.state, "state", nil, "with --at: list tasks in one of these states (default: open tasks)")
	f.IntVar(&o.memory, "max-memory", replayMemoryDefault, "with --at: end with an error if the tasks need more memory than this, in MiB")
	commandLineOnly(f, "until", "state", "max-memory")
	cmd.AddCommand(newReplayFork(), newReplayPlan())
	return cmd
}

// replayArguments accepts one task id, or none with --at.
func replayArguments(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("at") {
		if len(args) > 0 {
			return usage("replay: give a task's id, or --at TIME for all tasks, not both")
		}
		return nil
	}
	return arguments("a task's id, or --at TIME")(cmd, args)
}

func runReplayOne(cmd *cobra.Command, o *replayOptions, args []string) error {
	until, err := parseUntil(o.until)
	if err != nil {
		return err
	}
	if len(o.state) > 0 {
		return usage("--state needs --at")
	}
	id, h, err := o.openTask(cmd, args)
	if err != nil {
		return err
	}
	defer h.close()
	s := replay.NewStepper(until, o.states)
	var steps []replay.Step
	seen, usable := 0, 0 // records of the task, also past --until; records that are events
	err = h.Read(cmd.Context(), id, func(r *events.Record) error {
		if string(r.Key) != id {
			return nil
		}
		seen++
		step, err := s.Add(r)
		if step == nil {
			return nil
		}
		steps = append(steps, *step)
		if err != nil {
			fmt.Fprintf(h.warnings(), "waybill: %s isn't an event: %s\n", events.Origin(r), printable(err.Error()))
		} else {
			usable++
		}
		return nil
	}, func(at replay.Loss) {
		if !slices.Contains(at.Tasks, id) {
			return
		}
		seen++
		if step := s.Lost(at.Partition, at.Offset, at.Err); step != nil {
			steps = append(steps, *step)
		}
	})
	switch {
	case err != nil:
		return err
	case seen == 0:
		return o.taskNotFound(id)
	case usable == 0 && o.until == "":
		return fmt.Errorf("task %q has no readable event; `waybill verify` says what is wrong", id)
	case len(steps) == 0:
		return exit(exitNotFound, "no event of task %q up to %s; without --until all are shown", id, o.until)
	}
	if o.format == formatTable {
		return printSteps(cmd.OutOrStdout(), steps)
	}
	return printList(&o.output, cmd.OutOrStdout(), "", steps, nil)
}

func parseUntil(text string) (replay.Until, error) {
	if text == "" {
		return replay.Until{}, nil
	}
	until, err := replay.ParseUntil(text, time.Now())
	if err != nil {
		return until, usage("--until %v", err)
	}
	return until, nil
}

// changeShown bounds the characters of a value in a table.
const changeShown = 100

// printSteps prints each event and the changes that it made.
func printSteps(out io.Writer, steps []replay.Step) error {
	for i := range steps {
		s := &steps[i]
		of := s.Step
		if s.Attempt > 0 {
			of += fmt.Sprintf(" (attempt %d)", s.Attempt)
		}
		seq := "-"
		if s.Seq > 0 {
			seq = strconv.FormatUint(s.Seq, 10)
		}
		head := fmt.Sprintf("%4s  %s  %s  %s", seq, s.At, shortType(s.Type), of)
		if _, err := fmt.Fprintln(out, printable(strings.TrimRight(head, " "))); err != nil {
			return err
		}
		w := newTable(out, "")
		for _, c := range s.Changes {
			w.row("        "+c.Path, text.Shorten(jsonText(c.Before), changeShown)+" -> "+text.Shorten(jsonText(c.After), changeShown))
		}
		if s.Fault != "" {
			w.row("        CAN'T BE FOLDED", s.Fault)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// jsonText formats a JSON value for a table: a string without quotes, a missing value as a dash.
func jsonText(raw json.RawMessage) string {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil { // also null
		return dash(text)
	}
	return string(raw)
}

func runReplayAt(cmd *cobra.Command, o *replayOptions) error {
	at, err := parseInstant("--at", o.at, time.Now())
	switch {
	case err != nil:
		return err
	case o.at == "":
		return usage("--at: must be an instant, or a duration back from now (15m)")
	}
	if o.until != "" || o.states {
		return usage("--until and --states need a task's id")
	}
	if o.memory < 1 {
		return usage("--max-memory %d: must be at least 1 MiB", o.memory)
	}
	if err := o.api.refuseConsole("replay --at"); err != nil {
		return err
	}
	if err := checkStates(o.state); err != nil {
		return err
	}
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	h, err := o.openHistory(cmd)
	if err != nil {
		return err
	}
	defer h.close()
	if now := time.Now(); at.After(now) {
		fmt.Fprintf(h.warnings(), "waybill: --at %s is in the future: this is the current state\n", o.at)
	}
	in, gone := replay.NewInstant(at), &replay.Losses{}
	if _, is := h.(*logHistory); is { // a file may have only some tasks
		in.WholeLog()
	}
	err = h.Read(cmd.Context(), "", func(r *events.Record) error {
		if in.Add(r); in.Bytes() > int64(o.memory)<<20 {
			return fmt.Errorf("the first %s of the log need more than %d MiB of memory; --max-memory allows more, and a console (`waybill console`) answers from its index on disk: GET /api/v1/as-of?at=%s",
				text.Count(in.Counted(), "task"), o.memory, at.UTC().Format(events.TimeLayout))
		}
		return nil
	}, gone.Add)
	if err != nil {
		return err
	}
	for _, at := range gone.List() {
		in.Lost(at)
	}
	v := in.View(func(t *events.Task) bool {
		if len(o.state) == 0 {
			return t.Open()
		}
		return slices.Contains(o.state, string(t.State))
	})
	v.Tasks = limitRows(&o.limit, h.warnings(), "tasks", v.Tasks)
	left := &replay.Omission{Tasks: v.LeftOut, Unnamed: v.Unnamed}
	warnLeftOut(h.warnings(), left)
	return cmp.Or(o.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error { return instantTable(out, v) }), leftOutError(left))
}

// statesText counts tasks by state, in the order of the states.
func statesText(states map[events.TaskState]int) string {
	n := 0
	var list []string
	for _, s := range events.TaskStates {
		if states[s] > 0 {
			n += states[s]
			list = append(list, fmt.Sprintf("%d %s", states[s], stateText(s)))
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%d: %s", n, strings.Join(list, ", ")), ": ")
}

// instantTable prints all tasks at an instant.
func instantTable(out io.Writer, v *replay.InstantView) error {
	w := newTable(out, "")
	w.row("At", v.At)
	w.row("Tasks", statesText(v.States))
	w.row("Events", strconv.Itoa(v.Events))
	for _, text := range v.Missing {
		w.row("Not known", text)
	}
	if n := len(v.LeftOut); n > 0 {
		w.row("Left out", text.Count(n, "task")+" whose events are or may be unreadable")
	}
	if v.Broken > 0 {
		w.row("Can't be folded", fmt.Sprintf("%s; the first: %s", text.Count(v.Broken, "event"), text.Shorten(v.Faults[0], 200)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "PARTITION OWNER SINCE OFFSET OPEN")
	for _, p := range v.Partitions {
		w.row(strconv.Itoa(int(p.Partition)), dash(p.Owner), dash(p.Since), p.Offset, strconv.Itoa(p.Open))
	}
	if err := w.Flush(); err != nil || len(v.Tasks) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, taskHead)
	for _, t := range v.Tasks {
		w.row(taskRow(t)...)
	}
	return w.Flush()
}
