package scheduler

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// MigrationRefusal returns why a task can't go on with another version of its workflow, whose plan is p; empty: it can.
// What happened must fit the version: it has every step that has begun, as the same work of the same agent, and no step
// has begun before one that it needs. events.Allowed answers for the state of the task.
func MigrationRefusal(t *events.Task, version int, p *events.Plan, now time.Time) (why string) {
	switch n := p.Bytes(); {
	case t.Parent != nil && t.Parent.Item != nil:
		return fmt.Sprintf("it is an item of task %q, and ends under the version that it began with", t.Parent.Task)
	case t.Version == version:
		return fmt.Sprintf("it has version %d already", version)
	case n > MaxPlanBytes:
		return fmt.Sprintf("the plan of version %d has %d bytes; at most %d", version, n, MaxPlanBytes)
	}
	for i, s := range t.Steps {
		if !s.HasBegun() {
			continue
		}
		if what := stepUnfit(t, i, p); what != "" {
			return fmt.Sprintf("step %q is %s, and %s", t.Plan.Steps[i].ID, stateText(s.State), what)
		}
	}
	if t.State == events.StateProcessing && !now.Before(t.CompleteByUnder(p)) {
		return fmt.Sprintf("its time under version %d, %s, is over", version, p.CompleteWithin)
	}
	return ""
}

func stateText(s events.StepState) string {
	if s == events.StepError {
		return "in error"
	}
	return string(s)
}

// stepUnfit returns why a step that has begun doesn't fit another plan.
func stepUnfit(t *events.Task, was int, p *events.Plan) (what string) {
	old := &t.Plan.Steps[was]
	i, ok := p.Step(old.ID)
	switch {
	case !ok:
		return "the version doesn't have it"
	case p.Steps[i].StepKind != old.StepKind:
		return fmt.Sprintf("in the version it is %s", kindText(p.Steps[i].StepKind))
	}
	for _, k := range [...]events.Kind{events.Do, events.Undo, events.Check} {
		if what := runUnfit(t, was, k, p, i); what != "" {
			return what
		}
	}
	for _, n := range p.Steps[i].Needs {
		if need := p.Steps[n].ID; !needed(t, was, need) {
			return fmt.Sprintf("in the version it needs step %q, which isn't done", need)
		}
	}
	return ""
}

func kindText(k events.StepKind) string {
	if k == events.CallStep {
		return "a call"
	}
	return "of the kind " + string(k)
}

// needed reports whether a step that another plan needs before a step that has begun is done, or was needed and not done
// before, too: an operator released the step.
func needed(t *events.Task, step int, need string) bool {
	j, ok := t.Plan.Step(need)
	if !ok {
		return false
	}
	for _, n := range t.Plan.Steps[step].Needs {
		if n == j {
			return true
		}
	}
	return isDone(t.Steps[j].State)
}

// runUnfit returns why a run of a step doesn't fit the step at index i of another plan. An agent knows the run by its key, so
// it stays with the agent. What an agent is at work on, and what may have had an effect, stays what it is.
func runUnfit(t *events.Task, was int, k events.Kind, p *events.Plan, i int) (what string) {
	run, s := t.Run(was, k), t.Steps[was]
	if run == nil {
		return ""
	}
	of := map[events.Kind]string{events.Do: "", events.Undo: " its undo", events.Check: " its check"}[k]
	if !p.Has(i, k) {
		return "in the version it has no" + of
	}
	agent, operation := t.Plan.Agent(was, k)
	newAgent, newOperation := p.Agent(i, k)
	underWay := run.State == events.StepRunning || run.State == events.StepFailed || run.State == events.StepWaiting
	hadEffect := k == events.Do && (s.Unknown || s.CompletedSeq != 0)
	old, is := &t.Plan.Steps[was], &p.Steps[i]
	switch {
	case k == events.Do && (underWay || hadEffect) && old.Workflow != is.Workflow:
		return fmt.Sprintf("in the version it is a child of the workflow %q, not %q", is.Workflow, old.Workflow)
	case k == events.Do && (underWay || hadEffect) && !sameItems(old.Items, is.Items):
		return "the versions have other items, and some have begun"
	case k == events.Do && (underWay || hadEffect) && old.Items != nil && old.Items.OwnIDs:
		// They aren't in the log, but evaluated again for a withdrawal, which would go to other tasks.
		return "the definition gives its items their ids, and some have begun; the version may give them others"
	case run.Attempt > 0 && agent != newAgent:
		return fmt.Sprintf("in the version%s is for agent %q, not %q", orIt(of), newAgent, agent)
	case (underWay || hadEffect) && operation != newOperation:
		return fmt.Sprintf("in the version%s is the operation %q, not %q", orIt(of), newOperation, operation)
	case k == events.Do && hadEffect && run.Interim().LastCall != 0 && is.Repeat == nil:
		// An undo of the version wouldn't be one of several calls, which have keys of their own.
		return "the version doesn't repeat it, and calls of it may have had an effect"
	case !underWay:
		return ""
	case k == events.Do && old.Signal != is.Signal:
		return fmt.Sprintf("in the version it takes the signal %q, not %q", is.Signal, old.Signal)
	case k == events.Do && (old.Repeat == nil) != (is.Repeat == nil):
		return "only one of the versions repeats it"
	case (t.Plan.AttemptsOf(was, k).Heartbeat > 0) != (p.AttemptsOf(i, k).Heartbeat > 0):
		return "only one of the versions expects heartbeats" + orNone(of)
	}
	return ""
}

// sameItems reports whether the items of two steps do the same.
func sameItems(a, b *events.PlanItems) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func orIt(of string) string {
	if of == "" {
		return " it"
	}
	return of
}

func orNone(of string) string {
	if of == "" {
		return ""
	}
	return " of" + of
}

// migrateTask gives the task the plan of another version, and goes on with it.
func (d *decider) migrateTask(x *events.Control) (why string) {
	t := d.Task
	p, absent := d.env.Definitions.Applied(t.Workflow, x.Version)
	if p == nil {
		if !d.env.DefinitionsRead {
			d.needDefinitions = true
			return ""
		}
		return absenceText(&events.Submission{Workflow: t.Workflow, Version: x.Version}, absent)
	}
	plan := PlanOf(p)
	if why = MigrationRefusal(t, x.Version, plan, d.now); why != "" || x.DryRun {
		return why
	}
	f := &events.TaskMigrated{By: x.By, From: t.Version, Version: x.Version, Plan: plan}
	if t.State == events.StateProcessing {
		by := t.CompleteByUnder(plan)
		d.emit(f, by, &events.Policy{Timer: events.TimerTask, OnError: plan.OnError, CompleteBy: by})
	} else {
		d.emit(f, time.Time{}, nil)
	}
	d.program = p
	if d.env.Slots != nil { // the queues still know the steps by the indices of the plan before
		env := *d.env
		env.Slots = unqueued{env.Slots}
		d.env = &env
	}
	d.advance()
	return ""
}

// unqueued are slots without queued runs.
type unqueued struct{ Slots }

// Waits is false: no run is queued.
func (unqueued) Waits(*events.Task, int, events.Kind) bool { return false }
