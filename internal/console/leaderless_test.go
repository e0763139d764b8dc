package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// A partition without a leader doesn't affect requests about tasks of other partitions. Responses that lack it say so.
func TestPartitionWithoutALeader(t *testing.T) {
	w := newRecording(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil)
	there, beside := "", ""
	for id := range w.tasks {
		if events.Partition([]byte(id), w.partitions) == 1 {
			there = id
		} else {
			beside = id
		}
	}
	if r := ask(t, s, http.MethodGet, api+consoleapi.TaskPath(beside)+"?min_offset=end", ""); r.status != http.StatusOK {
		t.Errorf("a task of another partition: %d %s", r.status, r.body)
	}
	r := ask(t, s, http.MethodGet, api+consoleapi.TaskPath(there)+"?min_offset=end", "")
	if p := problem(t, r, http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker leads partition 1, or its leader") || !strings.Contains(p.Detail, "partition 1 of waybill.events") {
		t.Errorf("a task of that partition: %s", r.body)
	}
	if p := problem(t, ask(t, s, http.MethodGet, api+consoleapi.TaskPath(missingIn(w, 1)), ""), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker leads partition 1, or its leader") {
		t.Errorf("a task that may be in the records that it lacks: %s", p.Detail)
	}
	for _, end := range []string{"", "?min_offset=end"} {
		if l := get[consoleapi.TaskPage](t, w, s, api+"/tasks", api+"/tasks"+end); !lacksLeaders(l.Incomplete, w.leaderless) {
			t.Errorf("the tasks%s lack %v", end, l.Incomplete)
		}
		l := get[consoleapi.AlertPage](t, w, s, api+"/alerts", api+"/alerts"+end)
		if !lacksLeaders(l.Incomplete, w.leaderless) {
			t.Errorf("the alerts%s lack %v", end, l.Incomplete)
		}
	}
	if l := get[consoleapi.DeadletterPage](t, w, s, api+"/deadletters", api+"/deadletters"); !lacksLeaders(l.Incomplete, w.leaderless) {
		t.Errorf("the dead letters lack %v", l.Incomplete)
	}
}

// A broker that hangs doesn't delay an answer for longer than a request waits for an offset.
func TestEndsAreAskedForAShortTime(t *testing.T) {
	w := newRecording(t)
	asked := 0
	w.endsAsked = func(ctx context.Context) {
		asked++
		if by, bounded := ctx.Deadline(); !bounded || time.Until(by) > minOffsetWithin {
			t.Errorf("asked until %v", by)
		}
	}
	s := w.console(t, nil)
	for _, path := range []string{"/tasks?min_offset=end", "/tasks/none?min_offset=end", "/alerts?min_offset=end"} {
		before := asked
		ask(t, s, http.MethodGet, api+path, "")
		if asked == before {
			t.Errorf("%s asks for no end", path)
		}
	}
}

// missingIn returns an id of a partition that no task has.
func missingIn(w *recording, p int32) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("missing-%d", i); events.Partition([]byte(id), w.partitions) == p {
			return id
		}
	}
}

// lacksLeaders reports whether a response lacks exactly the partitions without a leader.
func lacksLeaders(lacks []consoleapi.Incomplete, leaderless []int32) bool {
	return slices.EqualFunc(lacks, leaderless, func(i consoleapi.Incomplete, p int32) bool { return i.Partition == p && i.Why == consoleapi.NoLeader })
}

// Lists with min_offset=end have the readable partitions and name the others: one that has lost its leader, and one
// that never had a leader.
func TestListsWithAPartitionWithoutALeader(t *testing.T) {
	for _, read := range [][]int32{{0, 1, 2, 3}, {0, 2, 3}} {
		w := newRecording(t)
		w.leaderless = []int32{1}
		s := w.console(t, nil, read...)
		l := get[consoleapi.TaskPage](t, w, s, api+"/tasks", api+"/tasks?min_offset=end&page_size=1000")
		seen := map[string]bool{}
		for i := range l.Tasks {
			seen[l.Tasks[i].ID] = true
		}
		for id := range w.tasks {
			if !seen[id] && events.Partition([]byte(id), w.partitions) != 1 {
				t.Errorf("of %v: task %s of another partition is missing", read, id)
			}
		}
		if !lacksLeaders(l.Incomplete, w.leaderless) {
			t.Errorf("of %v: the list lacks %v", read, l.Incomplete)
		}
	}
}

// The stream of all events continues with the other partitions, and with this one when it has a leader. Its ids have the
// position of the index in this one: a client that comes back with an id misses nothing of what was written meanwhile.
func TestStreamWithAPartitionWithoutALeader(t *testing.T) {
	w := newRecording(t)
	all := w.records[1]
	w.records[1], w.leaderless = all[:len(all)-5], []int32{1}
	s := w.console(t, nil)
	position := ",1:" + offsetText(w.records[1][len(w.records[1])-1].Offset+1) + ","
	zero := api + "/events?after=0:0,2:0,3:0"
	came, status := openStream(t, s, zero)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	last := ""
	for p, rs := range w.records {
		for _, r := range rs {
			if p == 1 || len(r.Key) == 0 {
				continue
			}
			e := <-came
			if e.line.Partition == 1 || !strings.Contains(","+e.id+",", position) {
				t.Fatalf("%+v", e)
			}
			last = e.id
		}
	}
	next := all[len(all)-1]
	for i := len(all) - 1; len(next.Key) == 0; i-- {
		next = all[i]
	}
	w.comes(next)
	if e := <-came; e.line.Partition != 1 || !strings.Contains(","+e.id+",", ",1:"+offsetText(next.Offset+1)+",") {
		t.Errorf("%+v", e)
	}
	w.forget()
	w.records[1], w.leaderless = all, nil // five records were written after it had a leader again
	came, _ = openStream(t, s, api+"/events", "Last-Event-ID: "+last)
	for _, r := range all[len(all)-5:] {
		if len(r.Key) == 0 {
			continue
		}
		if e := <-came; e.line.Partition != 1 || e.line.Offset != offsetText(r.Offset) {
			t.Fatalf("%+v, want offset %d", e, r.Offset)
		}
	}
}

// A console that has read nothing of a partition without a leader knows no position in it, so a stream without a gap can't
// begin. It can with an id that has one.
func TestStreamWithAPartitionThatWasNeverRead(t *testing.T) {
	w := newRecording(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil, 0, 2, 3)
	p := problem(t, ask(t, s, http.MethodGet, api+"/events", ""), http.StatusServiceUnavailable)
	if len(p.Incomplete) != 1 || p.Incomplete[0].Partition != 1 || p.Incomplete[0].Why != consoleapi.NoLeader {
		t.Errorf("%+v", p)
	}
	if _, status := openStream(t, s, api+"/events?after=1:7"); status != http.StatusOK {
		t.Error(status)
	}
}

// The error says that a partition isn't read because it has no leader. So repeating the request doesn't help.
func TestTaskOfAPartitionThatNobodyReads(t *testing.T) {
	w := newRecording(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil, 0, 2, 3)
	for id := range w.tasks {
		if events.Partition([]byte(id), w.partitions) != 1 {
			continue
		}
		if p := problem(t, ask(t, s, http.MethodGet, api+consoleapi.TaskPath(id), ""), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker leads partition 1, or its leader") {
			t.Error(p.Detail)
		}
		return
	}
}

// If brokers don't deliver the events of a task, the response is 503 with the reason.
func TestTaskThatCannotBeRead(t *testing.T) {
	w := newRecording(t)
	w.stuck = func(context.Context) error { return fmt.Errorf("%w: no broker leads partition 1", ErrUnavailable) }
	s := w.console(t, nil)
	path := api + consoleapi.TaskPath(w.some(t, events.StateProcessed).ID)
	for _, what := range []string{"", "/timeline", "/why", "/export", "/events"} {
		if p := problem(t, ask(t, s, http.MethodGet, path+what, ""), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker leads partition 1") || !strings.Contains(p.Detail, "waybill doctor") {
			t.Errorf("%s: %s", what, p.Detail)
		}
	}
}

// If a submission was written but brokers don't deliver the task's first event, that is neither an internal error
// nor a conflict.
func TestSubmittedOrderThatCannotBeRead(t *testing.T) {
	w := newRecording(t)
	task := w.some(t, events.StateProcessed)
	order := (&events.Submission{ID: task.ID, Workflow: task.Workflow, Input: task.Input}).Record(events.DefaultNamespace, "test")
	s := w.console(t, nil)
	w.stuck = func(context.Context) error { return fmt.Errorf("%w: no broker leads partition 1", ErrUnavailable) }
	p := problem(t, ask(t, s, http.MethodPost, api+"/tasks", string(order.Value)), http.StatusServiceUnavailable)
	if !strings.Contains(p.Detail, "the submission was written") || !strings.Contains(p.Detail, "no broker leads partition 1") {
		t.Error(p.Detail)
	}
}

// TestRedriveOfAPartitionThatLosesItsLeader checks that a dead letter whose partition loses its leader before the second
// read isn't refused: the request is repeated. Dead letters of other partitions are written.
func TestRedriveOfAPartitionThatLosesItsLeader(t *testing.T) {
	w := newRecording(t)
	w.other["waybill.deadletters"] = nil
	lost := w.deadSubmission("a", 0, events.ReasonUnknownWorkflow)
	other := w.deadSubmission("b", 0, events.ReasonUnknownWorkflow)
	other.Partition = 2
	w.other[lost.Topic] = []events.Record{lost, other}
	s := w.console(t, nil)
	reads := 0
	w.topic = func() {
		if reads++; reads == 2 {
			w.leaderless, w.other[lost.Topic] = []int32{1}, []events.Record{other}
		}
	}
	const path, body = api + "/deadletters/redrive", `{"reasons":["unknown_workflow"]}`
	before := w.writes()
	r := ask(t, s, http.MethodPost, path, body)
	if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "partitions [1] of the dead letters have no leader") || w.writes() != before+1 {
		t.Errorf("%d %s; %d written", r.status, r.body, w.writes()-before)
	}
	w.leaderless, w.other[lost.Topic] = nil, []events.Record{lost, other}
	if r := ask(t, s, http.MethodPost, path, body); r.status != http.StatusOK || !strings.Contains(r.body, `"refused":0`) || w.writes() != before+3 {
		t.Errorf("again: %d %s; %d written", r.status, r.body, w.writes()-before)
	}
}
