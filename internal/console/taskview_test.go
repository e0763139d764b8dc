package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

// A task as of each of its events, and the changes, are those of a replay.
func TestTaskStates(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for _, state := range []events.TaskState{events.StateProcessed, events.StateUndone, events.StateError} {
		task := w.some(t, state)
		path := api + "/tasks/" + url.PathEscape(task.ID) + "/states"
		p := events.Partition([]byte(task.ID), w.partitions)
		stepper := replay.NewStepper(replay.Until{}, false)
		for i := range w.records[p] {
			r := &w.records[p][i]
			if string(r.Key) != task.ID {
				continue
			}
			want, err := stepper.Add(r)
			if err != nil {
				t.Fatal(err)
			}
			got := get[consoleapi.TaskAtEvent](t, w, s, api+"/tasks/{id}/states", fmt.Sprintf("%s?seq=%d", path, want.Seq))
			if got.Seq != want.Seq || got.LastSeq != task.Seq || got.Event.Type != want.Type || got.Fault != "" || !bytes.Equal(got.Event.Data, r.Value) {
				t.Errorf("%s, event %d: %+v", task.ID, want.Seq, got)
			}
			if encoded(t, got.Changes) != encoded(t, want.Changes) || encoded(t, got.State.TaskView) != encoded(t, stepper.View()) {
				t.Errorf("%s, event %d:\n%s\nwant\n%s", task.ID, want.Seq, encoded(t, got), encoded(t, want))
			}
		}
		if last := get[consoleapi.TaskAtEvent](t, w, s, api+"/tasks/{id}/states", path); last.Seq != task.Seq || last.State.State != state {
			t.Errorf("%s: without a seq it is event %d of %d", task.ID, last.Seq, task.Seq)
		}
		if p := problem(t, ask(t, s, http.MethodGet, fmt.Sprintf("%s?seq=%d", path, task.Seq+1), ""), http.StatusNotFound); !strings.Contains(p.Detail, fmt.Sprintf("its last is %d", task.Seq)) {
			t.Error(p.Detail)
		}
		for _, seq := range []string{"0", "-1", "x", "1.5", "99999999999999999999", "1e3"} {
			problem(t, ask(t, s, http.MethodGet, path+"?seq="+seq, ""), http.StatusBadRequest)
		}
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Users' numbers are passed as they were written, in the state, in the changes and in the event.
func TestTaskStatesHaveUsersNumbers(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateProcessed)
	first := w.first(task.ID)
	const input = `{"a":12345678901234567,"b":5.0,"c":1e400,"<":"</script>"}`
	var value map[string]json.RawMessage
	if err := json.Unmarshal(first.Value, &value); err != nil {
		t.Fatal(err)
	}
	first.Value = bytes.Replace(first.Value, value["input"], []byte(input), 1)
	got := ask(t, w.console(t, nil), http.MethodGet, api+"/tasks/"+url.PathEscape(task.ID)+"/states?seq=1", "")
	if n := strings.Count(got.body, input); n != 3 {
		t.Errorf("the input is there %d times, want 3 (event, change, state):\n%s", n, got.body)
	}
}

// first returns the first event of a task, to be changed.
func (w *recording) first(id string) *events.Record {
	p := events.Partition([]byte(id), w.partitions)
	return &w.records[p][slices.IndexFunc(w.records[p], func(r events.Record) bool { return string(r.Key) == id })]
}

// An unreadable record is a state of its own: it has a fault, and the state before it.
func TestTaskStatesOfAnUnreadableEvent(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateUndone)
	p := events.Partition([]byte(task.ID), w.partitions)
	for i := range w.records[p] {
		if r := &w.records[p][i]; string(r.Key) == task.ID {
			if _, seq, _ := events.EventName(r); seq == 3 {
				w.corruptIn, w.corruption = p, Corruption{From: r.Offset, Next: r.Offset + 1, Err: fmt.Errorf("its checksum is wrong")}
			}
		}
	}
	s := w.console(t, nil)
	path := api + "/tasks/" + url.PathEscape(task.ID)
	for seq, fault := range map[int]string{2: "", 3: "its checksum is wrong", 4: "an event before it"} {
		got := get[consoleapi.TaskAtEvent](t, w, s, api+"/tasks/{id}/states", fmt.Sprintf("%s/states?seq=%d", path, seq))
		if !strings.Contains(got.Fault, fault) || (got.Fault == "") != (fault == "") || got.Seq != uint64(seq) || got.State == nil {
			t.Errorf("event %d: %s", seq, encoded(t, got))
		}
	}
	chain := get[consoleapi.Chain](t, w, s, api+"/tasks/{id}/chain", path+"/chain")
	if chain.Unbroken || len(chain.Faults) == 0 || chain.Faults[0].Seq != 3 || !strings.Contains(chain.Faults[0].What, "its checksum is wrong") {
		t.Errorf("the chain: %s", encoded(t, chain))
	}
	for _, c := range get[consoleapi.CommandList](t, w, s, api+"/tasks/{id}/commands", path+"/commands").Commands {
		if c.Allowed || !strings.Contains(c.Why, "can't be read") {
			t.Errorf("%+v", c)
		}
	}
}

// The chain of every recorded task is unbroken. A changed event breaks it there.
func TestChain(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for id, task := range w.tasks {
		got := get[consoleapi.Chain](t, w, s, api+"/tasks/{id}/chain", api+"/tasks/"+url.PathEscape(id)+"/chain")
		if !got.Unbroken || uint64(got.Events) != task.Seq || got.LastHash != task.Prev || len(got.Unchecked) == 0 || task.State.Terminal() && !got.Sealed {
			t.Errorf("%s", encoded(t, got))
		}
	}
	w = newRecording(t)
	task := w.some(t, events.StateProcessed)
	changed := w.first(task.ID)
	changed.Value = bytes.Replace(changed.Value, []byte(`"input":`), []byte(`"input" :`), 1)
	got := get[consoleapi.Chain](t, w, w.console(t, nil), api+"/tasks/{id}/chain", api+"/tasks/"+url.PathEscape(task.ID)+"/chain")
	if got.Unbroken || len(got.Faults) != 1 || got.Faults[0].Promise != "P2" || got.Faults[0].Seq != 1 || !strings.Contains(got.Faults[0].What, "was changed after it was written") {
		t.Errorf("a changed event: %s", encoded(t, got))
	}
}

// Each command is refused by the task's state, by the caller's role, or by a console that takes none, in this order.
func TestTaskCommands(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, someTokens(t))
	const route = api + "/tasks/{id}/commands"
	held, ended := w.some(t, events.StateError).ID, w.some(t, events.StateUndone).ID
	ask := func(id, token string) consoleapi.CommandList {
		r := ask(t, s, http.MethodGet, strings.Replace(route, "{id}", url.PathEscape(id), 1), "", "Authorization: Bearer "+token)
		readDocument(t).fits(t, http.MethodGet, route, r)
		var l consoleapi.CommandList
		if err := json.Unmarshal([]byte(r.body), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, tt := range []struct {
		id, token, command string
		allowed            bool
		by, role           string
	}{
		{held, operatorToken, "resubmit", true, "", "operator"},
		{held, operatorToken, "cancel", true, "", "operator"},
		{held, viewerToken, "resubmit", false, "role", "operator"},
		{held, submitterToken, "resubmit", false, "role", "operator"},
		{ended, operatorToken, "resubmit", false, "state", "operator"},
		{ended, viewerToken, "resubmit", false, "state", "operator"},
	} {
		l := ask(tt.id, tt.token)
		i := slices.IndexFunc(l.Commands, func(c consoleapi.CommandChoice) bool { return c.Command == tt.command && c.Step == "" && !c.Keep })
		if i < 0 {
			t.Fatalf("no %s: %+v", tt.command, l)
		}
		if c := l.Commands[i]; c.Allowed != tt.allowed || c.RefusedBy != tt.by || c.Role != tt.role || (c.Why == "") != tt.allowed {
			t.Errorf("%s of a task that is %s, for %s: %+v", tt.command, l.State, tt.token, c)
		}
	}
	c := configured(t, func(cfg *Config) { cfg.Tokens, cfg.LoopbackOperator = nil, false })
	var l consoleapi.CommandList
	if err := json.Unmarshal(answers(c, http.MethodGet, strings.Replace(route, "{id}", url.PathEscape(held), 1), "127.0.0.1:1").Body.Bytes(), &l); err != nil {
		t.Fatal(err)
	}
	for _, c := range l.Commands {
		if c.Allowed || c.RefusedBy != "state" && (c.RefusedBy != "read_only" || !strings.Contains(c.Why, "--allow-loopback-operator")) {
			t.Errorf("at a read-only console: %+v", c)
		}
	}
	tokens, err := ParseTokens(strings.NewReader("operator olga 0123456789abcdef\nundo_processed una fedcba9876543210\n"))
	if err != nil {
		t.Fatal(err)
	}
	s = w.console(t, tokens)
	for token, allowed := range map[string]bool{"0123456789abcdef": false, "fedcba9876543210": true} {
		for _, c := range ask(w.some(t, events.StateProcessed).ID, token).Commands {
			if c.Command == "undo" && (!c.Processed || c.Allowed != allowed || c.Role != "undo_processed") {
				t.Errorf("undo of a processed task: %+v", c)
			}
		}
	}
}

// The answer has the caller's name and all of his roles.
func TestWhoAmI(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, someTokens(t))
	for token, want := range map[string]string{
		viewerToken:   `{"name":"vera","by":"token","role":"viewer","roles":["viewer"]}`,
		operatorToken: `{"name":"olga","by":"token","role":"operator","roles":["viewer","signaller","submitter","operator"]}`,
	} {
		r := ask(t, s, http.MethodGet, api+"/whoami", "", "Authorization: Bearer "+token)
		if readDocument(t).fits(t, http.MethodGet, api+"/whoami", r); strings.TrimSpace(r.body) != want {
			t.Errorf("%s, want %s", r.body, want)
		}
	}
	problem(t, ask(t, s, http.MethodGet, api+"/whoami", ""), http.StatusUnauthorized)
	me := get[consoleapi.WhoAmI](t, w, w.console(t, nil), api+"/whoami", api+"/whoami")
	if me.By != "local" || me.Role != "undo_processed" || len(me.Roles) != 5 || me.ReadOnly != "" {
		t.Errorf("%+v", me)
	}
	c := configured(t, func(cfg *Config) { cfg.Tokens, cfg.LoopbackOperator, cfg.File = nil, false, "orders.jsonl" })
	if body := answers(c, http.MethodGet, api+"/whoami", "127.0.0.1:1").Body.String(); !strings.Contains(body, `"file":"orders.jsonl"`) || !strings.Contains(body, `"read_only":"this console is read-only: it serves the file orders.jsonl"`) {
		t.Error(body)
	}
	if w := answers(c, http.MethodPost, api+"/tasks/nobody/undo", "127.0.0.1:1"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "serves the file") {
		t.Errorf("a command to a file is answered with %d %s", w.Code, w.Body)
	}
}

// longHistory returns n events of a task whose step is retried again and again.
func longHistory(b testing.TB, n int) []events.Record {
	b.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	plan := events.NewPlan("hold", time.Hour*9000, []events.PlanStep{{ID: "a", Agent: "x", Operation: "o", Attempts: events.Attempts{CompleteWithin: time.Hour, MaxAttempts: n}}})
	var f events.Fold
	records := make([]events.Record, 0, n)
	for len(records) < n {
		at = at.Add(time.Second)
		e := &events.Event{Task: "t", Seq: uint64(len(records) + 1), At: at, Cause: events.Cause{Inbox: events.Tasks, Offset: int64(len(records))}, Epoch: 1}
		attempt := len(records) / 2
		switch {
		case len(records) == 0:
			e.Fact = &events.TaskReceived{Workflow: "order", Version: 1, Input: []byte(`{"a":1}`), Plan: plan}
		case len(records) == 1:
			e.Due, e.Fact = at.Add(time.Hour*9000), &events.TaskStarted{}
			e.Policy = f.Task.TaskPolicy(e.Due)
		case len(records)%2 == 0:
			e.Due, e.Fact = at.Add(time.Hour), &events.AttemptStarted{Kind: events.Do, Step: "a", Attempt: attempt, Key: "k", Input: []byte(`{}`)}
			e.Policy = &events.Policy{}
		default:
			e.Fact = &events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: attempt, Error: &events.Error{Code: "no"}}
			e.Due, e.Policy = at, &events.Policy{}
		}
		if f.Task != nil {
			e.Prev = f.Task.Prev
		}
		r := e.Record(events.DefaultNamespace, "test", 0, e.Seal(f.Task))
		r.Offset, r.Time = int64(len(records)), at
		if _, err := f.Add(&r); err != nil {
			b.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}
