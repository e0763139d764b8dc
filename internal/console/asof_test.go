package console

import (
	"cmp"
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
	"github.com/waybill-run/waybill/internal/suite"
)

// replayAt is the system at an instant by a fold of the whole log (waybill replay --at).
func (w *recording) replayAt(at time.Time) *replay.InstantView {
	in := replay.NewInstant(at)
	for p := range w.partitions {
		for i := range w.records[p] {
			in.Add(&w.records[p][i])
		}
	}
	return in.View(func(t *events.Task) bool { return t.Open() })
}

// instantsOf are the instants of some events, and those just before.
func (w *recording) instantsOf(n int) (all []time.Time) {
	for p := range w.partitions {
		for i := range w.records[p] {
			if e, err := events.ReadEvent(&w.records[p][i]); err == nil && i%(1+len(w.records[p])/n) == 0 {
				all = append(all, e.At, e.At.Add(-time.Millisecond))
			}
		}
	}
	return append(all, w.now)
}

func asOfPath(at time.Time, more string) string {
	return api + "/as-of?at=" + url.QueryEscape(at.UTC().Format(events.TimeLayout)) + more
}

// The system at an instant, from the index, is that of a fold of the whole log up to the instant.
func TestSystemAsOf(t *testing.T) {
	suite.NeedAll(t, "the folds of a log at many instants")
	w := newRecording(t)
	s := w.console(t, nil)
	opened := 0
	for _, at := range w.instantsOf(12) {
		want := w.replayAt(at)
		got := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(at, "&page_size=1000"))
		counts := map[events.TaskState]int{}
		for _, v := range got.Workflows {
			for state, n := range v.States {
				counts[state] += int(n)
			}
		}
		if encoded(t, got.States) != encoded(t, want.States) || encoded(t, counts) != encoded(t, want.States) {
			t.Errorf("%s: %s, want %s", got.At, encoded(t, got.States), encoded(t, want.States))
		}
		if len(got.Tasks) != len(want.Tasks) || got.Matched != len(want.Tasks) || got.Open != int64(len(want.Tasks)) || got.NextPageToken != "" {
			t.Fatalf("%s: %d tasks, %d matched, %d open, want %d", got.At, len(got.Tasks), got.Matched, got.Open, len(want.Tasks))
		}
		for i, task := range want.Tasks {
			is := got.Tasks[i].Task
			state := get[consoleapi.TaskAtEvent](t, w, s, api+"/tasks/{id}/states", fmt.Sprintf("%s/tasks/%s/states?seq=%d", api, url.PathEscape(is.ID), got.Tasks[i].Seq))
			if is.ID != task.ID || is.State != task.State || *is.UpdatedAt != *task.UpdatedAt || is.FailureCount != task.FailureCount || state.State.State != task.State || state.Event.At != *task.UpdatedAt {
				t.Errorf("%s: %s at event %d, want %s", got.At, encoded(t, is), got.Tasks[i].Seq, encoded(t, task))
			}
		}
		if opened += len(want.Tasks); len(want.Tasks) > 0 && got.Oldest.Task.ID != got.Tasks[len(got.Tasks)-1].Task.ID {
			t.Errorf("%s: the oldest is %s", got.At, got.Oldest.Task.ID)
		}
		checkOldestHeld(t, &got)
	}
	if opened < 20 {
		t.Errorf("only %d open tasks were compared", opened)
	}
}

func checkOldestHeld(t *testing.T, got *consoleapi.SystemAsOf) {
	t.Helper()
	var held []string
	for _, task := range got.Tasks {
		if task.Task.State == events.StateError {
			held = append(held, *task.Task.UpdatedAt)
		}
	}
	if (len(held) > 0) != (got.OldestHeld != nil) || len(held) > 0 && *got.OldestHeld.Task.UpdatedAt != slices.Min(held) {
		t.Errorf("%s: the oldest held task is %s, of %v", got.At, encoded(t, got.OldestHeld), held)
	}
}

// Pages of open tasks have each matching task once. A state that is kept needs no event.
func TestSystemAsOfPages(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	s := w.console(t, nil)
	at := slices.MaxFunc(w.instantsOf(12), func(a, b time.Time) int { return cmp.Compare(len(w.replayAt(a).Tasks), len(w.replayAt(b).Tasks)) })
	want := w.replayAt(at)
	for _, filter := range []string{"", "state:processing,error", "workflow:order", "id:a"} {
		var ids []string
		for token, next := "", true; next; {
			got := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(at, "&page_size=2&filter="+url.QueryEscape(filter)+"&page_token="+token))
			for _, task := range got.Tasks {
				ids = append(ids, task.Task.ID)
			}
			if token, next = got.NextPageToken, got.NextPageToken != ""; !next && got.Matched != len(ids) {
				t.Errorf("%s: %d of %d tasks", filter, len(ids), got.Matched)
			}
		}
		var all []string
		for _, task := range want.Tasks {
			if filter == "" || strings.HasPrefix(filter, "id:") && strings.HasPrefix(task.ID, "a") || filter == "workflow:order" && task.Workflow == "order" ||
				strings.HasPrefix(filter, "state:") && (task.State == events.StateProcessing || task.State == events.StateError) {
				all = append(all, task.ID)
			}
		}
		if encoded(t, ids) != encoded(t, all) {
			t.Errorf("%s: %v, want %v", filter, ids, all)
		}
	}
	before := w.readEvents.Load()
	w.now = w.now.Add(time.Hour)
	for range 3 {
		if got := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(at.Add(-time.Hour), "")); !got.Final {
			t.Errorf("an hour later it isn't final: %s", encoded(t, got))
		}
	}
	if w.readEvents.Load() != before {
		t.Error("events were read for an instant before the first one")
	}
}

// What a console doesn't compute is refused, with what to do.
func TestSystemAsOfRefuses(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	s := w.console(t, nil)
	c := s.Config.Handler.(*Console)
	for query, want := range map[string]string{
		"": "at is missing", "?at=x": "a duration", "?at=2999-01-01T00:00:00Z": "in the future",
		"?at=1h&filter=error_group:1": "error_group", "?at=1h&page_token=x": "page token", "?at=1h&filter=x": "not a term",
	} {
		if p := problem(t, ask(t, s, http.MethodGet, api+"/as-of"+query, ""), http.StatusBadRequest); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %s", query, p.Detail)
		}
	}
	at := slices.MaxFunc(w.instantsOf(12), func(a, b time.Time) int { return cmp.Compare(len(w.replayAt(a).Tasks), len(w.replayAt(b).Tasks)) })
	for _, most := range []asOfBounds{{1, 1000, 1000, 1000}, {1000, 0, 1000, 1000}, {1000, 1000, 0, 1000}} {
		c.pastStates.most = most
		if p := problem(t, ask(t, s, http.MethodGet, asOfPath(at, ""), ""), http.StatusUnprocessableEntity); !strings.Contains(p.Detail, "waybill replay --at "+at.UTC().Format(events.TimeLayout)) {
			t.Errorf("%+v: %s", most, p.Detail)
		}
	}
}

// Tasks that had ended are listed if the filter names their states, each once, with open ones. More than the bound are refused.
func TestSystemAsOfListsEnded(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	all := w.instantsOf(12)
	for _, at := range []time.Time{all[len(all)/2], all[len(all)-1], w.now} {
		open := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(at, "")) // a kept state without ended tasks
		for _, states := range [][]events.TaskState{{events.StateProcessed}, {events.StateUndone, events.StateError}} {
			filter, want := "state:"+string(states[0]), open.States[states[0]]
			if len(states) > 1 {
				filter, want = filter+","+string(states[1]), want+open.States[states[1]]
			}
			seen := map[string]bool{}
			for token, next := "", true; next; {
				got := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(at, "&page_size=3&filter="+url.QueryEscape(filter)+"&page_token="+token))
				for _, task := range got.Tasks {
					if seen[task.Task.ID] || !slices.Contains(states, task.Task.State) {
						t.Errorf("%s at %s: %s", filter, at, encoded(t, task))
					}
					seen[task.Task.ID] = true
				}
				if got.Matched != int(want) || got.Open != open.Open {
					t.Errorf("%s at %s: %d match, want %d; %d are open", filter, at, got.Matched, want, got.Open)
				}
				token, next = got.NextPageToken, got.NextPageToken != ""
			}
			if len(seen) != int(want) {
				t.Errorf("%s at %s: %d are listed, want %d", filter, at, len(seen), want)
			}
			if again := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(at, "")); again.Matched != open.Matched {
				t.Errorf("without a filter at %s: %d match after a list of ended tasks, want %d", at, again.Matched, open.Matched)
			}
		}
	}
	if last := get[consoleapi.SystemAsOf](t, w, s, api+"/as-of", asOfPath(w.now, "")); last.States[events.StateProcessed] == 0 {
		t.Error("no task had ended: the test proves nothing")
	}
	c := s.Config.Handler.(*Console)
	c.pastStates.most.ended = 0
	if p := problem(t, ask(t, s, http.MethodGet, asOfPath(w.now.Add(-time.Millisecond), "&filter=state:processed"), ""), http.StatusUnprocessableEntity); !strings.Contains(p.Detail, "narrow it") {
		t.Error(p.Detail)
	}
}

// A task with an event that can't be read is counted as of the event before it, and said so.
func TestSystemAsOfUnreadable(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateUndone)
	p := events.Partition([]byte(task.ID), w.partitions)
	var at time.Time
	for i := range w.records[p] {
		if r := &w.records[p][i]; string(r.Key) == task.ID {
			if _, seq, _ := events.EventName(r); seq == 4 {
				w.corruptIn, w.corruption = p, Corruption{From: r.Offset, Next: r.Offset + 1, Err: fmt.Errorf("its checksum is wrong")}
			} else if seq == 5 {
				at = events.Millis(r.Time).Add(-time.Millisecond)
				if e, err := events.ReadEvent(r); err == nil {
					at = e.At
				}
			}
		}
	}
	var got consoleapi.SystemAsOf
	r := ask(t, w.console(t, nil), http.MethodGet, asOfPath(at, "&page_size=1000"), "")
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != http.StatusOK {
		t.Fatal(r.status, r.body)
	}
	i := slices.IndexFunc(got.Tasks, func(a consoleapi.TaskAsOf) bool { return a.Task.ID == task.ID })
	if i < 0 || got.Tasks[i].Seq != 3 || got.Tasks[i].Task.StoppedSeq != 4 || got.Unreadable != 1 {
		t.Errorf("unreadable: %d, at %d: %s", got.Unreadable, i, encoded(t, got.Tasks))
	}
}

// What a replay keeps is counted: the events of open tasks, and a fixed size for ended ones.
func TestInstantCountsItsMemory(t *testing.T) {
	w := newRecording(t)
	in, open := replay.NewInstant(w.now), int64(0)
	for p := range w.partitions {
		for i := range w.records[p] {
			r := &w.records[p][i]
			if in.Add(r); len(r.Key) > 0 && w.tasks[string(r.Key)].Open() {
				open += int64(len(r.Value))
			}
		}
	}
	if fixed := in.Bytes() - open; in.Counted() != len(w.tasks) || open == 0 || fixed != int64(in.Counted())<<10 {
		t.Errorf("%d tasks: %d bytes, %d of open tasks", in.Counted(), in.Bytes(), open)
	}
}
