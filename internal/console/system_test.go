package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// Every answer says which system it is of, once, whatever it is, and whoever has made it.
func TestAnswersSayWhoseTheyAre(t *testing.T) {
	w := newWorld(t)
	consoles := []server{w.console(t, nil, 0, 1), w.console(t, nil, 2, 3)}
	task := api + "/tasks/" + url.PathEscape(w.some(t, events.StateProcessed).ID)
	for _, s := range consoles {
		for _, path := range []string{"/", "/nowhere", api + "/tasks", api + "/tasks/nobody", task, task + "/export", task + "/events", api + "/tasks?surprise=1", openAPIPath} {
			r := ask(t, s, http.MethodGet, path, "")
			for name, want := range map[string]string{clusterHeader: "c", namespaceHeader: events.DefaultNamespace, "Cache-Control": "no-store"} {
				if got := r.header.Values(name); !slices.Equal(got, []string{want}) {
					t.Errorf("%s: %s %q, want %q once", path, name, got, want)
				}
			}
		}
	}
	s := w.console(t, someTokens(t))
	for _, headers := range [][]string{nil, {"Host: evil.example"}} {
		if r := ask(t, s, http.MethodGet, api+"/tasks", "", headers...); Marked(r.header) != (System{"c", events.DefaultNamespace}) {
			t.Errorf("%d: %v", r.status, r.header)
		}
	}
}

// What is meant for another system is refused, and nothing of it is written.
func TestMeantForAnotherSystem(t *testing.T) {
	w := newWorld(t)
	s := w.console(t, nil)
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, State: events.StateUndoing}, nil
	}
	id := url.PathEscape(w.some(t, events.StateProcessed).ID)
	for _, route := range routes {
		path := strings.Replace(route.path, "{id}", id, 1)
		body := `{"reason":"x","id":"new-1","workflow":"order"}`
		for _, header := range []string{clusterHeader + ": other", namespaceHeader + ": other."} {
			r := ask(t, s, route.method, path, body, header)
			if p := problem(t, r, http.StatusMisdirectedRequest); p.Type != problemTypes+"other_system" || !strings.Contains(p.Detail, "other") {
				t.Errorf("%s: %+v", path, p)
			}
			readDocument(t).fits(t, route.method, route.path, r)
		}
	}
	if w.writes() != 0 {
		t.Errorf("%d records were written", w.writes())
	}
	if r := ask(t, s, http.MethodPost, api+"/tasks/"+id+"/undo", `{"reason":"x"}`, clusterHeader+": c", namespaceHeader+": "+events.DefaultNamespace); r.status != http.StatusOK || w.writes() != 1 {
		t.Errorf("%d %s, %d written", r.status, r.body, w.writes())
	}
}

// Where a console of another system answers at a URL that one of this has announced, as at a loopback URL of
// another machine, nobody answers: its partitions are missing, and commands are written where they belong.
func TestPeerOfAnotherSystem(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	other.cluster = "other"
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // says nothing of itself, as an older build
		_, _ = w.Write([]byte(`{"tasks":[],"as_of":[{"partition":3,"offset":"99999"}]}`))
	}))
	t.Cleanup(bare.Close)
	var mu sync.Mutex
	var told []string
	w.failed = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(err.Error(), "--advertise") {
			told = append(told, err.Error())
		}
	}
	s, stranger := w.console(t, nil, 0, 1), other.console(t, nil)
	w.urls[2], w.urls[3] = stranger.URL, bare.URL
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, Seq: 1, State: events.StateUndoing}, nil
	}
	other.answer = w.answer
	for range 2 {
		if l := get[taskList](t, w, s, api+"/tasks", api+"/tasks?page_size=1000"); !slices.Equal(l.MissingPartitions, []int32{2, 3}) {
			t.Errorf("%v are missing", l.MissingPartitions)
		}
		problem(t, ask(t, s, http.MethodGet, api+"/tasks?min_offset=end", ""), http.StatusServiceUnavailable)
	}
	for i := range 20 {
		id := fmt.Sprint("t-", i)
		p := events.Partition([]byte(id), w.partitions)
		if p < 2 {
			continue
		}
		for _, of := range []string{"", "/timeline", "/events"} {
			if got := problem(t, ask(t, s, http.MethodGet, api+"/tasks/"+id+of, ""), http.StatusServiceUnavailable); !strings.Contains(got.Detail, w.urls[p]) {
				t.Errorf("%s%s: %s", id, of, got.Detail)
			}
		}
	}
	id := func() string { // of a task that the stranger would have
		for i := 0; ; i++ {
			if id := fmt.Sprint("t-", i); events.Partition([]byte(id), w.partitions) == 2 {
				return id
			}
		}
	}()
	if r := ask(t, s, http.MethodPost, api+"/tasks/"+id+"/undo", `{"reason":"x"}`); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := ask(t, s, http.MethodPost, api+"/tasks", `{"id":"`+id+`","workflow":"order"}`); r.status != http.StatusAccepted {
		t.Errorf("%d %s", r.status, r.body)
	}
	if w.writes() != 2 || other.writes() != 0 {
		t.Errorf("%d records were written, want 2, and %d in the other system", w.writes(), other.writes())
	}
	if len(told) != 2 {
		t.Errorf("told %d times, want once of each: %q", len(told), told)
	}
}

// A command that was handed over to a console whose answer doesn't count may have been done by it, as
// an older build of the same system does: it is written here as the same command.
func TestCommandHandedOverInVain(t *testing.T) {
	w := newWorld(t)
	var got command
	bare := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(bare.Close)
	s := w.console(t, nil, 0)
	for p := range w.partitions {
		if p > 0 {
			w.urls[p] = bare.URL
		}
	}
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, Seq: 1, State: events.StateUndoing}, nil
	}
	id := "t-0"
	for i := 0; events.Partition([]byte(id), w.partitions) == 0; i++ {
		id = fmt.Sprint("t-", i)
	}
	r := ask(t, s, http.MethodPost, api+"/tasks/"+id+"/release", `{"reason":"x","step":"charge","as":"completed","output":{"big":12345678901234567890}}`)
	if r.status != http.StatusOK || w.writes() != 1 {
		t.Fatalf("%d %s, %d written", r.status, r.body, w.writes())
	}
	_, in, err := events.DecodeInput(events.Controls, &w.written[0])
	x := in.(*events.Control)
	if err != nil || got.RequestID == "" || x.RequestID != got.RequestID || string(got.Output) != string(x.Output) || got.Reason != "x" {
		t.Errorf("handed over %+v, written %+v, %v", got, x, err)
	}
}
