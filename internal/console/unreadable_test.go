package console

import (
	"errors"
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

// An unreadable record of a task doesn't hide others. The timeline names it, and the task is shown as of the event
// before it.
func TestTaskWithWhatIsNoEvent(t *testing.T) {
	for _, spoilt := range []int{0, 2} {
		w := newRecording(t)
		task := w.some(t, events.StateUndone)
		p := w.last(task.ID).Partition
		var offset string
		for i, n := 0, 0; offset == ""; i++ {
			if r := &w.records[p][i]; string(r.Key) == task.ID {
				if n == spoilt {
					r.Value, offset = []byte(`{"at":`), offsetText(r.Offset)
				}
				n++
			}
		}
		consoles := []server{w.console(t, nil), w.console(t, nil)}
		path, route := api+"/tasks/"+url.PathEscape(task.ID), api+"/tasks/{id}"
		for _, s := range consoles {
			line := get[consoleapi.Timeline](t, w, s, route+"/timeline", path+"/timeline")
			if uint64(len(line.Lines)) != task.Seq-1 || slices.ContainsFunc(line.Lines, func(l events.Line) bool { return l.Seq == uint64(spoilt+1) }) {
				t.Errorf("without event %d: %d lines of %d", spoilt+1, len(line.Lines), task.Seq)
			}
			if len(line.Unreadable) != 1 || line.Unreadable[0].Partition != p || line.Unreadable[0].Offset != offset || !strings.Contains(line.Unreadable[0].Error, "JSON ends too early") {
				t.Errorf("unreadable %+v, want offset %s of partition %d", line.Unreadable, offset, p)
			}
			if spoilt == 0 { // nothing can be folded
				for _, what := range []string{"", "/why"} {
					if r := problem(t, ask(t, s, http.MethodGet, path+what, ""), http.StatusInternalServerError); !strings.Contains(r.Detail, "/timeline") || !strings.Contains(r.Detail, "/"+offset) {
						t.Errorf("%s: %s", what, r.Detail)
					}
				}
				continue
			}
			shown := get[consoleapi.Task](t, w, s, route, path)
			if shown.State == events.StateUndone || shown.Unreadable == nil || shown.Unreadable.Partition != p || shown.Unreadable.Offset != offset || shown.Unreadable.Error == "" {
				t.Errorf("the task is shown as %s, before %+v, want offset %s of partition %d", shown.State, shown.Unreadable, offset, p)
			}
			why := get[replay.Why](t, w, s, route+"/why", path+"/why")
			if why.Reason != replay.ReasonUnreadable || !strings.Contains(why.Moves, offset) {
				t.Errorf("why: %s, %s", why.Reason, why.Moves)
			}
		}
	}
}

// A record without an event type is reported at its position too.
func TestTaskWithWhatHasNoName(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateUndone)
	none := w.last(task.ID)
	none.Offset, none.Headers = none.Offset+1000, nil
	only := none
	only.Offset, only.Key = none.Offset+1, []byte("wordless")
	for p := int32(0); events.Partition(only.Key, w.partitions) != none.Partition; p++ {
		only.Key = []byte("wordless-" + offsetText(int64(p)))
	}
	w.records[none.Partition] = append(w.records[none.Partition], none, only)
	s := w.console(t, nil)
	route := api + "/tasks/{id}"
	line := get[consoleapi.Timeline](t, w, s, route+"/timeline", api+consoleapi.TaskPath(task.ID)+"/timeline")
	if uint64(len(line.Lines)) != task.Seq || len(line.Unreadable) != 1 || line.Unreadable[0].Offset != offsetText(none.Offset) {
		t.Errorf("%d lines, unreadable %+v", len(line.Lines), line.Unreadable)
	}
	if shown := get[consoleapi.Task](t, w, s, route, api+consoleapi.TaskPath(task.ID)); shown.State != events.StateUndone || shown.Unreadable == nil || shown.Unreadable.Offset != offsetText(none.Offset) {
		t.Errorf("shown as %s, before %+v", shown.State, shown.Unreadable)
	}
	line = get[consoleapi.Timeline](t, w, s, route+"/timeline", api+consoleapi.TaskPath(string(only.Key))+"/timeline")
	if len(line.Lines) != 0 || len(line.Unreadable) != 1 || line.Unreadable[0].Offset != offsetText(only.Offset) {
		t.Errorf("of the only record: %d lines, unreadable %+v", len(line.Lines), line.Unreadable)
	}
}

// A corrupt batch doesn't hide the other events either. It is reported at its position.
func TestTaskWithWhatIsCorrupt(t *testing.T) {
	for _, spoilt := range []int{0, 2} {
		w := newRecording(t)
		task := w.some(t, events.StateUndone)
		w.corruptIn = w.last(task.ID).Partition
		for i, n := 0, 0; w.corruption.Err == nil; i++ {
			if r := &w.records[w.corruptIn][i]; string(r.Key) == task.ID {
				if n == spoilt {
					w.corruption = Corruption{From: r.Offset, Next: r.Offset + 1, Err: errors.New("its checksum is another")}
				}
				n++
			}
		}
		offset := offsetText(w.corruption.Next - 1)
		s := w.console(t, nil)
		path, route := api+consoleapi.TaskPath(task.ID), api+"/tasks/{id}"
		line := get[consoleapi.Timeline](t, w, s, route+"/timeline", path+"/timeline")
		if uint64(len(line.Lines)) != task.Seq-1 || slices.ContainsFunc(line.Lines, func(l events.Line) bool { return l.Seq == uint64(spoilt+1) }) {
			t.Errorf("without event %d: %d lines of %d", spoilt+1, len(line.Lines), task.Seq)
		}
		if len(line.Unreadable) != 1 || line.Unreadable[0].Partition != w.corruptIn || line.Unreadable[0].Offset != offset || line.Unreadable[0].Error != "its checksum is another" {
			t.Errorf("unreadable %+v, want offset %s of partition %d", line.Unreadable, offset, w.corruptIn)
		}
		if p := problem(t, ask(t, s, http.MethodGet, path+"/export", ""), http.StatusInternalServerError); !strings.Contains(p.Detail, "its checksum is another") || !strings.Contains(p.Detail, "/timeline") {
			t.Errorf("the export: %s", p.Detail)
		}
		if came, _ := openStream(t, s, path+"/events"); spoilt == 0 {
			if first := <-came; first.name != consoleapi.UnreadableEvent || first.id != offset {
				t.Errorf("the stream begins with %+v", first)
			}
			if p := problem(t, ask(t, s, http.MethodGet, path, ""), http.StatusInternalServerError); !strings.Contains(p.Detail, "its checksum is another") {
				t.Errorf("the task: %s", p.Detail)
			}
			order := (&events.Submission{ID: task.ID, Workflow: task.Workflow, Input: task.Input}).Record(events.DefaultNamespace, "test")
			if p := problem(t, ask(t, s, http.MethodPost, api+"/tasks", string(order.Value)), http.StatusInternalServerError); !strings.Contains(p.Detail, "the submission was written") || !strings.Contains(p.Detail, "its checksum is another") {
				t.Errorf("the same order: %s", p.Detail)
			}
		} else if shown := get[consoleapi.Task](t, w, s, route, path); shown.State == events.StateUndone || shown.Unreadable == nil || shown.Unreadable.Offset != offset {
			t.Errorf("the task is shown as %s, before %+v, want offset %s", shown.State, shown.Unreadable, offset)
		}
	}
}

// A task has ended even if its last event is unreadable. Its stream ends, and clients don't reconnect.
func TestTaskStreamOfACorruptEnd(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateUndone)
	last := w.last(task.ID)
	w.corruptIn, w.corruption = last.Partition, Corruption{From: last.Offset, Next: last.Offset + 1, Err: errors.New("its checksum is another")}
	path := api + consoleapi.TaskPath(task.ID) + "/events"
	for _, s := range []server{w.console(t, nil), w.console(t, nil)} {
		came, _ := openStream(t, s, path)
		for n := range task.Seq {
			if e := <-came; (e.name == consoleapi.UnreadableEvent) != (n == task.Seq-1) || e.id == "" {
				t.Fatalf("event %d: %+v", n+1, e)
			}
		}
		select {
		case e, more := <-came:
			if more {
				t.Errorf("after the end: %+v", e)
			}
		case <-time.After(suite.Patience): // the stream is read for longer
			t.Error("after the end the stream goes on")
		}
		if _, status := openStream(t, s, path, "Last-Event-ID"+": "+offsetText(last.Offset)); status != http.StatusNoContent {
			t.Errorf("after the last: %d", status)
		}
	}
}
