package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// TestStatesOfItems checks that each word of the column STATE is accepted by --state, and selects the items that show it.
func TestStatesOfItems(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1) // the state in the request
	console := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/items") {
			_, _ = io.WriteString(w, `{"id":"p-1","steps":[{"id":"pick","kind":"items"}]}`)
			return
		}
		state := r.URL.Query().Get("state")
		asked <- state
		x := fmt.Sprintf(`"state":%q`, state)
		switch state {
		case "held":
			x = `"state":"running","error":{"code":"gone"}`
		case string(events.StepError), string(events.StepCompleted): // of a completed item: the effect of its failure is unknown
			x += `,"error":{"code":"gone"}`
		}
		_, _ = fmt.Fprintf(w, `{"items":[{"index":0,%s}]}`, x)
	}))
	t.Cleanup(console.Close)
	run := func(state string) (string, error) {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs([]string{"task", "items", "p-1", "--api", console.URL, "--state", state})
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for word, state := range map[string]string{"pending": "pending", "running": "running", "completed": "completed", "failed": "error", "undoing": "undoing", "undone": "undone", "held": "held"} {
		out, err := run(word)
		if err != nil {
			t.Errorf("--state %s: %v", word, err)
			continue
		}
		row := strings.Fields(strings.Split(out, "\n")[1])
		shown := row[1]
		if word == "held" {
			shown = row[2] // running, held
		}
		if got := <-asked; got != state || shown != word {
			t.Errorf("--state %s asks for %q and shows\n%s", word, got, out)
		}
	}
	want := "must be one of pending, running, completed, failed, undoing, undone, held"
	if _, err := run("waiting"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if got := newTaskItems().Flag("state").Usage; len(consoleapi.ItemStates) != 7 || !strings.Contains(got, want[len("must be one of "):]) {
		t.Errorf("--help says %q", got)
	}
}
