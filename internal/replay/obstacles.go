package replay

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// Obstacle is a step after which a task can't be migrated.
type Obstacle struct {
	Step string `json:"step"`
	Why  string `json:"why"`
}

// Obstacles returns the steps of a definition after which a task can't be migrated to another one any more. Steps that come
// after such a step aren't listed. The scheduler's own function decides, on a task in which the step runs and all that it
// needs is completed.
func Obstacles(from, to *workflow.Definition) []Obstacle {
	old, plan := scheduler.PlanOfDefinition(from), scheduler.PlanOfDefinition(to)
	list := []Obstacle{}
	for i := range old.Steps {
		before := ancestors(old, i)
		if slices.ContainsFunc(list, func(o Obstacle) bool { at, _ := old.Step(o.Step); return before[at] }) {
			continue
		}
		if why := scheduler.MigrationRefusal(running(from, old, i, before), to.Version, plan, time.Time{}); why != "" {
			list = append(list, Obstacle{old.Steps[i].ID, why})
		}
	}
	return list
}

// running returns a task in which a step runs, and those before it are completed.
func running(d *workflow.Definition, p *events.Plan, step int, before map[int]bool) *events.Task {
	t := &events.Task{Workflow: d.Name, State: events.StateProcessing, Plan: p, CompleteBy: time.Unix(0, 0).Add(p.CompleteWithin),
		Steps: make([]*events.Step, len(p.Steps))}
	for i := range t.Steps {
		t.Steps[i] = &events.Step{Run: events.Run{State: events.StepPending}}
		if before[i] {
			t.Steps[i] = &events.Step{Run: events.Run{State: events.StepCompleted, Attempt: 1}, CompletedSeq: 1}
		}
	}
	t.Steps[step] = &events.Step{Run: events.Run{State: events.StepRunning, Attempt: 1}}
	return t
}

// ancestors returns the indices of the steps that come before a step.
func ancestors(p *events.Plan, step int) map[int]bool {
	all := map[int]bool{}
	open := slices.Clone(p.Steps[step].Needs)
	for len(open) > 0 {
		n := open[0]
		if open = open[1:]; !all[n] {
			all[n] = true
			open = append(open, p.Steps[n].Needs...)
		}
	}
	return all
}
