package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// The groups have every held task once, and each group's filter lists its tasks.
func TestErrorGroups(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	var held, listed []string
	for id, task := range w.tasks {
		if task.State == events.StateError {
			held = append(held, id)
		}
	}
	get := func(path string, into any) {
		t.Helper()
		r := ask(t, s, http.MethodGet, "/api/v1"+path, "")
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
		if err := json.Unmarshal([]byte(r.body), into); err != nil {
			t.Fatal(err)
		}
	}
	var all consoleapi.ErrorGroupList
	get("/error-groups", &all)
	for _, g := range all.Groups {
		var page consoleapi.TaskPage
		get("/tasks?filter="+url.QueryEscape("error_group:"+g.Group), &page)
		if int64(len(page.Tasks)) != g.Held || len(g.Sample) == 0 || g.Sample[0] != page.Tasks[0].ID || len(g.Trend.Holds) != 24 || g.Holds < g.Held {
			t.Errorf("%+v has the tasks %+v", g, page.Tasks)
		}
		for i := range page.Tasks {
			listed = append(listed, page.Tasks[i].ID)
		}
	}
	slices.Sort(held)
	slices.Sort(listed)
	if !slices.Equal(held, listed) || all.Held != int64(len(held)) || len(held) == 0 || len(all.Groups) < 2 {
		t.Errorf("%d groups have %v, held are %v", len(all.Groups), listed, held)
	}
	var one, of, none consoleapi.ErrorGroupList
	get("/error-groups?limit=1&ended=true", &one)
	if len(one.Groups) != 1 || one.Left < len(all.Groups)-1 {
		t.Errorf("of all: %d groups, %d are left", len(one.Groups), one.Left)
	}
	get("/error-groups?workflow="+all.Groups[0].Workflow, &of)
	if len(of.Groups) == 0 || of.Held < of.Groups[0].Held {
		t.Errorf("of %s: %+v", all.Groups[0].Workflow, of)
	}
	get("/error-groups?workflow=nothing", &none)
	if len(none.Groups) != 0 || none.Held != 0 {
		t.Errorf("of no workflow: %+v", none)
	}
	for _, bad := range []string{"limit=0", "limit=201", "limit=x", "ended=yes", "min_offset=x"} {
		problem(t, ask(t, s, http.MethodGet, "/api/v1/error-groups?"+bad, ""), http.StatusBadRequest)
	}
}
