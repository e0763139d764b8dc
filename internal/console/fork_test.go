package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

const forkPath = api + "/tasks/{id}/fork"

// someOrder returns a task of the workflow order in a state.
func (w *recording) someOrder(t *testing.T, state events.TaskState) *events.Task {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(w.tasks)) {
		if task := w.tasks[id]; task.State == state && task.Workflow == "order" {
			return task
		}
	}
	t.Fatalf("no order is %s", state)
	return nil
}

// forked asks for a fork.
func forked(t *testing.T, s server, id, body string) (v consoleapi.Fork) {
	t.Helper()
	r := ask(t, s, http.MethodPost, strings.Replace(forkPath, "{id}", url.PathEscape(id), 1), body)
	if readDocument(t).fits(t, http.MethodPost, forkPath, r); r.status != http.StatusOK {
		t.Fatalf("%s: %d %s", body, r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A fork of the API is that of the CLI (replay.Fork), with the courses aligned. It writes nothing.
func TestFork(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	s := w.console(t, nil)
	for _, state := range []events.TaskState{events.StateProcessed, events.StateUndone} {
		task := w.someOrder(t, state)
		var records []events.Record
		for _, r := range w.records[events.Partition([]byte(task.ID), w.partitions)] {
			if string(r.Key) == task.ID {
				records = append(records, r)
			}
		}
		program, err := workflow.Compile(w.definitions["order/2"])
		if err != nil {
			t.Fatal(err)
		}
		for _, assume := range replay.Assumes {
			want, err := replay.Fork{Program: program, At: 3, Assume: assume}.Run(records)
			if err != nil {
				t.Fatal(err)
			}
			named := forked(t, s, task.ID, fmt.Sprintf(`{"at":3,"version":2,"assume":%q}`, assume))
			given, err := json.Marshal(consoleapi.ForkRequest{At: 3, Definition: string(w.definitions["order/2"].YAML()), Assume: string(assume)})
			if err != nil {
				t.Fatal(err)
			}
			if other := forked(t, s, task.ID, string(given)); encoded(t, named) != encoded(t, other) {
				t.Errorf("%s: by version:\n%s\nby definition:\n%s", task.ID, encoded(t, named), encoded(t, other))
			}
			checkFork(t, &named, want, task)
		}
	}
	if n := w.writes(); n > 0 {
		t.Errorf("%d records were written", n)
	}
}

// checkFork compares an answer with a fork.
func checkFork(t *testing.T, got *consoleapi.Fork, want *replay.Forked, task *events.Task) {
	t.Helper()
	if got.At != want.At || got.LastSeq != task.Seq || got.Forked.State != want.State || got.Recorded.State != task.State || got.Assumed != want.Assumed || got.Stalled != want.Stalled ||
		got.Recorded.Version != task.Version || got.Forked.Version != 2 || encoded(t, got.State.TaskView) != encoded(t, want.View) {
		t.Errorf("%s\nwant %s", encoded(t, got), encoded(t, want))
	}
	var recorded, forked []string
	for i, row := range got.Rows {
		if row.Recorded != nil {
			recorded = append(recorded, encoded(t, row.Recorded))
		}
		if row.Forked != nil {
			forked = append(forked, encoded(t, replay.ForkLine{Line: *row.Forked, Assumed: row.Assumed}))
		}
		if got.PartAt != nil && i < *got.PartAt && (row.Recorded == nil || row.Forked == nil) {
			t.Errorf("row %d: the courses part at row %d", i, *got.PartAt)
		}
	}
	if len(recorded) != len(want.Recorded) || len(forked) != len(want.Forked) || (got.PartAt == nil) != (len(recorded) == len(got.Rows) && len(forked) == len(got.Rows)) {
		t.Fatalf("%d recorded, %d forked, %d rows, parting at %v; want %d and %d", len(recorded), len(forked), len(got.Rows), got.PartAt, len(want.Recorded), len(want.Forked))
	}
	for i := range recorded {
		if recorded[i] != encoded(t, want.Recorded[i]) {
			t.Errorf("recorded event %d: %s", i, recorded[i])
		}
	}
	for i := range forked {
		if forked[i] != encoded(t, want.Forked[i]) {
			t.Errorf("forked event %d: %s", i, forked[i])
		}
	}
}

// A fork that can't be made says why.
func TestForkRefused(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	s := w.console(t, nil)
	task := w.someOrder(t, events.StateProcessed)
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{}`:                                   {http.StatusBadRequest, "give"},
		`{"version":1,"definition":"x"}`:       {http.StatusBadRequest, "one of them"},
		`{"version":-1}`:                       {http.StatusBadRequest, "version"},
		`{"version":7}`:                        {http.StatusNotFound, "there is no version 7"},
		`{"version":2,"assume":"x"}`:           {http.StatusBadRequest, "assume"},
		`{"version":2,"at":9999}`:              {http.StatusUnprocessableEntity, "ends with event"},
		`{"definition":"workflow: order"}`:     {http.StatusUnprocessableEntity, "definition can't be used"},
		`{"version":2,"execute":true}`:         {http.StatusBadRequest, "unknown field"},
		`{"definition":"\u202e\u0000 <b>: {"}`: {http.StatusUnprocessableEntity, "definition can't be used"},
		fmt.Sprintf(`{"definition":%q}`, strings.Replace(string(w.definitions["order/1"].YAML()), "workflow: order", "workflow: other", 1)): {http.StatusUnprocessableEntity, "belongs to workflow order"},
	} {
		p := problem(t, ask(t, s, http.MethodPost, strings.Replace(forkPath, "{id}", url.PathEscape(task.ID), 1), body), want.status)
		if !strings.Contains(p.Detail, want.text) {
			t.Errorf("%s: %s", body, p.Detail)
		}
	}
	problem(t, ask(t, s, http.MethodPost, strings.Replace(forkPath, "{id}", "nobody", 1), `{"version":2}`), http.StatusNotFound)
}

// The events of a fork are bounded. A fork that takes too long is ended.
func TestForkIsBounded(t *testing.T) {
	records := longHistory(t, 4)
	d := definitionOf(t, "workflow: order\nversion: 1\ncomplete_within: 9000h\non_error: hold\nsteps:\n  a: {agent: x, operation: o, complete_within: 1m, retry: {max_attempts: 1000, backoff: 1s}}\n")
	program, err := workflow.Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	f, err := replay.Fork{Program: program, At: 2, Assume: replay.AssumeFailed, MaxEvents: 50}.Run(records)
	if err != nil || f.Stalled != "stopped after 50 events" || len(f.Forked) > 60 {
		t.Errorf("%d events, %q, %v", len(f.Forked), f.Stalled, err)
	}
	asked := 0
	_, err = replay.Fork{Program: program, At: 2, Assume: replay.AssumeFailed, Stop: func() error {
		if asked++; asked > 20 {
			return http.ErrHandlerTimeout
		}
		return nil
	}}.Run(records)
	if !errors.Is(err, http.ErrHandlerTimeout) || asked != 21 {
		t.Errorf("%v after %d inputs", err, asked)
	}
}
