package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/suite"
)

// get requests a route of the OpenAPI document and decodes the response.
func get[T any](t testing.TB, w *recording, s server, route, path string) (v T) {
	t.Helper()
	r := ask(t, s, http.MethodGet, path, "")
	if r.status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	readDocument(t).fits(t, http.MethodGet, route, r)
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// pagesOf reads a list in pages of two, and checks each page's cursor.
func pagesOf[L, T any](t testing.TB, w *recording, s server, route, question string, of func(L) ([]T, int64, string)) (all []T) {
	t.Helper()
	for token := ""; ; {
		list, left, next := of(get[L](t, w, s, route, route+"?"+question+"&limit=2&page_token="+token))
		all = append(all, list...)
		if (left > 0) != (next != "") || left > 0 && len(list) != 2 {
			t.Fatalf("%s: %d on a page, %d left, token %q", route, len(list), left, next)
		}
		if token = next; token == "" {
			return all
		}
	}
}

func problem(t testing.TB, r reply, status int) consoleapi.Problem {
	t.Helper()
	var p consoleapi.Problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%d %s is no problem (%v)", r.status, r.body, err)
	}
	if r.status != status || p.Status != status || !strings.HasPrefix(p.Type, consoleapi.ProblemTypes) || p.Detail == "" {
		t.Errorf("status %d, want %d: %s", r.status, status, r.body)
	}
	return p
}

// Responses about a task equal the fold of its events.
func TestTaskAnswers(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for id, task := range w.tasks {
		p := events.Partition([]byte(id), w.partitions)
		path := api + "/tasks/" + url.PathEscape(id)
		got := get[events.TaskView](t, w, s, api+"/tasks/{id}", path)
		want := task.View("", p, 0)
		if got.State != want.State || got.FailureCount != want.FailureCount || len(got.Steps) != len(want.Steps) || !bytes.Equal(got.Input, want.Input) || *got.UpdatedAt != *want.UpdatedAt {
			t.Errorf("task %s: %+v, want %+v", id, got, want)
		}
		if next, err := strconv.ParseInt(got.AsOf.Offset, 10, 64); err != nil || got.AsOf.Partition != p || next <= w.last(id).Offset {
			t.Errorf("task %s is as of %+v, and its last event is at %d/%d", id, got.AsOf, p, w.last(id).Offset)
		}
		lines := get[consoleapi.Timeline](t, w, s, api+"/tasks/{id}/timeline", path+"/timeline").Lines
		if uint64(len(lines)) != task.Seq || lines[0].Seq != 1 || lines[len(lines)-1].Seq != task.Seq {
			t.Errorf("task %s: %d lines of %d events", id, len(lines), task.Seq)
		}
		why := get[replay.Why](t, w, s, api+"/tasks/{id}/why", path+"/why")
		if ended := why.Reason == replay.ReasonEnded; ended != task.State.Terminal() {
			t.Errorf("task %s, %s: %s", id, task.State, why.Reason)
		}
		exported, err := replay.NewReader(strings.NewReader(ask(t, s, http.MethodGet, path+"/export", "").body))
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		if err := exported.Each(func(*events.Record) error { n++; return nil }); err != nil || n != task.Seq {
			t.Errorf("task %s: exported %d of %d events, %v", id, n, task.Seq, err)
		}
	}
	problem(t, ask(t, s, http.MethodGet, api+"/tasks/nobody", ""), http.StatusNotFound)
}

// A submission that no scheduler has consumed isn't a task. The error says where it waits.
func TestSubmissionThatWaits(t *testing.T) {
	w := newRecording(t)
	w.waiting = map[string]*Waiting{"early": {Topic: "waybill.tasks", Partition: 1, Offset: 30, Before: 7}}
	s := w.console(t, nil)
	for _, what := range []string{"", "/why", "/timeline"} {
		const want = `task "early" has not been consumed by a scheduler yet: its submission waits at waybill.tasks/1/30, behind 7 others`
		if p := problem(t, ask(t, s, http.MethodGet, api+"/tasks/early"+what, ""), http.StatusNotFound); !strings.HasPrefix(p.Detail, want) {
			t.Errorf("%s: %s", what, p.Detail)
		}
	}
}

// Lookups of waiting submissions are bounded. Further requests get a 404 without a lookup, and lists are not
// affected.
func TestLookupsOfSubmissionsAreBounded(t *testing.T) {
	w := newRecording(t)
	w.waiting = map[string]*Waiting{"early": {Topic: "waybill.tasks", Partition: 1, Offset: 30, Before: 7}}
	looking, on := make(chan bool), make(chan bool)
	w.looking = func() { looking <- true; <-on }
	s := w.console(t, nil)
	early := func() reply { return ask(t, s, http.MethodGet, api+"/tasks/early", "") }
	var asking sync.WaitGroup
	for range waitingLookupsMax {
		asking.Go(func() {
			if r := early(); r.status != http.StatusNotFound || !strings.Contains(r.body, "its submission waits") {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	for range waitingLookupsMax {
		<-looking
	}
	if got := problem(t, early(), http.StatusNotFound).Detail; !strings.Contains(got, `there is no task "early"`) {
		t.Error(got)
	}
	if r := ask(t, s, http.MethodGet, api+"/deadletters", ""); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	close(on)
	asking.Wait()
}

// last returns the last event of a task.
func (w *recording) last(id string) events.Record {
	rs := w.records[events.Partition([]byte(id), w.partitions)]
	for i := len(rs) - 1; ; i-- {
		if string(rs[i].Key) == id {
			return rs[i]
		}
	}
}

// wanted returns the ids that a filter accepts, in the order of the list.
func (w *recording) wanted(keep func(*events.Task) bool) []string {
	var list []*events.Task
	for _, task := range w.tasks {
		if keep(task) {
			list = append(list, task)
		}
	}
	slices.SortFunc(list, func(a, b *events.Task) int {
		return cmp.Or(cmp.Compare(b.SubmittedAt.UnixMilli(), a.SubmittedAt.UnixMilli()), strings.Compare(a.ID, b.ID))
	})
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids
}

// walk reads all pages of a filter, from the consoles in turn.
func walk(t *testing.T, w *recording, consoles []server, filter string, size int) (ids []string) {
	t.Helper()
	token := ""
	for i := range len(w.tasks) + 2 {
		q := url.Values{"page_size": {strconv.Itoa(size)}, "filter": {filter}}
		if token != "" {
			q.Set("page_token", token)
		}
		l := get[consoleapi.TaskPage](t, w, consoles[i%len(consoles)], api+"/tasks", api+"/tasks?"+q.Encode())
		if len(l.Tasks) > size || len(l.AsOf) != int(w.partitions) || len(l.Incomplete) != 0 {
			t.Fatalf("a page of %d has %d, as of %v, without %v", size, len(l.Tasks), l.AsOf, l.Incomplete)
		}
		for _, v := range l.Tasks {
			ids = append(ids, v.ID)
		}
		if token = l.NextPageToken; token == "" {
			return ids
		}
	}
	t.Fatalf("%q in pages of %d has no end", filter, size)
	return nil
}

// Pages of any size contain each matching task once, in order, from one console or alternating between two.
func TestPages(t *testing.T) {
	w := newRecording(t)
	one, two := w.console(t, nil), w.console(t, nil)
	middle := w.tasks[w.wanted(func(*events.Task) bool { return true })[len(w.tasks)/2]].SubmittedAt
	for filter, keep := range map[string]func(*events.Task) bool{
		"":                func(*events.Task) bool { return true },
		"state:processed": func(k *events.Task) bool { return k.State == events.StateProcessed },
		"state:error,undone workflow:order": func(k *events.Task) bool {
			return k.Workflow == "order" && (k.State == events.StateError || k.State == events.StateUndone)
		},
		"workflow:order/99":                        func(*events.Task) bool { return false },
		"since:" + middle.Format(time.RFC3339Nano): func(k *events.Task) bool { return !k.SubmittedAt.Before(middle) },
	} {
		want := w.wanted(keep)
		for _, size := range []int{1, 7, 1000} {
			for _, of := range [][]server{{one}, {one, two}} {
				if got := walk(t, w, of, filter, size); !slices.Equal(got, want) {
					t.Errorf("%q in pages of %d, of %d consoles: %d tasks, want %d\n%v\n%v", filter, size, len(of), len(got), len(want), got, want)
				}
			}
		}
	}
}

// Any console answers requests about any task.
func TestAnyConsoleAnswers(t *testing.T) {
	w := newRecording(t)
	consoles := []server{w.console(t, nil), w.console(t, nil)}
	for id, task := range w.tasks {
		for _, s := range consoles {
			if got := get[events.TaskView](t, w, s, api+"/tasks/{id}", api+"/tasks/"+url.PathEscape(id)); got.State != task.State {
				t.Errorf("task %s is %s, want %s", id, got.State, task.State)
			}
		}
	}
	for _, s := range consoles {
		if got := get[consoleapi.PartitionList](t, w, s, api+"/partitions", api+"/partitions"); len(got.Partitions) != int(w.partitions) {
			t.Errorf("%d partitions", len(got.Partitions))
		}
	}
}

// An id that would be a relative path segment is requested in the API's encoding.
func TestIDsOfDots(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for _, id := range []string{".", ".."} {
		for _, what := range []string{"", "/timeline"} {
			if r := problem(t, ask(t, s, http.MethodGet, api+consoleapi.TaskPath(id)+what, ""), http.StatusNotFound); !strings.Contains(r.Detail, `no task "`+id+`"`) {
				t.Errorf("%s%s: %s", id, what, r.Detail)
			}
		}
	}
}

func TestClusterAnswers(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	states := map[events.TaskState]int64{}
	for _, task := range w.tasks {
		states[task.State]++
	}
	sum := map[events.TaskState]int64{}
	for _, v := range get[consoleapi.WorkflowList](t, w, s, api+"/workflows", api+"/workflows").Workflows {
		addCounts(sum, v.Tasks)
	}
	for state, n := range sum {
		if n == 0 {
			delete(sum, state)
		}
	}
	if !maps.Equal(sum, states) {
		t.Errorf("tasks by state: %v, want %v", sum, states)
	}
	open, all := int64(0), int64(0)
	for _, p := range get[consoleapi.PartitionList](t, w, s, api+"/partitions", api+"/partitions").Partitions {
		open, all = open+p.OpenTasks, all+p.Tasks
		if p.Owner == nil || p.Restored != 1 || p.Partition == 0 && p.Lag != 7 {
			t.Errorf("partition %+v", p)
		}
	}
	if want := states[events.StatePending] + states[events.StateProcessing] + states[events.StateError] + states[events.StateUndoing]; open != want || all != int64(len(w.tasks)) {
		t.Errorf("%d open tasks of %d, want %d of %d", open, all, want, len(w.tasks))
	}
	if list := get[consoleapi.AgentList](t, w, s, api+"/agents", api+"/agents").Agents; len(list) != 1 {
		t.Errorf("agents %v", list)
	}
	for _, of := range []string{"alerts", "deadletters"} {
		n := len(w.other["waybill."+of])
		got := get[map[string]any](t, w, s, api+"/"+of, api+"/"+of+"?since=2000h&limit=3")
		if list := got[of].([]any); len(list) != min(n, 3) || got["left_off"] != float64(n-len(list)) {
			t.Errorf("%s: %d and %v left off, of %d", of, len(list), got["left_off"], n)
		}
	}
}

// The pages of dead letters add up to the list, whatever arrives meanwhile, and however many have the same timestamp.
func TestDeadlettersPageByPage(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	comes := func(n int, at time.Time) {
		for i := range n {
			offset := int64(len(w.other["waybill.deadletters"]))
			w.other["waybill.deadletters"] = append(w.other["waybill.deadletters"], events.Record{Topic: "waybill.deadletters", Partition: int32(i % 3), Offset: offset,
				Time: at.Add(time.Duration(i/5) * time.Millisecond), Value: []byte("x"), Headers: []events.Header{{Key: events.HeaderReason, Value: []byte(events.ReasonBadJSON)}}})
		}
	}
	w.other["waybill.deadletters"] = nil
	comes(23, w.now.Add(-time.Hour))
	route := api + "/deadletters"
	all := get[consoleapi.DeadletterPage](t, w, s, route, route+"?limit=1000").Deadletters
	pages := pagesOf(t, w, s, route, "reason=bad_json", func(l consoleapi.DeadletterPage) ([]consoleapi.Deadletter, int64, string) {
		comes(1, w.now)
		return l.Deadletters, l.Left, l.NextPageToken
	})
	if len(all) != 23 || !reflect.DeepEqual(pages, all) {
		t.Errorf("%d dead letters page by page, %d on one", len(pages), len(all))
	}
	token := get[consoleapi.DeadletterPage](t, w, s, route, route+"?limit=1").NextPageToken
	for _, other := range []string{route + "?reason=bad_json&page_token=", route + "?since=1h&page_token=", api + "/alerts?page_token="} {
		if p := problem(t, ask(t, s, http.MethodGet, other+token, ""), http.StatusBadRequest); !strings.Contains(p.Detail, "page token") {
			t.Errorf("%s: %s", other, p.Detail)
		}
	}
}

// A request with min_offset waits until the response reflects it, for a bounded time.
func TestMinOffset(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	w := newRecording(t)
	s := w.console(t, nil)
	id := w.some(t, events.StateProcessed).ID
	p, last := events.Partition([]byte(id), w.partitions), w.last(id)
	path := api + "/tasks/" + url.PathEscape(id)
	if r := ask(t, s, http.MethodGet, fmt.Sprintf("%s?min_offset=%d", path, last.Offset+1), ""); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := ask(t, s, http.MethodGet, fmt.Sprintf("%s/tasks?min_offset=%d:%d", api, p, last.Offset+1), ""); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	// Each request reads the end of the log and waits for it. Here no console reaches it.
	w.more = 5
	var behind [2]reply
	var asking sync.WaitGroup // each waits as long as a console does
	for i, path := range []string{path, api + "/tasks"} {
		asking.Go(func() { behind[i] = ask(t, s, http.MethodGet, path+"?min_offset=end", "") })
	}
	asking.Wait()
	for _, r := range behind {
		if got := problem(t, r, http.StatusServiceUnavailable); got.Type != consoleapi.ProblemTypes+"incomplete" {
			t.Errorf("%+v", got)
		}
	}
	w.more = 0
	if r := ask(t, s, http.MethodGet, path+"?min_offset=end", ""); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	r := ask(t, s, http.MethodGet, path+"?min_offset=1000000", "")
	if got := problem(t, r, http.StatusServiceUnavailable); got.Type != consoleapi.ProblemTypes+"incomplete" || r.header.Get("Retry-After") == "" {
		t.Errorf("%+v, %v", got, r.header)
	}
}

// A command is written with the caller's name, and the answer is returned.
func TestCommands(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	task := w.some(t, events.StateProcessed)
	path := api + "/tasks/" + url.PathEscape(task.ID)
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, Seq: task.Seq, State: events.StateUndoing}, nil
	}
	for verb, body := range map[string]string{
		"undo": `{"reason":"a test","request_id":"r-1"}`, "resubmit": `{"reason":"a test","request_id":"r-1","step":"charge"}`,
		"cancel": `{"reason":"a test","request_id":"r-1","keep":true}`, "release": `{"reason":"a test","request_id":"r-1","step":"charge","as":"completed","output":{"a":1}}`,
	} {
		r := ask(t, s, http.MethodPost, path+"/"+verb, body)
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", verb, r.status, r.body)
		}
		readDocument(t).fits(t, http.MethodPost, api+"/tasks/{id}/"+verb, r)
		var got consoleapi.CommandResult
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || got.Seq != task.Seq || got.RequestID != "r-1" ||
			got.AsOf == nil || got.AsOf.Offset != strconv.FormatInt(w.last(task.ID).Offset+1, 10) {
			t.Errorf("%s: %s, %v", verb, r.body, err)
		}
		_, in, err := events.DecodeInput(events.Controls, &w.written[len(w.written)-1])
		if x := in.(*events.Control); err != nil || string(x.Command) != verb || x.Why != "a test" || x.Who != "" || x.Claimed != localName || x.RequestID != "r-1" {
			t.Errorf("%s wrote %+v, %v", verb, in, err)
		}
	}
	r := ask(t, s, http.MethodPost, path+"/release", `{"reason":"a test","step":"charge","as":"completed","output": null }`)
	_, in, err := events.DecodeInput(events.Controls, &w.written[len(w.written)-1])
	if x := in.(*events.Control); r.status != http.StatusOK || err != nil || x.Command != events.Release || len(x.Output) > 0 && string(x.Output) != "null" {
		t.Errorf("released without an output: %d %s, %+v, %v", r.status, r.body, in, err)
	}
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Reason: "it is processed", State: events.StateProcessed}, nil
	}
	if got := problem(t, ask(t, s, http.MethodPost, path+"/undo", `{"reason":"x"}`), http.StatusConflict); !strings.Contains(got.Detail, "it is processed") {
		t.Error(got.Detail)
	}
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Reason: "unknown"}, nil
	}
	problem(t, ask(t, s, http.MethodPost, api+"/tasks/nobody/undo", `{"reason":"x"}`), http.StatusNotFound)
}

// A repeated submission gets the task's state. Another order with its id is refused. The scheduler ensures that neither
// runs twice.
func TestSubmit(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	var order events.Record
	for _, r := range w.other["waybill.tasks"] {
		if id, _, err := events.DecodeInput(events.Tasks, &r); err == nil && w.tasks[id] != nil {
			order = r
		}
	}
	id, _, err := events.DecodeInput(events.Tasks, &order)
	if err != nil {
		t.Fatal(err)
	}
	r := ask(t, s, http.MethodPost, api+"/tasks", `{"id":`+strconv.Quote(id)+`,"workflow":"order","input":{"other":1}}`)
	problem(t, r, http.StatusConflict)
	r = ask(t, s, http.MethodPost, api+"/tasks", string(order.Value))
	var got consoleapi.Submitted
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != http.StatusCreated || got.ID != id || got.State != w.tasks[id].State ||
		got.AsOf == nil || r.header.Get("Location") != api+"/tasks/"+url.PathEscape(id) {
		t.Errorf("%d %s, %v", r.status, r.body, err)
	}
	readDocument(t).fits(t, http.MethodPost, api+"/tasks", r)
	if w.writes() != 2 {
		t.Errorf("%d records written, want 2", w.writes())
	}
	w.within.indexed = time.Millisecond // nothing indexes this one
	r = ask(t, w.console(t, nil), http.MethodPost, api+"/tasks", `{"id":"..","workflow":"order","input":{}}`)
	if got := r.header.Get("Location"); r.status != http.StatusAccepted && r.status != http.StatusCreated || got != api+"/tasks/%2E%2E" {
		t.Errorf("%d, the task .. is at %q", r.status, got)
	}
}

// A workflow is unknown only after the definitions were read to their end, as for schedulers.
func TestOrderOfAWorkflowThatWasJustApplied(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	submit := func(workflow string) reply { // with the id of another order, which is refused at once if the workflow is known
		return ask(t, s, http.MethodPost, api+"/tasks", `{"id":`+strconv.Quote(w.some(t, events.StateProcessed).ID)+`,"workflow":"`+workflow+`","input":{}}`)
	}
	problem(t, submit("late"), http.StatusUnprocessableEntity)
	w.applied = []Workflow{{Name: "late", Version: 1}}
	problem(t, submit("late"), http.StatusConflict)
	w.unread = errors.New("no broker answers")
	if p := problem(t, submit("later"), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker answers") {
		t.Errorf("%+v", p)
	}
	problem(t, submit("late"), http.StatusConflict)
}

// Alerts of holds come from the index of any console, whatever their topic still has. Alerts without an event come from
// the topic, once.
func TestAlerts(t *testing.T) {
	w := newRecording(t)
	held, open := 0, 0
	for p := range w.partitions {
		for i := range w.records[p] {
			if ceType, _, _ := events.EventName(&w.records[p][i]); ceType == (*events.TaskHeld)(nil).Type() {
				held++
			}
		}
	}
	for _, task := range w.tasks {
		if task.State == events.StateError {
			open++
		}
	}
	of := events.Alert{Code: "bad_definition", Message: "definition x/1 is ignored", At: w.now}
	told := of.Record(events.DefaultNamespace, "test", "definition/x/1")
	told.Time, told.Partition = w.now, 3
	w.other["waybill.alerts"] = []events.Record{told} // the others are older than 30 days and deleted
	consoles := []server{w.console(t, nil), w.console(t, nil)}
	for _, s := range consoles {
		all := get[consoleapi.AlertPage](t, w, s, api+"/alerts", api+"/alerts?since=2000h&limit=1000&min_offset=end")
		if len(all.Alerts) != held+1 || all.Left != 0 || len(all.AsOf) != int(w.partitions) || held == 0 || open == 0 || held == open {
			t.Fatalf("%d alerts and %d more, as of %v, of %d holds, of which %d last", len(all.Alerts), all.Left, all.AsOf, held, open)
		}
		n := 0
		for i, a := range all.Alerts {
			task := w.tasks[a.Task]
			if i > 0 && *a.At > *all.Alerts[i-1].At {
				t.Errorf("%s comes after %s", *a.At, *all.Alerts[i-1].At)
			}
			switch {
			case a.Seq == 0:
				if a.Code != of.Code || a.Partition != 3 || a.EndedAt != nil {
					t.Errorf("%+v", a)
				}
			case a.EndedAt == nil:
				if n++; task.State != events.StateError {
					t.Errorf("%s is open, and the task %s", a.Task, task.State)
				}
			case a.EndedBy == "" || *a.EndedAt < *a.At:
				t.Errorf("%+v", a)
			}
		}
		if n != open {
			t.Errorf("%d alerts are open, of %d held tasks", n, open)
		}
		first := get[consoleapi.AlertPage](t, w, s, api+"/alerts", api+"/alerts?since=2000h&limit=2")
		if len(first.Alerts) != 2 || first.Left != int64(held-1) || *first.Alerts[0].At != *all.Alerts[0].At {
			t.Errorf("%+v, and %d more of %d", first.Alerts, first.Left, held+1)
		}
		if pages := pagesOf(t, w, s, api+"/alerts", "since=2000h", func(l consoleapi.AlertPage) ([]consoleapi.Alert, int64, string) {
			return l.Alerts, l.Left, l.NextPageToken
		}); !reflect.DeepEqual(pages, all.Alerts) {
			t.Errorf("%d alerts page by page, want the %d of one", len(pages), len(all.Alerts))
		}
		if only := get[consoleapi.AlertPage](t, w, s, api+"/alerts", api+"/alerts?open=true&limit=1000"); len(only.Alerts) != open || only.Left != 0 {
			t.Errorf("%d open alerts and %d more, want %d", len(only.Alerts), only.Left, open)
		}
	}
	// Later, closed alerts are only shown on request.
	w.now = w.now.Add(48 * time.Hour)
	if late := get[consoleapi.AlertPage](t, w, consoles[0], api+"/alerts", api+"/alerts?limit=1000"); len(late.Alerts) != open {
		t.Errorf("%d alerts two days later, want the %d open ones", len(late.Alerts), open)
	}
}

// If nothing is known of agents, a task's wait for one is explained without them.
func TestWhyWithoutAgents(t *testing.T) {
	w := newRecording(t)
	w.noAgents = true
	s := w.console(t, nil)
	// All waits are over, so nothing is known about the agents of tasks that were open then.
	w.now = w.now.AddDate(1, 0, 0)
	path := api + "/tasks/" + url.PathEscape(w.some(t, events.StateProcessing).ID) + "/why"
	if why := get[replay.Why](t, w, s, api+"/tasks/{id}/why", path); why.Reason == replay.ReasonNoLiveAgent {
		t.Errorf("an open task: %+v", why)
	}
}
