package waybill_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
)

// travel is the agent of the workflow trip. The input of an order selects its behaviour.
type travel struct {
	mu      sync.Mutex
	undone  map[string]bool
	begun   chan string   // tasks whose booking waits
	proceed chan struct{} // lets waiting bookings continue
}

type trip struct {
	How string `json:"how"`
}

func (a *travel) Handle(ctx context.Context, r agent.Request) (any, error) {
	if r.Kind == agent.Undo {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.undone[r.Task] = true
		return nil, nil
	}
	var in trip
	if err := r.Into(&in); err != nil {
		return nil, err
	}
	switch in.How {
	case "reject":
		return nil, agent.Rejected("full", "no seat is left")
	case "wait":
		a.begun <- r.Task
		select {
		case <-a.proceed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string]string{"booked": r.Task}, nil
}

// serve runs the agent until stop is called or the test ends. It must not fail.
func (s *system) serve(t *testing.T, name string, h agent.Handler, options ...waybill.ServeOption) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- waybill.Serve(ctx, s.config(), name, h, options...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func order(id, how string) waybill.Order {
	return waybill.Order{ID: id, Workflow: "trip", Input: trip{how}}
}

func testClient(t *testing.T, s *system) {
	ctx, c := within(t), s.open(t)
	a := &travel{undone: map[string]bool{}, begun: make(chan string, 1), proceed: make(chan struct{})}
	s.serve(t, "travel", a, waybill.Concurrency(8))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ends := func(c *waybill.Client, id string, want waybill.State) waybill.Task {
		t.Helper()
		task, err := c.Wait(ctx, id)
		if err != nil || task.State != want {
			t.Fatalf("task %s: %s (%v), %v; want %s", id, task.State, task.Error, err, want)
		}
		return task
	}
	refused := func(err error, reason string) {
		t.Helper()
		var r *waybill.RefusedError
		if !errors.As(err, &r) || !strings.Contains(r.Reason, reason) {
			t.Fatalf("got %v, want it refused with %q", err, reason)
		}
	}

	// It is processed, and other clients can wait for it later.
	must(c.Submit(ctx, order("t-ok", "ok")))
	task := ends(c, "t-ok", waybill.Processed)
	if string(task.Output) != `{"booked":"t-ok"}` || task.LockedBy == nil || task.Steps[0].State != "completed" {
		t.Errorf("got %+v", task)
	}
	other := s.open(t)
	late := ends(other, "t-ok", waybill.Processed)
	late.AsOf = task.AsOf
	if got, err := c.Get(ctx, "t-ok"); err != nil || asJSON(t, got, task) != asJSON(t, task, task) || asJSON(t, late, task) != asJSON(t, task, task) {
		t.Errorf("Get: %v\n%s\nWait:\n%s\nanother client's Wait:\n%s", err, asJSON(t, got, task), asJSON(t, task, task), asJSON(t, late, task))
	}

	// The same order again changes nothing. Another order with its id is refused.
	must(other.Submit(ctx, order("t-ok", "ok")))
	ends(other, "t-ok", waybill.Processed)
	fresh := s.open(t)
	must(fresh.Submit(ctx, order("t-ok", "ok")))
	ends(fresh, "t-ok", waybill.Processed)
	cancelled, end := context.WithCancel(ctx)
	end()
	if err := other.Submit(cancelled, order("t-ok", "otherwise")); err == nil {
		t.Error("an order was submitted, and its context had ended")
	}
	ends(other, "t-ok", waybill.Processed) // an unwritten order says nothing about the existing task
	must(c.Submit(ctx, order("t-ok", "otherwise")))
	_, err := c.Wait(ctx, "t-ok")
	refused(err, "id_conflict")
	must(c.Submit(ctx, waybill.Order{ID: "t-none", Workflow: "nowhere"}))
	_, err = c.Wait(ctx, "t-none")
	refused(err, `unknown_workflow: no workflow "nowhere"`)

	// A task is held, and then cancelled.
	must(c.Submit(ctx, order("t-full", "reject")))
	if task := ends(c, "t-full", waybill.Held); task.Error == nil || task.Error.Code != "full" {
		t.Errorf("held with %+v", task.Error)
	}
	must(c.Cancel(ctx, "t-full", waybill.CancelOptions{Why: "nobody waits for a seat"}))
	ends(c, "t-full", waybill.Cancelled)
	refused(c.Cancel(ctx, "t-full", waybill.CancelOptions{}), "is cancelled")

	// A task is cancelled while it runs, and its completed steps are undone.
	must(c.Submit(ctx, order("t-long", "wait")))
	<-a.begun
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(short, "t-long"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it is processing") {
		t.Errorf("got %v", err)
	}
	again := waybill.CancelOptions{RequestID: "cancel-t-long"}
	must(c.Cancel(ctx, "t-long", again))
	must(other.Cancel(ctx, "t-long", again))
	close(a.proceed)
	ends(c, "t-long", waybill.Cancelled)
	a.mu.Lock()
	if len(a.undone) != 1 || !a.undone["t-long"] {
		t.Errorf("undone: %v", a.undone)
	}
	a.mu.Unlock()

	if err := c.Cancel(ctx, "t-nobody", waybill.CancelOptions{}); !errors.Is(err, waybill.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Get(ctx, "t-nobody"); !errors.Is(err, waybill.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	err = waybill.Serve(ctx, s.config(), "nobody", a)
	if err == nil || !strings.Contains(err.Error(), "requests.nobody doesn't exist; apply a workflow") {
		t.Errorf("got %v", err)
	}
}

// asJSON returns a task as JSON, with the position of another.
func asJSON(t *testing.T, task, as waybill.Task) string {
	t.Helper()
	task.AsOf = as.AsOf
	b, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// testMany waits for many tasks concurrently, with the client that submitted them and with another one.
func testMany(t *testing.T, s *system) {
	const tasks = 1000
	ctx, mine, theirs := within(t), s.open(t), s.open(t)
	s.serve(t, "guide", agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return nil, nil }))
	orders := make([]waybill.Order, tasks)
	for i := range orders {
		orders[i] = waybill.Order{ID: fmt.Sprintf("many-%d", i), Workflow: "tour"}
	}
	var g errgroup.Group
	for _, c := range []*waybill.Client{mine, theirs} {
		for _, o := range orders {
			g.Go(func() error {
				task, err := c.Wait(ctx, o.ID)
				if err == nil && task.State != waybill.Processed {
					err = fmt.Errorf("task %s is %s", o.ID, task.State)
				}
				return err
			})
		}
	}
	begun := time.Now()
	if err := mine.Submit(ctx, orders...); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tasks, each waited for twice: %v", tasks, time.Since(begun))
}
