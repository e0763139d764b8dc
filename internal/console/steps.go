package console

import (
	"maps"
	"slices"

	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

type stepsRequest struct {
	definitionPath
	listRequest
}

// steps returns what happens at the steps of a workflow's version.
func (c *call) steps(in *stepsRequest) (*consoleapi.StepList, error) {
	progress, leaderless, err := c.awaitOffsets(c.r.Context(), in.MinOffset)
	if err != nil {
		return nil, err
	}
	found, err := c.cfg.Index.Steps(startedPartitions(progress), string(in.Name), int(in.Version))
	if err != nil {
		return nil, err
	}
	d, _ := c.cfg.Cluster.Definition(string(in.Name), int(in.Version))
	if d == nil && len(found.Tasks) == 0 {
		if d, _, err = c.findDefinition(in.Name, in.Version); err != nil {
			return nil, err
		}
	}
	var names []string
	if d != nil {
		for i := range d.Steps {
			names = append(names, d.Steps[i].ID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found.Steps)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	l := &consoleapi.StepList{Workflow: string(in.Name), Version: int(in.Version), Tasks: found.Tasks, Steps: make([]consoleapi.StepCounts, len(names)),
		DurationDays: projections.StepDays, AsOf: reflectedOffsets(found.AsOf)}
	for i, name := range names {
		stats := found.Steps[name]
		if stats == nil {
			stats = &projections.StepStats{}
		}
		l.Steps[i] = viewStep(name, stats)
	}
	l.Incomplete, err = c.incompletePartitions(progress, leaderless)
	return l, err
}

func viewStep(name string, s *projections.StepStats) consoleapi.StepCounts {
	v := consoleapi.StepCounts{Step: name, Held: s.At[projections.AtHeld], Do: viewStepRun(&s.Do, &s.DoTook), Undo: viewStepRun(&s.Undo, &s.UndoTook),
		At: consoleapi.StepAt{Running: s.At[projections.AtRunning], Waiting: s.At[projections.AtWaiting], Failed: s.At[projections.AtFailed]}}
	if s.Check != (projections.StepRun{}) {
		check := viewStepRun(&s.Check, &projections.Histogram{})
		v.Check = &check
	}
	return v
}

func viewStepRun(r *projections.StepRun, took *projections.Histogram) consoleapi.StepRun {
	return consoleapi.StepRun{Attempts: r.Attempts, Failures: r.Failures, Completed: r.Completed, Errored: r.Errored, Skipped: r.Skipped, Caught: r.Caught,
		Repeated: r.Repeated, Released: r.Released, Duration: viewLatency(took)}
}
