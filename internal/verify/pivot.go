package verify

import "github.com/waybill-run/waybill/events"

// onError returns what must follow if the task can't continue: what its plan says, or a hold once a pivot is completed.
// It uses the checker's own flags, independently of the fold.
func (t *task) onError() string {
	for i := range t.steps {
		if t.plan.Steps[i].Pivot && t.steps[i].flags.has(completed|handSettled) {
			return events.OnErrorHold
		}
	}
	return t.plan.OnError
}
