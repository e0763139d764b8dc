package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// TestChanges: a stream of changes names the tasks that the index applied, dead letters that were written, and definitions
// that were applied. While nothing changes it has beats only.
func TestChanges(t *testing.T) {
	w := newRecording(t)
	w.within.changes, w.within.observe = time.Millisecond, 20*time.Millisecond
	s := w.console(t, nil)
	came, status := openStream(t, s, api+"/changes")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	// until reads messages until one has a change, and returns it. All before it are beats.
	until := func(want string) (c consoleapi.Changes) {
		t.Helper()
		for e := range came {
			c = consoleapi.Changes{}
			if err := json.Unmarshal([]byte(e.data), &c); err != nil {
				t.Fatal(err)
			}
			switch {
			case (e.name == consoleapi.BeatEvent) != (len(c.What) == 0):
				t.Errorf("%s of %v", e.name, c.What)
			case slices.Equal(c.What, []string{want}):
				return c
			case len(c.What) > 0:
				t.Errorf("%v changed, want %s", c.What, want)
			}
		}
		t.Fatalf("the stream has ended before %s", want)
		return c
	}
	if e := <-came; e.name != consoleapi.BeatEvent {
		t.Errorf("nothing has happened: %+v", e)
	}
	w.watches.Add([]events.Record{{Key: []byte("o-2")}, {Key: nil}, {Key: []byte("o-1")}, {Key: []byte("o-2")}}, false)
	if c := until(consoleapi.ChangedTasks); !slices.Equal(c.Tasks, []string{"o-1", "o-2"}) || c.More {
		t.Errorf("%+v", c)
	}
	w.mu.Lock()
	w.deadSubmission("lost", 1000, events.ReasonBadJSON)
	w.mu.Unlock()
	until(consoleapi.ChangedDeadletters)
	w.mu.Lock()
	w.read = append(w.read, Workflow{Name: "fresh", Version: 1})
	w.mu.Unlock()
	until(consoleapi.ChangedWorkflows)
	order(t, s, fmt.Sprintf(`{"id":"b-1","command":"undo","tasks":[%q],"reason":"a test"}`, w.some(t, events.StateError).ID), http.StatusCreated)
	until(consoleapi.ChangedBatches)
	var many []events.Record
	for i := range 1000 {
		many = append(many, events.Record{Key: fmt.Append(nil, "m-", i)})
	}
	w.watches.Add(many, false)
	if c := until(consoleapi.ChangedTasks); len(c.Tasks) != 100 || !c.More {
		t.Errorf("%d tasks, more: %v", len(c.Tasks), c.More)
	}
	w.watches.Add(many[:1], true)
	for e := range came {
		if strings.Contains(e.data, consoleapi.ChangedHolds) {
			break
		}
	}
}

// TestChangesWhileKafkaIsSlow: a stream of changes begins, and has the changes of tasks and beats, while a question to Kafka
// isn't answered. Its late answer is reported as a change, since nothing is known of before.
func TestChangesWhileKafkaIsSlow(t *testing.T) {
	w := newRecording(t)
	w.within.changes, w.within.observe, w.within.firstObservation, w.within.answer = time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, 10*time.Second
	answered := make(chan struct{})
	w.groups = func(ctx context.Context) {
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
	s := w.console(t, nil)
	began := time.Now()
	came, status := openStream(t, s, api+"/changes")
	if took := time.Since(began); status != http.StatusOK || took > w.within.answer/2 {
		t.Fatalf("status %d after %v", status, took)
	}
	until := func(text string) {
		t.Helper()
		for e := range came {
			if e.name == consoleapi.ChangesEvent && strings.Contains(e.data, consoleapi.ChangedAgents) && text != consoleapi.ChangedAgents {
				t.Errorf("before the answer: %s", e.data)
			}
			if strings.Contains(e.name+e.data, text) {
				return
			}
		}
		t.Fatalf("the stream has ended before %s", text)
	}
	for i := range 3 {
		until(consoleapi.BeatEvent)
		id := fmt.Sprint("o-", i)
		w.watches.Add([]events.Record{{Key: []byte(id)}}, false)
		until(id)
	}
	if took := time.Since(began); took > w.within.answer/2 {
		t.Errorf("after %v", took)
	}
	close(answered)
	until(consoleapi.ChangedAgents)
	until(consoleapi.BeatEvent)
}

// TestTimelineAfter: a timeline after an event has the later ones, so that a client needs to ask for those only.
func TestTimelineAfter(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	task := w.some(t, events.StateUndone)
	route := api + "/tasks/{id}/timeline"
	path := api + "/tasks/" + url.PathEscape(task.ID) + "/timeline"
	all := get[consoleapi.Timeline](t, w, s, route, path).Lines
	for after := range all {
		if later := get[consoleapi.Timeline](t, w, s, route, fmt.Sprintf("%s?after=%d", path, after+1)).Lines; !reflect.DeepEqual(later, append([]events.Line{}, all[after+1:]...)) {
			t.Errorf("%d lines after %d of %d", len(later), after+1, len(all))
		}
	}
	problem(t, ask(t, s, http.MethodGet, path+"?after=x", ""), http.StatusBadRequest)
}
