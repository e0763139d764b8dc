package scheduler

import (
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// derived caches values that a decision computes from all steps of its task. One decision may start a thousand steps,
// so an event that only starts a step updates the cache. Any other event resets it.
type derived struct {
	work     workflow.Work // reused by all evaluations of the decision
	scope    workflow.Scope
	hasScope bool // scope is valid
	bytes    int  // Task.Bytes; -1: not counted
}

// applyEvent updates the cache after e; t is the task after e.
func (v *derived) applyEvent(t *events.Task, e *events.Event) {
	a := e.Fact.About()
	if begins := a.Phase.Begins() || a.Verb == events.VerbSkipped; !begins {
		*v = derived{bytes: -1, work: v.work}
		v.work.DocumentsChanged()
		return
	}
	if a.Raw != nil && v.bytes >= 0 {
		v.bytes += len(*a.Raw) // the field was empty before: see runInput
	}
	if i, ok := t.Plan.Step(a.Step); ok && v.hasScope {
		v.scope.Steps[i] = stepScope(t.Steps[i])
	}
}

// taskBytes returns the bytes of user data that the task holds.
func (v *derived) taskBytes(t *events.Task) int {
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
