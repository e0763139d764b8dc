package console

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

// The bounds of a dry run. `waybill replay plan` has none of them.
const (
	dryRunsMax       = 1 // at once
	dryRunWithin     = 20 * time.Second
	dryRunTasks      = 100 // unless the request has another limit
	dryRunTasksMax   = 500
	dryRunEventsMax  = 2000 // of a task, recorded ones and, about, simulated ones
	dryRunSamplesMax = 5
	dryRunKindsMax   = 50 // differences that are listed
)

type dryRunRequest struct{ Body consoleapi.DryRunCommand }

// dryRun simulates the last tasks of a workflow under a definition, as `waybill replay plan` does, and says which of them
// would take another course. It executes and writes nothing, so a viewer may do it.
func (c *call) dryRun(in *dryRunRequest) (*consoleapi.DryRun, error) {
	program, err := compileDraft(in.Body.Definition)
	if err != nil {
		return nil, err
	}
	f, limit, err := c.dryRunFilter(&in.Body, program.Definition().Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), dryRunWithin)
	defer cancel()
	select {
	case c.dryRunSlots <- struct{}{}:
		defer func() { <-c.dryRunSlots }()
	case <-ctx.Done():
		return nil, unavailable("another dry run is being made at the moment")
	}
	progress, _, err := c.awaitOffsets(ctx, "")
	if err != nil {
		return nil, err
	}
	def := program.Definition()
	r := &dryRunner{c: c, ctx: ctx, plan: &replay.Plan{Program: program, Assume: assumed(in.Body.Assume), Old: c.ownProgram, MaxEvents: dryRunEventsMax, Stop: ctx.Err},
		out: &consoleapi.DryRun{Workflow: def.Name, Version: def.Version, LeftOut: []consoleapi.DryRunLeftOut{}}}
	tasks, reflected, err := r.choose(startedPartitions(progress), f, limit)
	if err != nil {
		return nil, err
	}
	if r.out.Incomplete, err = c.incompletePartitions(progress, nil); err != nil {
		return nil, err
	}
	r.out.AsOf = reflectedOffsets(reflected)
	for i := range tasks {
		if err := r.run(&tasks[i]); err != nil {
			return nil, err
		}
	}
	r.finish()
	return r.out, nil
}

// dryRunFilter returns which tasks a dry run is about.
func (c *call) dryRunFilter(b *consoleapi.DryRunCommand, workflow string) (f projections.Filter, limit int, err error) {
	if limit = cmp.Or(b.Limit, dryRunTasks); limit < 1 || limit > dryRunTasksMax {
		return f, 0, badRequest("limit: must be 1 to %d", dryRunTasksMax)
	}
	if !slices.Contains(replay.Assumes, assumed(b.Assume)) {
		return f, 0, badRequest("assume %q: must be one of %v", consoleapi.Printable(b.Assume), replay.Assumes)
	}
	if f, err = parseFilter(b.Filter, c.cfg.Now()); err != nil {
		return f, 0, badRequest("filter: %s", consoleapi.Printable(err.Error()))
	}
	if f.Workflow != "" && f.Workflow != workflow {
		return f, 0, badRequest("filter: the definition is of workflow %s", workflow)
	}
	if f.Workflow = workflow; len(f.States) == 0 {
		f.States = []events.TaskState{events.StateProcessed, events.StateUndone, events.StateCancelled}
	}
	return f, limit, nil
}

// ownProgram is the definition that an open task has.
func (c *call) ownProgram(name string, version int) (*workflow.Program, error) {
	d, _ := c.cfg.Cluster.Definition(name, version)
	if d == nil {
		return nil, errNoDefinition
	}
	return workflow.Compile(d)
}

var errNoDefinition = errors.New("the console doesn't have the task's own definition")

// dryRunner makes a dry run.
type dryRunner struct {
	c    *call
	ctx  context.Context
	plan *replay.Plan
	out  *consoleapi.DryRun
}

// choose returns the tasks that were submitted last.
func (r *dryRunner) choose(ps []int32, f projections.Filter, limit int) (tasks []events.Summary, reflected map[int32]int64, err error) {
	after := projections.Cursor{}
	for {
		page, err := r.c.cfg.Index.List(r.ctx, ps, f, after, limit-len(tasks))
		if err != nil {
			return nil, nil, err
		}
		tasks, reflected = append(tasks, page.Tasks...), page.AsOf
		r.out.More = page.Next != nil
		if page.Next == nil || len(tasks) == limit {
			return tasks, reflected, nil
		}
		after = *page.Next
	}
}

// run simulates a task.
func (r *dryRunner) run(s *events.Summary) error {
	switch {
	case r.ctx.Err() != nil:
		return r.over(s)
	case s.Seq > dryRunEventsMax:
		r.leaveOut("events", s.ID, "")
		return nil
	case s.Stopped != 0:
		r.leaveOut("unreadable", s.ID, "")
		return nil
	}
	h, err := r.c.readHistory(s.ID, events.Partition([]byte(s.ID), r.c.cfg.Partitions), historyPart{until: math.MaxUint64})
	if p, is := errors.AsType[*consoleapi.Problem](err); is && p.Type == consoleapi.UnreadableProblem {
		r.leaveOut("unreadable", s.ID, p.Detail)
		return nil
	} else if err != nil {
		return err
	}
	for _, why := range h.lost {
		r.leaveOut("unreadable", s.ID, why.Error())
		return nil
	}
	o, err := r.plan.Evaluate(h.records)
	switch {
	case r.ctx.Err() != nil:
		return r.over(s)
	case errors.Is(err, errNoDefinition):
		r.leaveOut("definition", s.ID, err.Error())
	case err != nil:
		r.leaveOut("refused", s.ID, err.Error())
	default:
		r.add(o)
	}
	return nil
}

// over leaves a task out because the time is over. It fails if the client has gone.
func (r *dryRunner) over(s *events.Summary) error {
	if err := r.c.r.Context().Err(); err != nil {
		return err
	}
	r.leaveOut("time", s.ID, "")
	return nil
}

func (r *dryRunner) leaveOut(why, id, detail string) {
	i := slices.IndexFunc(r.out.LeftOut, func(l consoleapi.DryRunLeftOut) bool { return l.Why == why })
	if i < 0 {
		i = len(r.out.LeftOut)
		r.out.LeftOut = append(r.out.LeftOut, consoleapi.DryRunLeftOut{Why: why, Samples: []string{}, Detail: consoleapi.Visible(detail)})
	}
	l := &r.out.LeftOut[i]
	if l.Tasks++; len(l.Samples) < dryRunSamplesMax {
		l.Samples = append(l.Samples, id)
	}
}

// add counts a simulated task.
func (r *dryRunner) add(o *replay.Outlook) {
	r.out.Tasks++
	if o.Assumed > 0 {
		r.out.Assumed++
	}
	if !o.Changed && o.Stalled == "" {
		r.out.Same++
		return
	}
	r.out.Differ++
	of := consoleapi.CourseDifference{In: o.FirstIn, Otherwise: o.Otherwise, Then: o.Then, Stalled: consoleapi.Printable(o.Stalled), Commands: o.Commands > 0}
	if o.First != nil {
		of.Event, of.Step = o.First.Type, o.First.Step
	}
	i := slices.IndexFunc(r.out.Differences, func(d consoleapi.CourseDifference) bool {
		return d.Event == of.Event && d.Step == of.Step && d.In == of.In && d.Otherwise == of.Otherwise && d.Then == of.Then && d.Stalled == of.Stalled && d.Commands == of.Commands
	})
	if i < 0 {
		i = len(r.out.Differences)
		r.out.Differences = append(r.out.Differences, of)
	}
	d := &r.out.Differences[i]
	if d.Tasks++; len(d.Samples) < dryRunSamplesMax {
		d.Samples = append(d.Samples, consoleapi.DryRunSample{Task: o.Task, At: o.At})
	}
}

// finish orders what differs.
func (r *dryRunner) finish() {
	all := slices.SortedStableFunc(slices.Values(r.out.Differences), func(a, b consoleapi.CourseDifference) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), strings.Compare(a.Step, b.Step), strings.Compare(a.Event, b.Event))
	})
	r.out.Differences = append([]consoleapi.CourseDifference{}, all[:min(len(all), dryRunKindsMax)]...)
	r.out.LeftOff = len(all) - len(r.out.Differences)
}
