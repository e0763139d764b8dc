package scheduler

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestDeepestValuesAreCheckedAndUndone gives a step an input and an output of the deepest JSON. The step is checked, and
// undone; agents can read each request, and the history can be stored and verified.
func TestDeepestValuesAreCheckedAndUndone(t *testing.T) {
	deepest := strings.Repeat("[", events.MaxJSONDepth) + strings.Repeat("]", events.MaxJSONDepth)
	for items, input := range map[string]string{"": "[input.deep]", "for_each: \"${ [1, 2] }\", ": "item"} {
		f := newFamily(t, "workflow: o\nversion: 1\ncomplete_within: 1h\non_error: undo\nsteps:\n  charge: {"+items+
			"agent: stock, operation: charge, input: \"${ "+input+" }\", undo: {operation: refund}, check: {operation: status}, retry: {max_attempts: 2}, complete_within: 10s}\n"+
			"  ship: {needs: [charge], agent: stock, operation: ship, complete_within: 10s}\n")
		done := map[string]int{}
		f.agent = func(_, operation string, value json.RawMessage) (events.Outcome, string) {
			done[operation]++
			if err := events.CheckRequestJSON(value); err != nil {
				t.Errorf("%s: %v", operation, err)
			}
			switch operation {
			case "charge":
				return "", "" // its effect is unknown
			case "status":
				return events.Completed, `{"outcome":"completed","output":` + deepest + `}`
			case "ship":
				return events.Rejected, `{"code":"no"}`
			}
			return events.Completed, deepest
		}
		task := f.submit("o", "o", `{"deep":`+strings.Repeat("[", events.MaxJSONDepth-2)+"1"+strings.Repeat("]", events.MaxJSONDepth-2)+`}`)
		for range 10 {
			if task.State == events.StateUndone {
				break
			}
			f.timeOut()
			task = f.tasks["o"]
		}
		if task.State != events.StateUndone || done["status"] == 0 || done["refund"] == 0 || len(f.dead) > 0 {
			t.Errorf("%q: %s with %+v; %v; dead letters %q", items, task.State, task.Error, done, f.dead)
		}
		if _, err := events.DecodeTask(task.Encode()); err != nil {
			t.Error(err)
		}
		f.verified()
	}
}
