package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// Every response names its system once, whichever handler wrote it.
func TestAnswersSayWhoseTheyAre(t *testing.T) {
	w := newRecording(t)
	consoles := []server{w.console(t, nil), w.console(t, nil)}
	task := api + "/tasks/" + url.PathEscape(w.some(t, events.StateProcessed).ID)
	for _, s := range consoles {
		for _, path := range []string{"/", "/nowhere", api + "/tasks", api + "/tasks/nobody", task, task + "/export", task + "/events", api + "/tasks?surprise=1", openAPIPath} {
			r := ask(t, s, http.MethodGet, path, "")
			for name, want := range map[string]string{consoleapi.ClusterHeader: "c", consoleapi.NamespaceHeader: events.DefaultNamespace, "Cache-Control": "no-store"} {
				if got := r.header.Values(name); !slices.Equal(got, []string{want}) {
					t.Errorf("%s: %s %q, want %q once", path, name, got, want)
				}
			}
		}
	}
	s := w.console(t, someTokens(t))
	for _, headers := range [][]string{nil, {"Host: evil.example"}} {
		if r := ask(t, s, http.MethodGet, api+"/tasks", "", headers...); consoleapi.SystemOf(r.header) != (consoleapi.System{ClusterID: "c", Namespace: events.DefaultNamespace}) {
			t.Errorf("%d: %v", r.status, r.header)
		}
	}
}

// Requests for another system are rejected, and nothing is written.
func TestMeantForAnotherSystem(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, State: events.StateUndoing}, nil
	}
	id := url.PathEscape(w.some(t, events.StateProcessed).ID)
	for _, route := range routes {
		path := strings.Replace(route.path, "{id}", id, 1)
		body := `{"reason":"x","id":"new-1","workflow":"order"}`
		for _, header := range []string{consoleapi.ClusterHeader + ": other", consoleapi.NamespaceHeader + ": other."} {
			r := ask(t, s, route.method, path, body, header)
			if p := problem(t, r, http.StatusMisdirectedRequest); p.Type != consoleapi.ProblemTypes+"other_system" || !strings.Contains(p.Detail, "other") {
				t.Errorf("%s: %+v", path, p)
			}
			readDocument(t).fits(t, route.method, route.path, r)
		}
	}
	if w.writes() != 0 {
		t.Errorf("%d records were written", w.writes())
	}
	if r := ask(t, s, http.MethodPost, api+"/tasks/"+id+"/undo", `{"reason":"x"}`, consoleapi.ClusterHeader+": c", consoleapi.NamespaceHeader+": "+events.DefaultNamespace); r.status != http.StatusOK || w.writes() != 1 {
		t.Errorf("%d %s, %d written", r.status, r.body, w.writes())
	}
}
