package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// addFamily adds a task with children that have an input of some bytes each.
func (w *recording) addFamily(t *testing.T, parent string, children, bytesEach int) {
	t.Helper()
	add := func(e *events.Event) *events.Task {
		p := events.Partition([]byte(e.Task), w.partitions)
		e.At, e.Epoch, e.Cause.Partition = w.now, 1000, p
		r := e.Record(events.DefaultNamespace, "test", p, e.Value())
		r.Offset, r.Time = w.records[p][len(w.records[p])-1].Offset+1, w.now
		w.records[p] = append(w.records[p], r)
		w.fold(t, &r)
		return w.tasks[e.Task]
	}
	input := append(append([]byte(`{"x":"`), bytes.Repeat([]byte("a"), bytesEach)...), `"}`...)
	plan := events.NewPlan(events.OnErrorHold, time.Minute, []events.PlanStep{{ID: "a", Agent: "x", Operation: "y", Attempts: events.Attempts{CompleteWithin: time.Second, MaxAttempts: 1}}})
	var steps []events.PlanStep
	for i := range children {
		steps = append(steps, events.PlanStep{ID: fmt.Sprint("s", i), StepKind: events.WorkflowStep})
	}
	task := add(&events.Event{Task: parent, Seq: 1, Fact: &events.TaskReceived{Workflow: "m", Version: 1, Digest: "d", Plan: events.NewPlan(events.OnErrorHold, time.Hour, steps)}})
	due := w.now.Add(time.Hour)
	task = add(&events.Event{Task: parent, Seq: 2, Prev: task.Prev, Due: due, Policy: &events.Policy{Timer: events.TimerTask, OnError: events.OnErrorHold, CompleteBy: due}, Fact: &events.TaskStarted{}})
	for i := range children {
		id, step := fmt.Sprint(parent, "-", i), fmt.Sprint("s", i)
		task = add(&events.Event{Task: parent, Seq: task.Seq + 1, Prev: task.Prev, Fact: &events.ChildStarted{Step: step, Attempt: 1, Child: id, TokenHash: "h"}})
		add(&events.Event{Task: id, Seq: 1, Fact: &events.TaskReceived{Workflow: "c", Version: 1, Digest: "d", Plan: plan, Input: input,
			Parent: &events.Parent{Task: parent, Step: step, Attempt: 1, Token: "t", Depth: 1}}})
	}
}

// TestTreeIsBoundedInBytes: the events of a tree have at most 16 MiB. Those that are left out are counted, and are those of
// the last tasks.
func TestTreeIsBoundedInBytes(t *testing.T) {
	w := newRecording(t)
	const children = 40
	w.addFamily(t, "mother", children, 500<<10)
	v := get[consoleapi.TaskTree](t, w, w.console(t, nil), api+"/tasks/{id}/tree", api+"/tasks/mother/tree?lines=true&page_size=1000")
	size, left, happened := 0, 0, 0
	for i := range v.Lines {
		size += len(v.Lines[i].Data)
	}
	for i := range v.Tasks {
		left += v.Tasks[i].LeftOut
		happened += v.Tasks[i].Events
	}
	if size > treeLinesMaxBytes || size < treeLinesMaxBytes*9/10 {
		t.Errorf("%d bytes of events", size)
	}
	if len(v.Tasks) != 1+children || left == 0 || len(v.Lines)+left != happened || v.Tasks[0].LeftOut != 0 || v.Tasks[children].LeftOut != 1 {
		t.Errorf("%d tasks with %d events: %d lines, %d left out", len(v.Tasks), happened, len(v.Lines), left)
	}
}

// TestTreesAreBounded: at most treesMax trees with events are read at the same time. One more gets 503 after a while.
func TestTreesAreBounded(t *testing.T) {
	w := newRecording(t)
	w.within.slot = 100 * time.Millisecond
	w.addFamily(t, "mother", 1, 10)
	s := w.console(t, nil)
	reading, free := make(chan struct{}, 100), make(chan struct{})
	w.stuck = func(ctx context.Context) error {
		reading <- struct{}{}
		select {
		case <-free:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	const path = api + "/tasks/mother/tree?lines=true"
	var asking sync.WaitGroup
	for range treesMax {
		asking.Go(func() {
			if r := ask(t, s, http.MethodGet, path, ""); r.status != http.StatusOK {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	for range treesMax {
		<-reading
	}
	if p := problem(t, ask(t, s, http.MethodGet, path, ""), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "4 trees with events") {
		t.Error(p.Detail)
	}
	close(free)
	asking.Wait()
	if r := ask(t, s, http.MethodGet, path, ""); r.status != http.StatusOK {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
}

// TestTreeWithAChildThatCannotBeReadNow: a child that brokers don't deliver isn't missing: the request is repeated.
func TestTreeWithAChildThatCannotBeReadNow(t *testing.T) {
	w := newRecording(t)
	w.addFamily(t, "mother", 3, 10)
	s := w.console(t, nil)
	reads := 0
	w.stuck = func(context.Context) error {
		if reads++; reads > 1 {
			return fmt.Errorf("%w: no broker leads partition 1", ErrUnavailable)
		}
		return nil
	}
	p := problem(t, ask(t, s, http.MethodGet, api+"/tasks/mother/tree", ""), http.StatusServiceUnavailable)
	if !strings.Contains(p.Detail, "mother-0") || !strings.Contains(p.Detail, "no broker leads partition 1") {
		t.Error(p.Detail)
	}
}
