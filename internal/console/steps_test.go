package console

import (
	"net/http"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// The counts of the steps of a version are those of its tasks, in the order of the definition, also of steps that no task
// has reached, and of a version whose definition is gone.
func TestSteps(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	const path = api + "/workflows/order/1/steps"
	gone := get[consoleapi.StepList](t, w, s, api+"/workflows/{name}/{version}/steps", path)
	w.applyOrders(t)
	got := get[consoleapi.StepList](t, w, s, api+"/workflows/{name}/{version}/steps", path)
	at, held, tasks := map[string]int64{}, map[string]int64{}, map[events.TaskState]int64{}
	for _, task := range w.tasks {
		if task.Workflow != "order" || task.Version != 1 {
			continue
		}
		tasks[task.State]++
		for i, step := range task.Steps {
			id := task.Plan.Steps[i].ID
			if task.Open() && (step.State == events.StepRunning || step.Undo != nil && step.Undo.State == events.StepRunning) {
				at[id]++
			}
			if task.State == events.StateError && step.State == events.StepError {
				held[id]++
			}
		}
	}
	completed := int64(0)
	for i := range got.Steps {
		step := &got.Steps[i]
		if step.At.Running != at[step.Step] || step.Held != held[step.Step] {
			t.Errorf("%+v: %d running, %d held", step, at[step.Step], held[step.Step])
		}
		if d := step.Do.Duration; d != nil && (d.Count > step.Do.Completed || d.P50 > d.P95) {
			t.Errorf("%s: %+v, duration %+v", step.Step, step.Do, d)
		}
		completed += step.Do.Completed
	}
	for state, n := range tasks {
		if got.Tasks[state] != n {
			t.Errorf("%d tasks are %s, not %d", n, state, got.Tasks[state])
		}
	}
	if len(got.Steps) == 0 || got.Steps[0].Step != "reserve" || got.Steps[0].Do.Attempts == 0 || completed == 0 || got.DurationDays != 14 || len(gone.Steps) == 0 {
		t.Errorf("%+v; without its definition %+v", got, gone)
	}
	two := get[consoleapi.StepList](t, w, s, api+"/workflows/{name}/{version}/steps", api+"/workflows/order/2/steps")
	if len(two.Steps) < 4 || two.Steps[2].Step != "pack" || two.Steps[2].Do.Attempts != 0 {
		t.Errorf("of a version with a step that no task has reached: %+v", two.Steps)
	}
	problem(t, ask(t, s, http.MethodGet, api+"/workflows/order/3/steps", ""), http.StatusNotFound)
	problem(t, ask(t, s, http.MethodGet, api+"/workflows/order/x/steps", ""), http.StatusBadRequest)
	problem(t, ask(t, s, http.MethodGet, path+"?min_offset=x", ""), http.StatusBadRequest)
}
