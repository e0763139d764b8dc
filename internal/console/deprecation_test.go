package console

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// TestDeprecatedVersion: the list and the version say that it is deprecated. A submission that names it is accepted, and
// the answer says it. One that names no version is refused if all are deprecated.
func TestDeprecatedVersion(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	w.read = []Workflow{{Name: "old", Version: 1, Steps: []string{}, Agents: []string{}, Deprecated: &events.DeprecationView{Why: "use order", By: "ann"}}}
	w.definitions["old/1"] = definitionOf(t, strings.Replace(string(w.definitions["order/1"].YAML()), "workflow: order", "workflow: old", 1))
	w.within.indexed = time.Millisecond // nothing indexes the submission
	s := w.console(t, nil)
	listed := 0
	for _, v := range get[consoleapi.WorkflowList](t, w, s, api+"/workflows", api+"/workflows").Workflows {
		if v.Deprecated != nil && v.Workflow == "old" && v.Deprecated.Why == "use order" && v.Deprecated.By == "ann" {
			listed++
		} else if v.Deprecated != nil {
			t.Errorf("%+v", v)
		}
	}
	if v := get[consoleapi.Definition](t, w, s, api+"/workflows/{name}/{version}", api+"/workflows/old/1"); listed != 1 || v.Deprecated == nil || v.Deprecated.Why != "use order" {
		t.Errorf("%d are listed; %+v", listed, v.Deprecated)
	}
	if v := get[consoleapi.Definition](t, w, s, api+"/workflows/{name}/{version}", api+"/workflows/order/1"); v.Deprecated != nil {
		t.Errorf("order/1: %+v", v.Deprecated)
	}
	for version, want := range map[string]string{`,"version":1`: "use order", "": ""} {
		r := ask(t, s, http.MethodPost, api+"/tasks", `{"id":"..","workflow":"old","input":{}`+version+`}`)
		if version == "" {
			if p := problem(t, r, http.StatusUnprocessableEntity); !strings.Contains(p.Detail, `every version of workflow "old" is deprecated`) {
				t.Error(p.Detail)
			}
			continue
		}
		var got consoleapi.Submitted
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status/100 != 2 || got.Deprecated != want {
			t.Errorf("%d %s, %v", r.status, strconv.Quote(r.body), err)
		}
		readDocument(t).fits(t, http.MethodPost, api+"/tasks", r)
	}
}
