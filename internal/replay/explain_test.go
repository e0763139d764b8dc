package replay

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Explain is ExplainItems of a task whose definition gives the tasks of items no ids of its own.
func Explain(t *events.Task, since *Since, unreadable string, agents map[string]AgentState, now time.Time) *Why {
	return ExplainItems(t, since, unreadable, agents, now, func(step, item int) string { return events.ItemTaskIDOf(t, step, item) })
}
