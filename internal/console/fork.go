package console

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

// The bounds of a fork. The CLI's has none of them.
const (
	forksMax       = 2 // at once
	forkWithin     = 10 * time.Second
	forkEventsMax  = 10_000 // simulated events, about
	forkHistoryMax = 20_000 // recorded events
)

type forkRequest struct {
	taskPath
	Body consoleapi.ForkRequest
}

// fork simulates a task under another definition. It executes and writes nothing, so a viewer may do it, also with a
// definition of his own.
func (c *call) fork(in *forkRequest) (*consoleapi.Fork, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), forkWithin)
	defer cancel()
	select {
	case c.forkSlots <- struct{}{}:
		defer func() { <-c.forkSlots }()
	case <-ctx.Done():
		return nil, unavailable("%d simulations are running, the maximum; retry later", forksMax)
	}
	h, err := c.history(&taskRequest{taskPath: in.taskPath})
	if err != nil {
		return nil, err
	}
	if len(h.records) > forkHistoryMax {
		return nil, tooMuch("the task has %d events, and a console forks tasks of at most %d; `waybill replay fork` has no such bound", len(h.records), forkHistoryMax)
	}
	for i := range h.records {
		if why := h.lost[h.records[i].Offset]; why != nil {
			return nil, unreadableProblem("task %q can't be forked, because one of its events can't be read: %v", consoleapi.Printable(h.id), why)
		}
	}
	task, unreadable, err := h.fold()
	if err != nil {
		return nil, err
	}
	if unreadable != nil {
		return nil, unreadableProblem("task %q can't be forked, because one of its events can't be read: %s", consoleapi.Printable(h.id), unreadable)
	}
	program, err := c.forkProgram(&in.Body, task)
	if err != nil {
		return nil, err
	}
	f, err := replay.Fork{Program: program, At: in.Body.At, Assume: assumed(in.Body.Assume), MaxEvents: forkEventsMax, Stop: ctx.Err}.Run(h.records)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && c.r.Context().Err() == nil:
		return nil, tooMuch("the simulation takes longer than %s, which is the bound of a console; `waybill replay fork` has none", forkWithin)
	case err != nil:
		return nil, unprocessable("the task can't be forked: %v", err)
	}
	return describeFork(f, task, program.Definition(), h.reflectedOffset()), nil
}

// assumed is the assumption of a request.
func assumed(text string) replay.Assume {
	if text == "" {
		return replay.AssumeCompleted
	}
	return replay.Assume(text)
}

// forkProgram compiles the definition of a fork.
func (c *call) forkProgram(b *consoleapi.ForkRequest, task *events.Task) (*workflow.Program, error) {
	if !slices.Contains(replay.Assumes, assumed(b.Assume)) {
		return nil, badRequest("assume %q: must be one of %v", consoleapi.Printable(b.Assume), replay.Assumes)
	}
	var d *workflow.Definition
	var err error
	switch {
	case (b.Definition == "") == (b.Version == 0):
		return nil, badRequest(`the definition of the simulation is missing: give "version" or "definition", one of them`)
	case b.Definition != "":
		if d, err = workflow.ParseYAML("definition", []byte(b.Definition)); err != nil {
			return nil, unprocessable("the definition can't be used: %v", err)
		}
	case b.Version < 1 || b.Version > workflow.MaxVersion:
		return nil, badRequest("version: must be 1 to %d", workflow.MaxVersion)
	default:
		if d, _, err = c.findDefinition(workflowName(task.Workflow), workflowVersion(b.Version)); err != nil {
			return nil, err
		}
	}
	program, err := workflow.Compile(d)
	if err != nil {
		return nil, unprocessable("the definition can't be used: %v", err)
	}
	return program, nil
}

// describeFork returns both courses, aligned.
func describeFork(f *replay.Forked, task *events.Task, d *workflow.Definition, asOf events.AsOf) *consoleapi.Fork {
	v := &consoleapi.Fork{Task: f.Task, At: f.At, LastSeq: task.Seq, Workflow: task.Workflow, Assumed: f.Assumed, Stalled: consoleapi.Printable(f.Stalled),
		LeftOut: append([]uint64{}, f.LeftOut...), Rows: []consoleapi.ForkRow{}, State: &consoleapi.Task{TaskView: f.View}, AsOf: asOf,
		Recorded: consoleapi.ForkCourse{Version: task.Version, State: task.State, Error: task.Error, Events: len(f.Recorded)},
		Forked:   consoleapi.ForkCourse{Version: d.Version, State: f.State, Error: f.Error, Events: len(f.Forked)}}
	if n := len(f.Recorded); n > 0 {
		v.Recorded.EndsAt = f.Recorded[n-1].At
	}
	if n := len(f.Forked); n > 0 {
		v.Forked.EndsAt = f.Forked[n-1].At
	}
	for i, p := range replay.Pairs(f) {
		row := consoleapi.ForkRow{Recorded: p.Recorded}
		if p.Forked != nil {
			row.Forked, row.Assumed = &p.Forked.Line, p.Forked.Assumed
		}
		if v.PartAt == nil && (p.Recorded == nil || p.Forked == nil) {
			v.PartAt = &i
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// forkRoute declares the route of a fork. It is a POST, since a definition can be too large for a query.
func forkRoute() route {
	return postRoute("forkTask", "/tasks/{id}/fork", Viewer, "Simulate a task under another definition, from one of its events on, and compare with what happened; nothing is executed", (*call).fork)
}
