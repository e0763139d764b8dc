package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

// forgetting is a workflow whose ids are forgotten after a minute.
const forgetting = `
workflow: order
version: 1
complete_within: 1h
on_error: undo
dedupe_for: 1m
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve}
`

// newForgotten returns a system in which a task has ended, and its id can be forgotten since a minute.
func newForgotten(t *testing.T) *family {
	t.Helper()
	f := newFamily(t, forgetting)
	if task := f.submit("again", "order", `{"n":1}`); task.State != events.StateProcessed {
		t.Fatalf("the first task is %s", task.State)
	}
	f.now = f.now.Add(2 * time.Minute)
	return f
}

// TestSubmitReusedID checks that a submission isn't answered by the earlier task of an id that may be forgotten.
func TestSubmitReusedID(t *testing.T) {
	f := newForgotten(t)
	f.within.indexed = 20 * time.Millisecond
	s := f.console(t, nil)
	submit := func(input string) (int, consoleapi.Submitted) {
		t.Helper()
		r := ask(t, s, http.MethodPost, api+"/tasks", `{"id":"again","workflow":"order","input":`+input+`}`)
		readDocument(t).fits(t, http.MethodPost, api+"/tasks", r)
		var got consoleapi.Submitted
		if err := json.Unmarshal([]byte(r.body), &got); err != nil {
			t.Fatal(err)
		}
		return r.status, got
	}
	for _, input := range []string{`{"n":1}`, `{"n":2}`} {
		if status, got := submit(input); status != http.StatusAccepted || got.State != "" || got.AsOf != nil {
			t.Errorf("%s: %d %+v", input, status, got)
		}
	}

	// From here on the index applies the first events of the second task after each submission.
	p := events.Partition([]byte("again"), f.partitions)
	first := len(f.records[p])
	delete(f.tasks, "again")
	f.agent = silentOn("")
	f.submit("again", "order", `{"n":2}`)
	second := projections.Found{Summary: f.tasks["again"].Summary()}
	second.Summary.From = int64(first)
	for i := range f.records[p][first:] {
		second.Places = append(second.Places, projections.Place{Seq: uint64(i + 1), Offset: int64(first + i)})
	}
	var written int
	f.found = func(x *projections.Found) {
		if f.writes() > written {
			x.Summary, x.Places = second.Summary, second.Places
		}
	}
	f.within.indexed = defaultTimeouts.indexed
	s = f.console(t, nil)
	for input, want := range map[string]int{`{"n":1}`: http.StatusConflict, `{"n":2}`: http.StatusCreated} {
		written = f.writes()
		status, got := submit(input)
		if status != want || want == http.StatusCreated && (got.State != events.StateProcessing || got.AsOf == nil) {
			t.Errorf("%s: %d %+v, want %d", input, status, got, want)
		}
	}
}

// TestFateOfReusedID checks that a dead letter isn't said to have become a task that had its id before.
func TestFateOfReusedID(t *testing.T) {
	f := newForgotten(t)
	f.deadSubmission("again", 0, events.ReasonUnknownWorkflow)
	f.now = f.now.Add(-2 * time.Minute)
	f.deadSubmission("again", 1, events.ReasonUnknownWorkflow)
	f.now = f.now.Add(2 * time.Minute)
	page := get[consoleapi.DeadletterPage](t, f.recording, f.console(t, nil), api+"/deadletters", api+"/deadletters")
	want := map[string]string{"0": consoleapi.FateOpen, "1": consoleapi.FateTask}
	for _, d := range page.Deadletters {
		if d.Fate.State != want[d.Offset] {
			t.Errorf("dead letter %s of %s: %+v, want %s", d.Offset, *d.At, d.Fate, want[d.Offset])
		}
		delete(want, d.Offset)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// TestCommandToForgotten: schedulers don't know the task, though it can still be read. The refusal says why.
func TestCommandToForgotten(t *testing.T) {
	f := newForgotten(t)
	f.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Control: x.RequestID, Reason: "unknown_task"}, nil
	}
	s := f.console(t, nil)
	r := ask(t, s, http.MethodPost, api+"/tasks/again/undo", `{"reason":"a test","processed":true}`)
	if p := problem(t, r, http.StatusConflict); !strings.Contains(p.Detail, "forgotten") {
		t.Error(p.Detail)
	}
}
