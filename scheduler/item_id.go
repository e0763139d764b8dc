package scheduler

import (
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// OwnItemIDs returns a function for the ids of the tasks of a step's items that the definition gives ids of its own
// (events.PlanItems.OwnIDs). They aren't in the task's log, so they are evaluated again, as for a withdrawal. p is the
// definition of the task's version. The id of an item that never started is empty, and so is one that can't be evaluated.
// t must not change.
func OwnItemIDs(p *workflow.Program, t *events.Task) func(step, item int) string {
	d := &decider{Decision: Decision{Task: t}}
	if cachedPlanOf(p).matches(t.Plan) { // otherwise another definition has the task's version, and its ids would be wrong
		d.program = p
	}
	return func(step, item int) string {
		attempt := t.Steps[step].Items.Item(item).Attempt
		if d.program == nil || attempt == 0 {
			return ""
		}
		id, err := d.itemID(step, item, attempt)
		if err != nil {
			return ""
		}
		return id
	}
}
