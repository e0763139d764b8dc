package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// A partition that no broker leads is nothing to a question about a task of another one. What it
// keeps from being known is said.
func TestPartitionWithoutALeader(t *testing.T) {
	w := newWorld(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil, 0, 1, 2, 3)
	there, beside := "", ""
	for id := range w.tasks {
		if events.Partition([]byte(id), w.partitions) == 1 {
			there = id
		} else {
			beside = id
		}
	}
	if r := ask(t, s, http.MethodGet, api+TaskPath(beside)+"?min_offset=end", ""); r.status != http.StatusOK {
		t.Errorf("a task of another partition: %d %s", r.status, r.body)
	}
	r := ask(t, s, http.MethodGet, api+TaskPath(there)+"?min_offset=end", "")
	if p := problem(t, r, http.StatusServiceUnavailable); !strings.Contains(p.Detail, "partition 1 of the log") || !strings.Contains(p.Detail, "partition 1 of waybill.events") {
		t.Errorf("a task of that partition: %s", r.body)
	}
	for _, end := range []string{"", "?min_offset=end"} {
		l := get[alertList](t, w, s, api+"/alerts", api+"/alerts"+end)
		if !slices.Equal(l.MissingPartitions, w.leaderless) {
			t.Errorf("of the alerts%s %v are said to be missing", end, l.MissingPartitions)
		}
	}
	if l := get[deadletterList](t, w, s, api+"/deadletters", api+"/deadletters"); !slices.Equal(l.MissingPartitions, w.leaderless) {
		t.Errorf("of the dead letters %v are said to be missing", l.MissingPartitions)
	}
}

// Lists up to the log's end have what can be told, of one console and of two, and name what can't.
func TestListsWithAPartitionWithoutALeader(t *testing.T) {
	for _, shares := range [][][]int32{{{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{0}, {2, 3}}} {
		w := newWorld(t)
		w.leaderless = []int32{1}
		var consoles []server
		for _, own := range shares {
			consoles = append(consoles, w.console(t, nil, own...))
		}
		for _, s := range consoles {
			l := get[taskList](t, w, s, api+"/tasks", api+"/tasks?min_offset=end&page_size=1000")
			seen := map[string]bool{}
			for i := range l.Tasks {
				seen[l.Tasks[i].ID] = true
			}
			for id := range w.tasks {
				if !seen[id] && events.Partition([]byte(id), w.partitions) != 1 {
					t.Errorf("shared as %v: task %s of another partition is missing", shares, id)
				}
			}
			if !slices.Equal(l.MissingPartitions, w.leaderless) {
				t.Errorf("shared as %v: %v are said to be missing", shares, l.MissingPartitions)
			}
		}
	}
}

// The stream of all events has those of the other partitions, and of this one what comes when a broker leads it.
func TestStreamWithAPartitionWithoutALeader(t *testing.T) {
	w := newWorld(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil)
	zero := api + "/events?after=0:0,2:0,3:0"
	came, status := openStream(t, s, zero)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	for p, rs := range w.records {
		for _, r := range rs {
			if p == 1 || len(r.Key) == 0 {
				continue
			}
			if e := <-came; e.line.Partition == 1 || strings.Contains(","+e.id, ",1:") {
				t.Fatalf("%+v", e)
			}
		}
	}
	next := w.records[1][len(w.records[1])-1]
	for i := len(w.records[1]) - 1; len(next.Key) == 0; i-- {
		next = w.records[1][i]
	}
	w.comes(next)
	if e := <-came; e.line.Partition != 1 || !strings.Contains(","+e.id+",", ",1:"+offsetText(next.Offset+1)+",") {
		t.Errorf("%+v", e)
	}
}

// What no console has begun to read, because no broker leads it, is said to be that: to ask again is no use.
func TestTaskOfAPartitionThatNobodyReads(t *testing.T) {
	w := newWorld(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil, 0, 2, 3)
	w.urls[1] = s.URL
	for id := range w.tasks {
		if events.Partition([]byte(id), w.partitions) != 1 {
			continue
		}
		if p := problem(t, ask(t, s, http.MethodGet, api+TaskPath(id), ""), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker leads it") {
			t.Error(p.Detail)
		}
		return
	}
}

// Brokers that give nothing of a task's events are a matter of the brokers: 503, with what they are about.
func TestTaskThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.stuck = func(context.Context) error { return fmt.Errorf("%w: no broker leads partition 1", ErrAway) }
	s := w.console(t, nil)
	path := api + TaskPath(w.some(t, events.StateProcessed).ID)
	for _, what := range []string{"", "/timeline", "/why", "/export", "/events"} {
		if p := problem(t, ask(t, s, http.MethodGet, path+what, ""), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no broker leads partition 1") || !strings.Contains(p.Detail, "waybill doctor") {
			t.Errorf("%s: %s", what, p.Detail)
		}
	}
}

// An order that was written, and of which the brokers don't give the first event, isn't the console's fault, nor another
// order's.
func TestSubmittedOrderThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	task := w.some(t, events.StateProcessed)
	order := (&events.Submission{ID: task.ID, Workflow: task.Workflow, Input: task.Input}).Record(events.DefaultNamespace, "test")
	s := w.console(t, nil)
	w.stuck = func(context.Context) error { return fmt.Errorf("%w: no broker leads partition 1", ErrAway) }
	p := problem(t, ask(t, s, http.MethodPost, api+"/tasks", string(order.Value)), http.StatusServiceUnavailable)
	if !strings.Contains(p.Detail, "the order was written") || !strings.Contains(p.Detail, "no broker leads partition 1") {
		t.Error(p.Detail)
	}
}
