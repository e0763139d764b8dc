package console

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/suite"
)

// sent is an event of a stream.
type sent struct {
	id, name string
	line     events.Line
	data     string
}

// streamed is the schema of an event's data, by the event's name.
func streamed(name string) *jsonschema.Schema {
	switch name {
	case consoleapi.UnreadableEvent:
		return unreadableSchema
	case consoleapi.ChangesEvent, consoleapi.BeatEvent:
		return changesSchema
	}
	return lineSchema
}

var (
	lineSchema       = &jsonschema.Schema{Ref: "#/components/schemas/Line"}
	changesSchema    = &jsonschema.Schema{Ref: "#/components/schemas/Changes"}
	unreadableSchema = &jsonschema.Schema{Ref: "#/components/schemas/Unreadable"}
)

// openStream reads the events of a stream until the test ends.
func openStream(t *testing.T, s server, path string, headers ...string) (<-chan sent, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	came := make(chan sent, 10_000)
	go func() {
		defer close(came)
		var e sent
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				if json.Unmarshal([]byte(value), &e.line) != nil {
					return
				}
				if err := readDocument(t).validate(streamed(e.name), value); err != nil {
					t.Errorf("%s: %v\n%s", e.name, err, value)
				}
				e.data = value
				came <- e
				e = sent{}
			}
		}
	}()
	return came, resp.StatusCode
}

// A task's stream starts with its first event and ends with its last. It resumes after the last received id. A complete
// stream isn't started again.
func TestTaskStream(t *testing.T) {
	w := newRecording(t)
	consoles := []server{w.console(t, nil), w.console(t, nil)}
	task := w.some(t, events.StateUndone)
	path := api + "/tasks/" + url.PathEscape(task.ID) + "/events"
	for _, s := range consoles {
		var all []sent
		came, status := openStream(t, s, path)
		for e := range came {
			all = append(all, e)
		}
		if status != http.StatusOK || uint64(len(all)) != task.Seq {
			t.Fatalf("%d, %d events of %d", status, len(all), task.Seq)
		}
		for i, e := range all {
			if e.line.Seq != uint64(i+1) || e.name != e.line.Type || e.id != e.line.Offset {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		n := 0
		came, _ = openStream(t, s, path, "Last-Event-ID: "+all[2].id)
		for e := range came {
			if n++; e.line.Seq != uint64(n+3) {
				t.Errorf("after 3: %+v", e)
			}
		}
		if n != len(all)-3 {
			t.Errorf("after 3 of %d: %d", len(all), n)
		}
		if _, status := openStream(t, s, path, "Last-Event-ID: "+all[len(all)-1].id); status != http.StatusNoContent {
			t.Errorf("after the last: %d", status)
		}
	}
}

// The stream of all events resumes at any of its ids without gaps or repetitions.
func TestStream(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	total := 0
	for _, task := range w.tasks {
		total += int(task.Seq)
	}
	zero := make([]string, w.partitions)
	for p := range zero {
		zero[p] = strconv.Itoa(p) + ":0"
	}
	came, _ := openStream(t, s, api+"/events?after="+strings.Join(zero, ","))
	seen := map[string]bool{}
	take := func(came <-chan sent, most int) (last string) {
		for range most {
			e := <-came
			at := strconv.Itoa(int(e.line.Partition)) + ":" + e.line.Offset
			if e.id == "" || e.line.Task == "" || seen[at] {
				t.Fatalf("%+v came again, or without an id or a task", e)
			}
			seen[at], last = true, e.id
		}
		return last
	}
	half := take(came, total/2)
	came, _ = openStream(t, s, api+"/events", "Last-Event-ID: "+half)
	take(came, total-total/2)
	if len(seen) != total {
		t.Errorf("%d events of %d", len(seen), total)
	}
	// Later records are streamed too.
	r := w.last(w.some(t, events.StateProcessed).ID)
	r.Offset += 100
	w.comes(r)
	if e := <-came; e.line.Offset != strconv.FormatInt(r.Offset, 10) || e.line.Task != string(r.Key) {
		t.Errorf("%+v, want what came last", e)
	}
}

// Records before the end of the log that are not committed yet are streamed after the commit.
func TestStreamBeginsBeforeWhatIsNotCommitted(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	var want []string
	for p, rs := range w.records {
		for _, r := range rs[len(rs)-2:] {
			if len(r.Key) > 0 {
				want = append(want, strconv.Itoa(int(p))+":"+offsetText(r.Offset))
			}
		}
		w.unsettled[p] = 2
	}
	came, status := openStream(t, s, api+"/events")
	if status != http.StatusOK {
		t.Fatal(status)
	}
	var got []string
	for range want {
		e := <-came
		got = append(got, strconv.Itoa(int(e.line.Partition))+":"+e.line.Offset)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// HEAD of a stream is rejected, because it would stay open as long as its connection.
func TestHeadOfAStream(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for _, path := range []string{"/events", "/tasks/" + url.PathEscape(w.some(t, events.StateError).ID) + "/events"} {
		for range streamsMax + 1 {
			if r := ask(t, s, http.MethodHead, api+path, ""); r.status != http.StatusMethodNotAllowed {
				t.Fatalf("%s: %d", path, r.status)
			}
		}
	}
	if r := ask(t, s, http.MethodHead, api+"/tasks", ""); r.status != http.StatusOK {
		t.Error(r.status)
	}
}

// The number of open streams is bounded. A stream that ends frees its slot.
func TestStreamsAreBounded(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for range streamsMax {
		if _, status := openStream(t, s, api+"/events"); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	problem(t, ask(t, s, http.MethodGet, api+"/events", ""), http.StatusServiceUnavailable)
}

// An unreadable record of a task is reported once, and later events follow.
func TestTaskStreamPassesWhatIsNoEvent(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateError)
	p := w.last(task.ID).Partition
	for i := range w.records[p] {
		if r := &w.records[p][i]; string(r.Key) == task.ID && r.Offset != w.last(task.ID).Offset {
			r.Value = []byte("no JSON") // the first one, whose headers are those of an event
			break
		}
	}
	consoles := []server{w.console(t, nil), w.console(t, nil)}
	path := api + "/tasks/" + url.PathEscape(task.ID) + "/events"
	for _, s := range consoles {
		came, status := openStream(t, s, path)
		if status != http.StatusOK {
			t.Fatal(status)
		}
		for n := range task.Seq {
			if e := <-came; (e.name == consoleapi.UnreadableEvent) != (n == 0) || e.id != e.line.Offset || e.id == "" {
				t.Fatalf("event %d: %+v", n+1, e)
			}
		}
		last := w.last(task.ID)
		spoilt, ended := last, last
		spoilt.Offset, spoilt.Headers = last.Offset+100, nil
		ended.Offset, ended.Headers = last.Offset+101, events.CloudHeaders((&events.TaskCancelled{}).Type(), "s", events.TaskEventID(task.ID, task.Seq+1))
		w.comes(spoilt, ended)
		if e := <-came; e.name != consoleapi.UnreadableEvent || e.line.Offset != offsetText(spoilt.Offset) || e.line.Partition != p {
			t.Errorf("%+v, want what is no event", e)
		}
		if e := <-came; e.line.Offset != offsetText(ended.Offset) {
			t.Errorf("%+v, want what comes after it", e)
		}
		if e, more := <-came; more {
			t.Errorf("%+v after the end", e)
		}
		w.forget()
		// A client that has received the report doesn't receive it again.
		came, _ = openStream(t, s, path, "Last-Event-ID: "+offsetText(spoilt.Offset))
		w.comes(spoilt, ended)
		if e := <-came; e.line.Offset != offsetText(ended.Offset) {
			t.Errorf("%+v, want what comes after it", e)
		}
		w.forget()
	}
}
