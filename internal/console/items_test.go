package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

const pickEach = `
workflow: pick
version: 1
complete_within: 1h
on_error: undo
defaults: {complete_within: 10s}
steps:
  pick:
    for_each: "${ input.items }"
    max_parallel: 3
    on_item_error: collect
    agent: stock
    operation: pick
    input: {sku: "${ item }"}
    undo: {operation: put_back}
  ship: {needs: [pick], agent: stock, operation: ship}
`

// trips books each of a list by a child with an id of its own.
const trips = `
workflow: trips
version: 1
complete_within: 1h
on_error: undo
steps:
  book:
    for_each: "${ input.places }"
    workflow: booking
    id: "${ task.id }-${ item }"
    input: {place: "${ item }"}
`

const booking = `
workflow: booking
version: 1
complete_within: 1h
on_error: undo
defaults: {complete_within: 10s}
steps:
  hold: {agent: stock, operation: hold, input: {place: "${ input.place }"}, undo: {operation: release}}
  pay: {needs: [hold], agent: stock, operation: pay, input: {place: "${ input.place }"}}
`

const outer = `
workflow: outer
version: 1
complete_within: 1h
on_error: undo
steps:
  all: {workflow: trips, input: {places: "${ input.places }"}}
`

func (f *family) listed(s *httptest.Server, filter string) string {
	f.t.Helper()
	page := get[consoleapi.TaskPage](f.t, f.recording, s, api+"/tasks", api+"/tasks?filter="+url.QueryEscape(filter))
	ids := []string{}
	for _, x := range page.Tasks {
		ids = append(ids, x.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func (f *family) items(s *httptest.Server, task, step, query string) (list []events.ItemView, next string) {
	f.t.Helper()
	path := fmt.Sprintf("%s/tasks/%s/steps/%s/items?%s", api, url.PathEscape(task), step, query)
	page := get[consoleapi.ItemPage](f.t, f.recording, s, api+"/tasks/{id}/steps/{step}/items", path)
	return page.Items, page.NextPageToken
}

// silentOn answers all requests but those whose input has a text.
func silentOn(text string) func(string, json.RawMessage) (events.Outcome, string) {
	return func(_ string, value json.RawMessage) (events.Outcome, string) {
		switch {
		case strings.Contains(string(value), text):
			return "", ""
		case strings.Contains(string(value), "bad"):
			return events.Rejected, `{"code":"gone","message":"none left"}`
		}
		return events.Completed, string(value)
	}
}

// TestItemsRoute checks the list of items: states, tasks, errors, pages and the filter by state.
func TestItemsRoute(t *testing.T) {
	f := newFamily(t, pickEach)
	f.agent = silentOn("slow")
	f.submit("p-1", "pick", `{"items":["a","bad1","slow1","b","bad2","slow2","slow3","never"]}`)
	s := f.console(t, nil)
	all, next := f.items(s, "p-1", "pick", "")
	var states []string
	for i, x := range all {
		states = append(states, string(x.State))
		if id := fmt.Sprintf("p-1/pick/%d", i); x.Index != i || x.State != events.StepPending && x.Task != id || x.State == events.StepPending && x.Task != "" {
			t.Errorf("item %d: %+v", i, x)
		}
		if (x.Error != nil) != (x.State == events.StepError) {
			t.Errorf("item %d: %+v", i, x)
		}
	}
	if got := strings.Join(states, " "); got != "completed error running completed error running running pending" || next != "" {
		t.Errorf("%s, %q", got, next)
	}
	one, next := f.items(s, "p-1", "pick", "page_size=1&state=error")
	two, end := f.items(s, "p-1", "pick", "page_size=1&state=error&page_token="+url.QueryEscape(next))
	if len(one) != 1 || one[0].Index != 1 || len(two) != 1 || two[0].Index != 4 || two[0].Error.Code != "gone" || end != "" {
		t.Errorf("%+v, %+v, %q", one, two, end)
	}
	for path, status := range map[string]int{"pick/items?state=bogus": http.StatusBadRequest, "pick/items?state=running&page_token=" + url.QueryEscape(next): http.StatusBadRequest, "none/items": http.StatusNotFound} {
		problem(t, ask(t, s, http.MethodGet, api+"/tasks/p-1/steps/"+path, ""), status)
	}
}

// TestItemsWithOwnIDs checks that children of a fan-out whose definition gives them ids are named by these.
func TestItemsWithOwnIDs(t *testing.T) {
	f := newFamily(t, trips, booking)
	f.agent = silentOn("slow")
	f.submit("t-1", "trips", `{"places":["oslo","slow"]}`)
	s := f.console(t, nil)
	list, _ := f.items(s, "t-1", "book", "")
	if len(list) != 2 || list[0].Task != "t-1-oslo" || list[1].Task != "t-1-slow" {
		t.Errorf("%+v", list)
	}
	w := f.why(s, "t-1")
	if len(w.Causes) != 1 || w.Causes[0].Task != "t-1-slow" || w.Causes[0].Reason != replay.ReasonAtWork || w.Causes[0].Step != "hold" {
		t.Errorf("%+v", w)
	}
	delete(f.definitions, "trips/1")
	if list, _ := f.items(f.console(t, nil), "t-1", "book", ""); list[0].Task != "" {
		t.Errorf("without the definition it is %+v", list)
	}
}

func (f *family) why(s *httptest.Server, task string) replay.Why {
	f.t.Helper()
	return get[replay.Why](f.t, f.recording, s, api+"/tasks/{id}/why", api+"/tasks/"+url.PathEscape(task)+"/why?min_offset=end")
}

// TestWhyFollowsChildren checks the way down from a task to the cause: of one that waits, of one that was undone because of
// a child, and of items.
func TestWhyFollowsChildren(t *testing.T) {
	f := newFamily(t, outer, trips, booking, pickEach)
	f.agent = silentOn("slow")
	f.submit("o-1", "outer", `{"places":["oslo","slow"]}`)
	f.submit("o-2", "outer", `{"places":["oslo","bad"]}`)
	f.submit("p-1", "pick", `{"items":["bad1","slow1","a","bad2"]}`)
	if state := f.tasks["o-2"].State; state != events.StateUndone {
		t.Fatalf("o-2 is %s", state)
	}
	s := f.console(t, nil)
	way := func(w replay.Why) string {
		text := fmt.Sprintf("%s %s", w.Task, w.Reason)
		for _, c := range w.Causes {
			text += fmt.Sprintf(" > %s %s %s", c.Task, c.Reason, c.Step)
		}
		return text + w.Cut
	}
	if got := way(f.why(s, "o-1")); got != "o-1 waiting_child > o-1/all waiting_items book > o-1/all-slow at_work hold" {
		t.Error(got)
	}
	ended := f.why(s, "o-2")
	if got := way(ended); got != "o-2 ended > o-2/all ended  > o-2/all-bad ended " {
		t.Error(got)
	}
	if last := ended.Causes[len(ended.Causes)-1]; last.Error == nil || last.Error.Code != "gone" || last.Error.Step != "hold" || *last.Item != 1 {
		t.Errorf("%+v", last)
	}
	w := f.why(s, "p-1")
	items := w.Steps[0].Items
	want := replay.ItemsWhy{Count: 4, Running: 1, Completed: 1, Failed: 2, Errors: []replay.ItemsError{{Code: "gone", Count: 2, Item: 0, Task: "p-1/pick/0", Message: "none left"}}}
	if items == nil || encoded(t, items) != encoded(t, want) || way(w) != "p-1 waiting_items > p-1/pick/1 at_work pick" {
		t.Errorf("%s\n%s", way(w), encoded(t, items))
	}
	// A console that hasn't read the child's partition says so.
	read := []int32{events.Partition([]byte("o-1"), f.partitions)}
	if w := f.why(f.console(t, nil, read...), "o-1"); len(w.Causes) == 0 && w.Cut == "" {
		t.Errorf("nothing is said of o-1/all: %+v", w)
	}
}

// TestTree checks the tree of a task, its lines, and what its bounds leave out.
func TestTree(t *testing.T) {
	f := newFamily(t, outer, trips, booking)
	f.agent = silentOn("slow")
	f.submit("o-1", "outer", `{"places":["oslo","rome","bad"]}`)
	s := f.console(t, nil)
	tree := func(query string) consoleapi.TaskTree {
		return get[consoleapi.TaskTree](t, f.recording, s, api+"/tasks/{id}/tree", api+"/tasks/o-1/tree?min_offset=end"+query)
	}
	v := tree("&lines=true")
	var shape []string
	count := 0
	for _, n := range v.Tasks {
		shape = append(shape, fmt.Sprintf("%d:%s:%s", n.Depth, n.Task, n.State))
		count += n.Events
	}
	if got := strings.Join(shape, " "); got != "0:o-1:undone 1:o-1/all:undone 2:o-1/all-oslo:undone 2:o-1/all-rome:undone 2:o-1/all-bad:undone" {
		t.Error(got)
	}
	if v.Left != 0 || len(v.Lines) != count {
		t.Errorf("%d lines of %d events, %d left out", len(v.Lines), count, v.Left)
	}
	seqs := map[string]uint64{}
	for i, l := range v.Lines {
		if i > 0 && l.At < v.Lines[i-1].At || l.Seq != seqs[l.Task]+1 {
			t.Errorf("line %d: %+v", i, l)
		}
		seqs[l.Task] = l.Seq
	}
	if v = tree("&items=1"); len(v.Tasks) != 3 || v.Tasks[2].Task != "o-1/all-bad" || v.Left != 2 || len(v.Lines) != 0 ||
		len(v.More) != 1 || v.More[0] != (consoleapi.TreeMore{Task: "o-1/all", Step: "book", Count: 2, Items: true}) {
		t.Errorf("%+v", v)
	}
	if v = tree("&items=1&lines=true"); len(v.Lines) != v.Tasks[0].Events+v.Tasks[1].Events-v.Tasks[1].LeftOut+v.Tasks[2].Events || v.Tasks[1].LeftOut == 0 {
		t.Errorf("%d lines of %+v", len(v.Lines), v.Tasks)
	}
	if v = tree("&page_size=1"); len(v.Tasks) != 1 || v.Left != 1 || v.More[0].Step != "all" {
		t.Errorf("%+v", v)
	}
	for _, query := range []string{"items=0", "items=1001", "lines=perhaps"} {
		problem(t, ask(t, s, http.MethodGet, api+"/tasks/o-1/tree?"+query, ""), http.StatusBadRequest)
	}
	problem(t, ask(t, s, http.MethodGet, api+"/tasks/none/tree", ""), http.StatusNotFound)
}

// TestNoPredictionWhileAnItemIsHeld checks that no end is predicted of a task that can't end without an operator: neither in
// the task nor in the list of tasks that must end soon.
func TestNoPredictionWhileAnItemIsHeld(t *testing.T) {
	hold := strings.NewReplacer("on_item_error: collect", "on_item_error: fail", "on_error: undo", "on_error: hold")
	const order = "\nworkflow: order\nversion: 1\ncomplete_within: 1h\non_error: undo\nsteps:\n  book: {workflow: booking, input: {place: '${ input.place }'}}\n"
	f := newFamily(t, hold.Replace(pickEach), hold.Replace(booking), order)
	f.agent = silentOn("slow")
	f.submit("p-0", "pick", `{"items":["a"]}`)
	f.submit("p-1", "pick", `{"items":["a","slow1"]}`)
	f.submit("p-2", "pick", `{"items":["a","slow1","bad1"]}`)
	f.submit("o-0", "order", `{"place":"oslo"}`)
	f.submit("o-1", "order", `{"place":"slow"}`)
	f.submit("o-2", "order", `{"place":"bad"}`)
	s := f.console(t, nil)
	listed := map[string]bool{}
	list := get[consoleapi.PredictionList](t, f.recording, s, api+"/predictions", api+"/predictions?within=2h")
	for _, task := range list.Tasks {
		listed[task.ID] = task.Prediction != nil
	}
	want := map[string]bool{"p-1": true, "p-2": false, "o-1": true, "o-1/book": true, "o-2": false}
	for id, predicted := range want {
		v := get[consoleapi.Task](t, f.recording, s, api+"/tasks/{id}", api+consoleapi.TaskPath(id))
		if v.State != events.StateProcessing || (v.Prediction != nil) != predicted {
			t.Errorf("%s is %s, predicted: %+v", id, v.State, v.Prediction)
		}
	}
	if !maps.Equal(listed, want) || list.Unpredicted != 2 {
		t.Errorf("in the list of predictions %v, want %v; %d have none", listed, want, list.Unpredicted)
	}
}

// TestAsOfHidesItems checks that a past instant and the predictions have no tasks of items, except held ones, and that
// the filter by their parent has all.
func TestAsOfHidesItems(t *testing.T) {
	f := newFamily(t, strings.NewReplacer("on_item_error: collect", "on_item_error: fail", "on_error: undo", "on_error: hold").Replace(pickEach))
	f.agent = silentOn("slow")
	f.submit("p-1", "pick", `{"items":["a","bad1","slow1"]}`)
	before := f.now
	f.decide((&events.Control{Task: "p-1/pick/2", Command: events.Cancel, By: events.By{Why: "x", RequestID: "r"}}).Record(f.env.Namespace, "test"))
	f.run()
	for id, state := range map[string]events.TaskState{"p-1/pick/0": events.StateProcessed, "p-1/pick/1": events.StateError, "p-1/pick/2": events.StateUndoing} {
		if f.tasks[id].State != state {
			t.Fatalf("%s is %s, want %s", id, f.tasks[id].State, state)
		}
	}
	s := f.console(t, nil)
	for _, at := range []time.Time{before, f.now} { // of the canceled item, one needs the events, the other one the row
		want := f.replayAt(at)
		if len(want.Tasks) != 2 || want.States[events.StateProcessing] != 1 || want.States[events.StateError] != 1 {
			t.Errorf("%s, by a replay: %s", at, encoded(t, want))
		}
		for filter, n := range map[string]int{"": 2, "state:processed": 0, "state:error": 1, "parent:p-1": 2, "parent:p-1 state:processed": 1} {
			got := get[consoleapi.SystemAsOf](t, f.recording, s, api+"/as-of", asOfPath(at, "&filter="+url.QueryEscape(filter)))
			if got.Open != 2 || encoded(t, got.States) != encoded(t, want.States) || got.Matched != n || len(got.Tasks) != n {
				t.Errorf("%s, %q: %s, want %d tasks", at, filter, encoded(t, got), n)
			}
		}
	}
	if got := get[consoleapi.PredictionList](t, f.recording, s, api+"/predictions", api+"/predictions?within=2h"); got.Looked != 1 {
		t.Errorf("predicted: %s", encoded(t, got))
	}
}
