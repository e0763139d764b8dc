package console

import (
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

// runningItemsCompared bounds the running items of a step whose tasks are compared, to find the one to explain.
const runningItemsCompared = 100

// why returns why a task doesn't advance. It follows the task's children down to the cause, at most events.MaxDepth of
// them.
func (c *call) why(in *taskRequest) (*replay.Why, error) {
	w, task, err := c.whyOf(in)
	if err != nil {
		return nil, err
	}
	min := in.MinOffset
	if min != consoleapi.LogEnd {
		min = "" // it is an offset of the task's partition
	}
	for below := w; ; {
		child := c.childBelow(below, task)
		if child == "" {
			return w, nil
		}
		if len(w.Causes) == events.MaxDepth {
			w.Cut = fmt.Sprintf("task %s: it has more than %d tasks above it", child, events.MaxDepth)
			return w, nil
		}
		next, of, err := c.whyOf(&taskRequest{taskPath{taskID(child)}, min})
		switch problem, is := errors.AsType[*consoleapi.Problem](err); {
		case is:
			w.Cut = fmt.Sprintf("task %s: %s", child, problem.Detail)
			return w, nil
		case err != nil:
			return nil, err
		case of.Parent == nil || of.Parent.Task != task.ID: // another task has the id, so the child was refused
			return w, nil
		}
		w.Causes = append(w.Causes, next.Cause(of))
		below, task = next, of
	}
}

// childBelow returns the child task that is explained next; empty: none. Of items that run it is the one with the most
// failed attempts, and of those the one submitted first.
func (c *call) childBelow(w *replay.Why, t *events.Task) string {
	ids := c.itemIDs(t)
	child, running := w.ChildBelow(t, ids)
	if len(running) == 0 {
		return child
	}
	step, _ := t.Plan.Step(w.Step)
	var worst *events.Summary
	for _, item := range running[:min(len(running), runningItemsCompared)] {
		id := ids(step, item)
		found, begun := c.cfg.Index.Find(events.Partition([]byte(id), c.cfg.Partitions), id)
		switch s := found.Summary; {
		case !begun && child == "":
			child = id // whyOf says that its partition isn't read
		case s == nil || s.State.Terminal(): // its end is on its way to the task
		case worst == nil || s.FailureCount > worst.FailureCount || s.FailureCount == worst.FailureCount && s.SubmittedAt.Before(worst.SubmittedAt):
			worst = s
		}
	}
	if worst != nil {
		return worst.ID
	}
	return child
}

// whyOf explains a task without its children.
func (c *call) whyOf(in *taskRequest) (*replay.Why, *events.Task, error) {
	h, err := c.history(in)
	if err != nil {
		return nil, nil, err
	}
	task, unreadable, err := h.fold()
	if err != nil {
		return nil, nil, err
	}
	agents, now := map[string]replay.AgentState{}, c.cfg.Now()
	for _, name := range replay.AgentsAwaited(task, now) {
		switch a, err := c.cfg.Cluster.Agent(c.r.Context(), name); {
		case err == nil:
			agents[name] = a
		case !errors.Is(err, ErrUnknownAgent):
			return nil, nil, unavailable("agent %s: %v", name, err)
		}
	}
	var since replay.Since
	for i := range h.records {
		since.Add(&h.records[i])
	}
	return replay.ExplainItems(task, &since, unreadable.String(), agents, now, c.itemIDs(task)), task, nil
}
