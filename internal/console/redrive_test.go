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
	"github.com/waybill-run/waybill/internal/redrive"
)

// deadSubmission adds the dead letter of a submission at an offset of partition 1.
func (w *recording) deadSubmission(id string, offset int64, reason events.Reason) events.Record {
	order := (&events.Submission{ID: id, Workflow: "gone", Input: []byte("{}")}).Record(events.DefaultNamespace, "test")
	order.Partition, order.Offset = 2, offset
	letter := events.Deadletter(events.DefaultNamespace, "scheduler", &order, &events.Unusable{Reason: reason})
	letter.Partition, letter.Offset, letter.Time = 1, offset, w.now.Add(-time.Minute)
	w.other[letter.Topic] = append(w.other[letter.Topic], letter)
	return letter
}

// TestRedrive checks which dead letters a request writes again, that a preview writes none, and that a viewer may not.
func TestRedrive(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("viewer vera 0123456789abcdef\noperator olga fedcba9876543210\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := newRecording(t)
	w.other["waybill.deadletters"] = nil
	w.deadSubmission("a", 0, events.ReasonUnknownWorkflow)
	w.deadSubmission("b", 1, events.ReasonIDConflict)
	w.deadSubmission("c", 2, events.ReasonUnknownWorkflow)
	s := w.console(t, tokens)
	const path, olga = api + "/deadletters/redrive", "Authorization: Bearer fedcba9876543210"
	if r := ask(t, s, http.MethodPost, path, `{"reasons":["unknown_workflow"]}`, "Authorization: Bearer 0123456789abcdef"); r.status != http.StatusForbidden {
		t.Errorf("by a viewer: %d %s", r.status, r.body)
	}
	for _, x := range []struct {
		body    string
		status  int
		written int
		says    string
	}{
		{`{}`, http.StatusBadRequest, 0, "select dead letters by"},
		{`{"reasons":["no_such"]}`, http.StatusBadRequest, 0, "one of"},
		{`{"deadletters":["x"]}`, http.StatusBadRequest, 0, "PARTITION/OFFSET"},
		{`{"deadletters":["1/9"]}`, http.StatusNotFound, 0, "no dead letter 1/9"},
		{`{"since":"soon"}`, http.StatusBadRequest, 0, "since"},
		{`{"since":"1s"}`, http.StatusOK, 0, `"selected":0`},
		{`{"reasons":["unknown_workflow"],"preview":true}`, http.StatusOK, 0, `"done":"would_write"`},
		{`{"deadletters":["1/1"]}`, http.StatusOK, 0, `"refused":1`},
		{`{"reasons":["unknown_workflow"]}`, http.StatusOK, 2, `"done":"written"`},
		{`{"deadletters":["1/2"]}`, http.StatusOK, 1, `"task":"c"`},
	} {
		before := w.writes()
		r := ask(t, s, http.MethodPost, path, x.body, olga)
		if n := w.writes() - before; r.status != x.status || n != x.written || !strings.Contains(r.body, x.says) {
			t.Errorf("%s: %d %s; %d written", x.body, r.status, r.body, n)
		}
	}
	_, in, err := events.DecodeInput(events.Tasks, &w.written[len(w.written)-1])
	if order, ok := in.(*events.Submission); err != nil || !ok || order.ID != "c" {
		t.Errorf("written: %+v, %v", in, err)
	}
}

// TestRedriveOfMany checks that a request writes at most redriveMax records, and that a preview counts more.
func TestRedriveOfMany(t *testing.T) {
	w := newRecording(t)
	w.other["waybill.deadletters"] = nil
	for i := range int64(redriveMax + 1) {
		w.deadSubmission("a", i, events.ReasonUnknownWorkflow)
	}
	s := w.console(t, nil)
	const path = api + "/deadletters/redrive"
	before := w.writes()
	if r := ask(t, s, http.MethodPost, path, `{"since":"1h"}`); r.status != http.StatusUnprocessableEntity || w.writes() != before {
		t.Errorf("%d %.200s; %d written", r.status, r.body, w.writes()-before)
	}
	var seen consoleapi.Redriven
	r := ask(t, s, http.MethodPost, path, `{"since":"1h","preview":true}`)
	if err := json.Unmarshal([]byte(r.body), &seen); err != nil || seen.Selected != redriveMax+1 || len(seen.Deadletters) != redriveMax {
		t.Errorf("%v, %d selected, %d listed", err, seen.Selected, len(seen.Deadletters))
	}
}

// TestFateOfDeadletters checks what a list says of dead letters that were written again, and of submissions that became
// tasks.
func TestFateOfDeadletters(t *testing.T) {
	w := newRecording(t)
	w.other["waybill.deadletters"] = nil
	first := w.deadSubmission("lost", 0, events.ReasonUnknownWorkflow)
	again, err := events.Redrive(events.DefaultNamespace, "test", &first)
	if err != nil {
		t.Fatal(err)
	}
	later := events.Deadletter(events.DefaultNamespace, "scheduler", &again, &events.Unusable{Reason: events.ReasonUnknownWorkflow})
	later.Partition, later.Offset, later.Time = 0, 5, w.now.Add(-time.Second)
	w.other[later.Topic] = append(w.other[later.Topic], later)
	task := w.some(t, events.StateProcessed).ID
	w.deadSubmission(task, 1, events.ReasonUnknownWorkflow)
	w.deadSubmission(task, 2, events.ReasonIDConflict)
	s := w.console(t, nil)
	page := get[consoleapi.DeadletterPage](t, w, s, api+"/deadletters", api+"/deadletters")
	want := map[redrive.Position]consoleapi.DeadletterFate{
		{Partition: 1, Offset: 0}: {State: consoleapi.FateRedriven, Deadletter: "0/5"},
		{Partition: 0, Offset: 5}: {State: consoleapi.FateOpen},
		{Partition: 1, Offset: 1}: {State: consoleapi.FateTask, Task: task},
		{Partition: 1, Offset: 2}: {State: consoleapi.FateOpen},
	}
	for _, d := range page.Deadletters {
		at, err := redrive.ParsePosition(strconv.Itoa(int(d.Partition)) + "/" + d.Offset)
		if err != nil || d.Fate != want[at] {
			t.Errorf("%s: %+v, want %+v", at, d.Fate, want[at])
		}
		delete(want, at)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}
