package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// TestSignal checks that a signal is written with the name of its token, by who may send signals and no more.
func TestSignal(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("viewer vera 0123456789abcdef\nsignaller sam fedcba9876543210\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := newRecording(t)
	s := w.console(t, tokens)
	const path, body = api + "/tasks/t-1/signals/approved", `{"data":{"yes":true},"id":"click-1","by":"alice"}`
	if r := ask(t, s, http.MethodPost, path, body, "Authorization: Bearer 0123456789abcdef"); r.status != http.StatusForbidden {
		t.Errorf("by a viewer: %d %s", r.status, r.body)
	}
	before := w.writes()
	r := ask(t, s, http.MethodPost, path, body, "Authorization: Bearer fedcba9876543210")
	if r.status != http.StatusAccepted || w.writes() != before+1 || !strings.Contains(r.body, `"id":"click-1"`) {
		t.Fatalf("%d %s; %d written", r.status, r.body, w.writes()-before)
	}
	_, in, err := events.DecodeInput(events.Signals, &w.written[before])
	if x, ok := in.(*events.Signal); err != nil || !ok || x.By != "sam" || x.Claimed != "alice" || string(x.Data) != `{"yes":true}` || x.Name != "approved" {
		t.Errorf("%+v, %v", in, err)
	}
	if r := ask(t, s, http.MethodPost, api+"/tasks/t-1/undo", `{"reason":"x"}`, "Authorization: Bearer fedcba9876543210"); r.status != http.StatusForbidden {
		t.Errorf("a command by a signaller: %d %s", r.status, r.body)
	}
}

// TestWaitingSignals checks that a task names the signals that it waits for, and none once its undo has begun.
func TestWaitingSignals(t *testing.T) {
	step := func(state events.StepState) *events.Step { return &events.Step{Run: events.Run{State: state}} }
	plan := &events.Plan{Steps: []events.PlanStep{
		{ID: "a", StepKind: events.SignalStep, Signal: "approved"}, {ID: "b", StepKind: events.SignalStep, Signal: "approved"},
		{ID: "c", StepKind: events.SignalStep, Signal: "paid"}, {ID: "d"}}}
	for state, want := range map[events.TaskState]string{events.StateProcessing: `"waiting_signals":["approved"]`, events.StateError: `"waiting_signals":["approved"]`, events.StateUndoing: ""} {
		task := &events.Task{ID: "t-1", State: state, Plan: plan,
			Steps: []*events.Step{step(events.StepRunning), step(events.StepRunning), step(events.StepPending), step(events.StepRunning)}}
		text, err := json.Marshal(&consoleapi.Task{TaskView: task.View("", 0, 0)})
		if err != nil || !strings.Contains(string(text), want) || want == "" && strings.Contains(string(text), "waiting_signals") {
			t.Errorf("%s: %s, %v", state, text, err)
		}
	}
}
