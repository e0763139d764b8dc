package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

// posted sends a body to a route of the OpenAPI document, and decodes the answer.
func posted[T any](t *testing.T, s server, path string, body any, status int, headers ...string) (v T) {
	t.Helper()
	r := ask(t, s, http.MethodPost, api+path, encoded(t, body), headers...)
	if readDocument(t).fits(t, http.MethodPost, api+path, r); r.status != status {
		t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A definition with faults is answered with their places. One without is compared with the newest version. Nothing is written.
func TestValidate(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	w.applied = []Workflow{{Name: "order", Version: 2}}
	s := w.console(t, nil)
	two := string(w.definitions["order/2"].YAML())
	check := func(text string) consoleapi.DefinitionCheck {
		t.Helper()
		return posted[consoleapi.DefinitionCheck](t, s, "/workflows/validate", consoleapi.DefinitionDraft{Definition: text}, http.StatusOK)
	}
	wrong := check("workflow: order\nversion: 3\ncomplete_within: 1h\nsteps:\n  a: {agent: x, operation: o, complete_within: 1m, needs: [b]}\n  c: {agnt: x}\n")
	if len(wrong.Faults) < 2 || wrong.Definition != nil || wrong.Diff != nil || !slices.ContainsFunc(wrong.Faults, func(f consoleapi.DefinitionFault) bool {
		return f.Line == 6 && f.Column > 0 && strings.HasPrefix(f.Path, "steps.c") && f.What != ""
	}) {
		t.Errorf("faults: %+v", wrong.Faults)
	}
	if of := check("["); len(of.Faults) != 1 || of.Faults[0].Line != 1 {
		t.Errorf("no YAML: %+v", of.Faults)
	}
	three := check(strings.Replace(two, "version: 2", "version: 3", 1))
	if len(three.Faults) > 0 || three.Applied != "no" || three.NextVersion != 3 || three.Definition.Version != 3 || len(three.Definition.Graph.Steps) != 4 ||
		three.Diff.From != 2 || three.Diff.To != 3 || len(three.Diff.Changes) != 1 || three.Diff.Changes[0].Path != "version" {
		t.Errorf("a new version: %s", encoded(t, three))
	}
	if of := check(two); of.Applied != "same" || len(of.Diff.Changes) != 0 {
		t.Errorf("the same: %s", encoded(t, of))
	}
	if of := check(strings.Replace(two, "complete_within: 1h", "complete_within: 2h", 1)); of.Applied != "other" || of.NextVersion != 3 {
		t.Errorf("another body: %s", encoded(t, of))
	}
	if of := check(string(w.definitions["order/1"].JSON())); len(of.Faults) > 0 || of.Applied != "same" {
		t.Errorf("JSON: %s", encoded(t, of))
	}
	problem(t, ask(t, s, http.MethodPost, api+"/workflows/validate", encoded(t, consoleapi.DefinitionDraft{Definition: strings.Repeat("x", bodyMaxBytes)})), http.StatusRequestEntityTooLarge)
	if n := w.writes(); n > 0 {
		t.Errorf("%d records were written", n)
	}
}

// An operator applies a definition once. Another body is refused, and the answer says which version is free. Other roles, and
// definitions with faults, apply nothing.
func TestApply(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	s := w.console(t, someTokens(t))
	path := api + "/workflows"
	body := consoleapi.ApplyCommand{Definition: strings.Replace(string(w.definitions["order/2"].YAML()), "version: 2", "version: 3", 1), Reason: "a test"}
	for _, token := range []string{viewerToken, submitterToken} {
		problem(t, ask(t, s, http.MethodPost, path, encoded(t, body), bearer+token), http.StatusForbidden)
	}
	for text, status := range map[string]int{`{"definition":"workflow: x","reason":"y"}`: http.StatusUnprocessableEntity, `{"definition":"workflow: x"}`: http.StatusBadRequest} {
		problem(t, ask(t, s, http.MethodPost, path, text, bearer+operatorToken), status)
	}
	if w.writes() != 0 {
		t.Fatal("a refused request wrote")
	}
	for _, want := range []struct {
		result string
		status int
	}{{consoleapi.ResultApplied, http.StatusCreated}, {consoleapi.ResultUnchanged, http.StatusOK}} {
		if done := posted[consoleapi.AppliedDefinition](t, s, "/workflows", body, want.status, bearer+operatorToken); done.Result != want.result || done.Version != 3 || len(done.Agents) == 0 {
			t.Errorf("%+v", done)
		}
	}
	if w.writes() != 1 || string(w.written[0].Value) != "olga||a test" {
		t.Errorf("%d records are written, the first: %q", w.writes(), w.written[0].Value)
	}
	body.Definition = strings.Replace(body.Definition, "complete_within: 1h", "complete_within: 2h", 1)
	if p := problem(t, ask(t, s, http.MethodPost, path, encoded(t, body), bearer+operatorToken), http.StatusConflict); !strings.Contains(p.Detail, "version: 4") || p.Type != consoleapi.ProblemTypes+"version_exists" {
		t.Errorf("%+v", p)
	}
}

// A dry run says of each task what `replay plan` says of it. It writes nothing.
func TestDryRun(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	s := w.console(t, nil)
	program, err := workflow.Compile(w.definitions["order/2"])
	if err != nil {
		t.Fatal(err)
	}
	ends := map[events.TaskState]int{events.StateProcessed: 0, events.StateUndone: 0, events.StateCancelled: 0}
	want := consoleapi.DryRun{}
	plan := replay.Plan{Program: program, Assume: replay.AssumeCompleted}
	for id, task := range w.tasks {
		if _, ended := ends[task.State]; !ended || task.Workflow != "order" {
			continue
		}
		o, err := plan.Evaluate(w.recordsOf(id))
		switch {
		case err != nil:
			want.LeftOff++
		case o.Changed || o.Stalled != "":
			want.Differ++
		default:
			want.Same++
		}
	}
	body := consoleapi.DryRunCommand{Definition: string(w.definitions["order/2"].YAML()), Limit: dryRunTasksMax}
	got := posted[consoleapi.DryRun](t, s, "/workflows/dry-run", body, http.StatusOK)
	sum, refused := 0, 0
	for _, d := range got.Differences {
		sum += d.Tasks
		if len(d.Samples) == 0 || d.Event == "" && d.Stalled == "" {
			t.Errorf("%+v", d)
		}
	}
	for _, l := range got.LeftOut {
		refused += l.Tasks
	}
	if got.Same != want.Same || got.Differ != want.Differ || refused != want.LeftOff || sum != got.Differ || got.Tasks != got.Same+got.Differ || got.More || got.Differ == 0 {
		t.Errorf("%s\nwant %d the same, %d others, %d left out", encoded(t, got), want.Same, want.Differ, want.LeftOff)
	}
	sample := got.Differences[0].Samples[0]
	f := forked(t, s, sample.Task, encoded(t, consoleapi.ForkRequest{At: sample.At, Definition: body.Definition}))
	if f.PartAt == nil {
		t.Errorf("the fork of sample %+v has one course", sample)
	}
	body.Limit = 2
	if few := posted[consoleapi.DryRun](t, s, "/workflows/dry-run", body, http.StatusOK); few.Tasks > 2 || !few.More {
		t.Errorf("%+v", few)
	}
	body.Filter, body.Limit = "state:undone", 0
	if undone := posted[consoleapi.DryRun](t, s, "/workflows/dry-run", body, http.StatusOK); undone.Tasks == 0 || undone.Tasks >= got.Tasks {
		t.Errorf("%+v", undone)
	}
	for _, refused := range []string{`{"definition":"workflow: x"}`, encoded(t, consoleapi.DryRunCommand{Definition: body.Definition, Limit: dryRunTasksMax + 1}),
		encoded(t, consoleapi.DryRunCommand{Definition: body.Definition, Filter: "workflow:other"}), encoded(t, consoleapi.DryRunCommand{Definition: body.Definition, Assume: "x"})} {
		if r := ask(t, s, http.MethodPost, api+"/workflows/dry-run", refused); r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity {
			t.Errorf("%.80s: %d %s", refused, r.status, r.body)
		}
	}
	if n := w.writes(); n > 0 {
		t.Errorf("%d records were written", n)
	}
}

// An open task is simulated under its own definition, too. If that isn't known, the task is left out.
func TestDryRunOfOpenTasks(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	two := string(w.definitions["order/2"].YAML())
	task := w.someOrder(t, events.StateProcessed)
	p := events.Partition([]byte(task.ID), w.partitions)
	cut := w.last(task.ID).Offset
	w.records[p] = slices.DeleteFunc(slices.Clone(w.records[p]), func(r events.Record) bool { return r.Offset == cut })
	s := w.console(t, nil)
	body := consoleapi.DryRunCommand{Definition: two, Filter: "state:pending,processing id:" + task.ID}
	if got := posted[consoleapi.DryRun](t, s, "/workflows/dry-run", body, http.StatusOK); got.Tasks != 1 || got.Differ != 1 || got.Differences[0].In != "then" || got.Differences[0].Step != "pack" {
		t.Errorf("%s", encoded(t, got))
	}
	w.mu.Lock()
	delete(w.definitions, "order/1")
	w.mu.Unlock()
	if got := posted[consoleapi.DryRun](t, s, "/workflows/dry-run", body, http.StatusOK); got.Tasks != 0 || len(got.LeftOut) != 1 || got.LeftOut[0].Why != "definition" {
		t.Errorf("%s", encoded(t, got))
	}
}

// A dry run that takes too long says which tasks it left out.
func TestDryRunBounds(t *testing.T) {
	r := &dryRunner{out: &consoleapi.DryRun{}}
	for i := range 7 {
		r.leaveOut("events", string(rune('a'+i)), "")
	}
	for i := range dryRunKindsMax + 3 {
		for range i + 1 {
			r.add(&replay.Outlook{Task: "t", At: 1, Changed: true, First: &events.Line{Type: "waybill.step.started.v1", Step: strings.Repeat("s", i+1)}, FirstIn: "then"})
		}
	}
	r.finish()
	if l := r.out.LeftOut[0]; l.Tasks != 7 || len(l.Samples) != dryRunSamplesMax {
		t.Errorf("%+v", l)
	}
	if d := r.out.Differences[0]; len(r.out.Differences) != dryRunKindsMax || r.out.LeftOff != 3 || d.Tasks != dryRunKindsMax+3 || len(d.Samples) != dryRunSamplesMax {
		t.Errorf("%d differences, %d left off, the first %+v", len(r.out.Differences), r.out.LeftOff, d)
	}
}

// recordsOf returns the events of a task.
func (w *recording) recordsOf(id string) (list []events.Record) {
	for _, r := range w.records[events.Partition([]byte(id), w.partitions)] {
		if string(r.Key) == id {
			list = append(list, r)
		}
	}
	return list
}
