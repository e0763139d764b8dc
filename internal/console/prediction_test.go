package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// Tasks that must end soon are listed by their deadline, each with the estimate that its own answer has. Held tasks have
// the error group under which they are listed.
func TestPredictions(t *testing.T) {
	w := newScale(t, 600, 200, 7)
	server := httptest.NewServer(w.console())
	t.Cleanup(server.Close)
	document := readDocument(t)
	get := func(route, path string, into any) {
		t.Helper()
		r := ask(t, server, http.MethodGet, api+path, "")
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
		document.fits(t, http.MethodGet, api+route, r)
		if err := json.Unmarshal([]byte(r.body), into); err != nil {
			t.Fatal(err)
		}
	}
	var all, misses, none consoleapi.PredictionList
	get("/predictions", "/predictions?within=30h", &all)
	get("/predictions", "/predictions?within=30h&will_miss=true", &misses)
	get("/predictions", "/predictions?within=1ms", &none)
	if all.Looked < 50 || len(all.Tasks) != 50 || !all.LookedAll || all.Unpredicted > 0 || all.WillMiss == 0 || all.WillMiss == all.Looked || none.Looked != 0 || misses.WillMiss != all.WillMiss {
		t.Errorf("%d tasks: %+v", len(all.Tasks), all)
	}
	for i, task := range all.Tasks {
		p := task.Prediction
		if p == nil || p.Samples < 100 || len(p.CriticalPath) == 0 || p.Misses != (*p.EndsAt > *task.CompleteBy) || i > 0 && *task.CompleteBy < *all.Tasks[i-1].CompleteBy {
			t.Errorf("%+v, %+v", task, p)
		}
	}
	for _, task := range misses.Tasks {
		if !task.Prediction.Misses {
			t.Errorf("%+v", task)
		}
	}
	predicted, held := 0, 0
	for _, id := range w.ids {
		var task consoleapi.Task
		get("/tasks/{id}", consoleapi.TaskPath(id), &task)
		if (task.Prediction != nil) != (task.State == events.StateProcessing) || (task.ErrorGroup != "") != (task.State == events.StateError) {
			t.Errorf("%s is %s: %+v, group %q", id, task.State, task.Prediction, task.ErrorGroup)
		}
		if task.Prediction != nil {
			predicted++
			for _, listed := range all.Tasks {
				if listed.ID == id && *listed.Prediction.EndsAt != *task.Prediction.EndsAt {
					t.Errorf("%s: %+v, in the list %+v", id, task.Prediction, listed.Prediction)
				}
			}
		}
		if task.ErrorGroup != "" {
			held++
			var group consoleapi.TaskPage
			get("/tasks", "/tasks?page_size=1000&filter=error_group:"+task.ErrorGroup, &group)
			found := false
			for i := range group.Tasks {
				found = found || group.Tasks[i].ID == id
			}
			if !found {
				t.Errorf("%s isn't in its group %s: %+v", id, task.ErrorGroup, group)
			}
		}
	}
	if predicted == 0 || held == 0 {
		t.Errorf("%d predicted, %d held", predicted, held)
	}
	for _, bad := range []string{"within=0s", "within=x", "within=-1h", "within=1000h", "will_miss=perhaps", "min_offset=x"} {
		problem(t, ask(t, server, http.MethodGet, api+"/predictions?"+bad, ""), http.StatusBadRequest)
	}
}
