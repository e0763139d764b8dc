package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

// definitionOf parses a definition.
func definitionOf(t testing.TB, text string) *workflow.Definition {
	t.Helper()
	d, err := workflow.ParseYAML("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// applyOrders adds two versions of the recorded workflow order to what the cluster has.
func (w *recording) applyOrders(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile("../../workflow/order.yaml")
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(text), "version: 1", "version: 2", 1)
	two = strings.Replace(two, "complete_within: 30m", "complete_within: 1h", 1)
	two = strings.Replace(two, "  ship:\n    needs: [charge]", "  pack: {agent: shipping, operation: pack, needs: [charge]}\n  ship:\n    needs: [pack]", 1)
	w.definitions = map[string]*workflow.Definition{"order/1": definitionOf(t, string(text)), "order/2": definitionOf(t, two)}
}

func (w *recording) Definition(name string, version int) (*workflow.Definition, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if version == w.deleted {
		return w.definitions[events.DefinitionKey(name, version)], true
	}
	return w.definitions[events.DefinitionKey(name, version)], false
}

// A version of a workflow has its source, its steps and a layout. Its source gives the same definition.
func TestDefinition(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	w.deleted = 2
	s := w.console(t, nil)
	for version := 1; version <= 2; version++ {
		want := w.definitions[fmt.Sprintf("order/%d", version)]
		got := get[consoleapi.Definition](t, w, s, api+"/workflows/{name}/{version}", fmt.Sprintf("%s/workflows/order/%d", api, version))
		again := definitionOf(t, got.Source)
		if got.Workflow != "order" || got.Version != version || got.Deleted != (version == 2) || !bytes.Equal(got.Body, want.JSON()) || !bytes.Equal(again.JSON(), want.JSON()) {
			t.Errorf("%+v", got)
		}
		if len(got.Graph.Steps) != len(want.Steps) || len(got.Graph.Layout.Boxes) != len(want.Steps) || got.Graph.Steps[1].Needs[0] != "reserve" || got.Graph.Steps[1].When == "" {
			t.Errorf("%+v", got.Graph)
		}
	}
	for path, detail := range map[string]string{"/workflows/order/3": "no version 3", "/workflows/nobody/1": `"nobody"`, "/workflows/%3Cscript%3E/1": "<script>", "/workflows/a%2Fb/1": `"a/b"`} {
		if p := problem(t, ask(t, s, http.MethodGet, api+path, ""), http.StatusNotFound); !strings.Contains(p.Detail, detail) {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	for _, path := range []string{"/workflows/order/0", "/workflows/order/-1", "/workflows/order/x", "/workflows/order/1.0", "/workflows/order/99999999999999999999",
		"/workflows/" + strings.Repeat("x", events.MaxNameBytes+1) + "/1", "/workflows/order/1?unfolded=perhaps", "/workflows/order/1/diff", "/workflows/order/1/diff?to=x", "/workflows/order/1/diff?to=0"} {
		problem(t, ask(t, s, http.MethodGet, api+path, ""), http.StatusBadRequest)
	}
	problem(t, ask(t, s, http.MethodGet, api+"/workflows/order/1/diff?to=3", ""), http.StatusNotFound)
}

// Two versions are compared by fields and by lines.
func TestDefinitionDiff(t *testing.T) {
	w := newRecording(t)
	w.applyOrders(t)
	got := get[consoleapi.DefinitionDiff](t, w, w.console(t, nil), api+"/workflows/{name}/{version}/diff", api+"/workflows/order/1/diff?to=2")
	var changes []string
	for _, c := range got.Changes {
		changes = append(changes, fmt.Sprintf("%s: %s -> %s", c.Path, c.Before, c.After))
	}
	const want = `complete_within: "30m" -> "1h"
steps.pack: null -> {"agent":"shipping","operation":"pack","needs":["charge"]}
steps.ship.needs: ["charge"] -> ["pack"]
version: 1 -> 2`
	if text := strings.Join(changes, "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if fmt.Sprint(got.Added, got.Removed, got.Changed) != "[pack] [] [ship]" {
		t.Errorf("added %v, removed %v, changed %v", got.Added, got.Removed, got.Changed)
	}
	var from, to strings.Builder
	for _, l := range got.Lines {
		if l.From > 0 {
			from.WriteString(l.Text + "\n")
		}
		if l.To > 0 {
			to.WriteString(l.Text + "\n")
		}
	}
	if from.String() != string(w.definitions["order/1"].YAML()) || to.String() != string(w.definitions["order/2"].YAML()) {
		t.Errorf("the lines aren't those of the sources:\n%s\n%s", from.String(), to.String())
	}
	if none := get[consoleapi.DefinitionDiff](t, w, w.console(t, nil), api+"/workflows/{name}/{version}/diff", api+"/workflows/order/1/diff?to=1"); len(none.Changes)+len(none.Changed) > 0 {
		t.Errorf("a version differs from itself: %+v", none)
	}
}

// The lines of a comparison give both texts, with the fewest changes.
func TestDiffLines(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		text := func() string {
			var b strings.Builder
			for range rnd.IntN(12) {
				b.WriteString(string(rune('a'+rnd.IntN(4))) + "\n")
			}
			return b.String()
		}
		a, b := text(), text()
		var from, to strings.Builder
		changes := 0
		for _, l := range diffLines(a, b) {
			if l.Op != "added" {
				from.WriteString(l.Text + "\n")
			}
			if l.Op != "removed" {
				to.WriteString(l.Text + "\n")
			}
			if l.Op != "same" {
				changes++
			}
		}
		if from.String() != a || to.String() != b {
			t.Fatalf("%q and %q: %q and %q", a, b, from.String(), to.String())
		}
		if want := leastChanges(linesOf(a), linesOf(b)); changes != want {
			t.Fatalf("%q and %q: %d changes, want %d", a, b, changes, want)
		}
	}
	var many [2]strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many[0], "a%d\n", i)
		fmt.Fprintf(&many[1], "b%d\n", i)
	}
	if n := len(diffLines(many[0].String(), many[1].String())); n != 10_000 {
		t.Errorf("%d lines of two different texts", n)
	}
}

// leastChanges is the number of lines that differ, by the longest common subsequence.
func leastChanges(a, b []string) int {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				common[i+1][j+1] = common[i][j] + 1
			} else {
				common[i+1][j+1] = max(common[i][j+1], common[i+1][j])
			}
		}
	}
	return len(a) + len(b) - 2*common[len(a)][len(b)]
}

// The graph of a task has the steps of its plan, whether the definition is known or not.
func TestTaskGraph(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for id, task := range w.tasks {
		got := get[consoleapi.TaskGraph](t, w, s, api+"/tasks/{id}/graph", api+"/tasks/"+url.PathEscape(id)+"/graph")
		if got.Workflow != task.Workflow || got.Version != task.Version || len(got.Graph.Steps) != len(task.Plan.Steps) || got.Graph.Layout.Width == 0 {
			t.Errorf("%s: %+v", id, got)
		}
		for i := range task.Plan.Steps {
			if p := &task.Plan.Steps[i]; got.Graph.Steps[i].ID != p.ID || len(got.Graph.Steps[i].Needs) != len(p.Needs) {
				t.Errorf("%s: step %+v", id, got.Graph.Steps[i])
			}
		}
	}
}

// A large graph is folded unless each step is asked for. The drawings that a console keeps are bounded.
func TestLargeDefinition(t *testing.T) {
	suite.NeedAll(t, "many drawings of a large workflow")
	w := newRecording(t)
	w.definitions = map[string]*workflow.Definition{}
	for v := 1; v <= drawingsMax+3; v++ {
		var text strings.Builder
		fmt.Fprintf(&text, "workflow: wide\nversion: %d\ncomplete_within: 1h\ndefaults: {complete_within: 1m}\nsteps:\n  first%d: {agent: a, operation: o}\n", v, v)
		for i := range 300 {
			fmt.Fprintf(&text, "  s%d: {agent: a, operation: o, needs: [first%d]}\n", i, v)
		}
		w.definitions[fmt.Sprintf("wide/%d", v)] = definitionOf(t, text.String())
	}
	s := w.console(t, nil)
	const route = api + "/workflows/{name}/{version}"
	for v := range len(w.definitions) {
		folded := get[consoleapi.Definition](t, w, s, route, fmt.Sprintf("%s/workflows/wide/%d", api, v+1)).Graph
		if !folded.Layout.Folded || len(folded.Layout.Boxes) != 2 || len(folded.Steps) != 301 {
			t.Fatalf("%d boxes of %d steps", len(folded.Layout.Boxes), len(folded.Steps))
		}
	}
	if all := get[consoleapi.Definition](t, w, s, route, api+"/workflows/wide/1?unfolded=true").Graph.Layout; all.Folded || len(all.Boxes) != 301 {
		t.Errorf("unfolded: %d boxes", len(all.Boxes))
	}
	if kept := &s.Config.Handler.(*Console).drawings; len(kept.kept) > drawingsMax {
		t.Errorf("%d drawings are kept", len(kept.kept))
	}
}

// Numbers in a definition are passed as they were written.
func TestDefinitionHasItsNumbers(t *testing.T) {
	w := newRecording(t)
	w.definitions = map[string]*workflow.Definition{"n/1": definitionOf(t, `{workflow: n, version: 1, complete_within: 1h, steps: {a: {agent: a, operation: o, complete_within: 1m, input: {big: 12345678901234567, f: 5.0, html: "</script><!--"}}}}`)}
	body := ask(t, w.console(t, nil), http.MethodGet, api+"/workflows/n/1", "").body
	var raw struct{ Body json.RawMessage }
	if err := json.Unmarshal([]byte(body), &raw); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"big":12345678901234567`, `"f":5.0`, `</script><!--`} {
		if !strings.Contains(string(raw.Body), want) {
			t.Errorf("no %s in %s", want, raw.Body)
		}
	}
}
