package scheduler

import (
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// derived is what a decision works out from all steps of its task. One decision may
// start a thousand steps: so an event that only moves a step moves what is derived
// with it, and all else makes it anew.
type derived struct {
	work   workflow.Work // of all evaluations of the decision
	scope  workflow.Scope
	scoped bool // the scope is worked out
	bytes  int  // as Task.Bytes has them; -1: not counted
}

// moved: the task is as it is after e.
func (v *derived) moved(t *events.Task, e *events.Event) {
	a := e.Fact.About()
	if begins := a.Phase == events.PhaseStarted || a.Verb == events.VerbSkipped; !begins {
		*v = derived{bytes: -1, work: v.work}
		v.work.DocumentsChanged()
		return
	}
	if a.Raw != nil && v.bytes >= 0 {
		v.bytes += len(*a.Raw) // it had none before: see inputOf
	}
	if i, ok := t.Plan.Step(a.Step); ok && v.scoped {
		v.scope.Steps[i] = stepScope(t.Steps[i])
	}
}

// size is what the task holds of other people's data.
func (v *derived) size(t *events.Task) int {
	if v.bytes < 0 {
		v.bytes = t.Bytes()
	}
	return v.bytes
}

func stepScope(s *events.Step) workflow.StepScope {
	scope := workflow.StepScope{Output: s.Output, State: string(s.State)}
	if s.Error != nil {
		scope.Error = s.Error.JSON()
	}
	return scope
}
