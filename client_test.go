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
	"github.com/waybill-run/waybill/internal/suite"
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

// testClients tests a client without a console, and one that asks it.
func testClients(t *testing.T, s *system) {
	t.Run("log", func(t *testing.T) { testClient(t, s, "t-") })
	asking := *s
	asking.console.URL = s.address
	t.Run("console", func(t *testing.T) {
		testClient(t, &asking, "c-")
		testQueries(t, &asking, "c-")
	})
}

// testQueries asks for the tasks of testClient.
func testQueries(t *testing.T, s *system, prefix string) {
	ctx, c := within(t), s.open(t)
	listed := map[string]waybill.State{}
	for task, err := range c.List(ctx, waybill.Query{Workflow: "trip", Version: 1, States: []waybill.State{waybill.Processed, waybill.Cancelled}}) {
		if err != nil {
			t.Fatal(err)
		}
		listed[task.ID] = task.State
	}
	if listed[prefix+"ok"] != waybill.Processed || listed[prefix+"full"] != waybill.Cancelled || listed[prefix+"long"] != waybill.Cancelled {
		t.Errorf("listed: %v", listed)
	}
	for _, err := range c.List(ctx, waybill.Query{}) {
		if err != nil {
			t.Error(err)
		}
		break // the rest isn't asked for
	}
	timeline, err := c.Timeline(ctx, prefix+"ok")
	if err != nil || len(timeline) < 3 || timeline[0].Type != "waybill.task.received.v1" || timeline[len(timeline)-1].Type != "waybill.task.processed.v1" {
		t.Errorf("timeline %+v, %v", timeline, err)
	}
	followed := 0
	for e, err := range c.Follow(ctx, prefix+"ok") {
		if err != nil || followed >= len(timeline) || e.Seq != timeline[followed].Seq {
			t.Fatalf("event %d: %+v, %v", followed, e, err)
		}
		followed++
	}
	if followed != len(timeline) {
		t.Errorf("%d of %d events", followed, len(timeline))
	}
	if _, err := c.Timeline(ctx, prefix+"nobody"); !errors.Is(err, waybill.ErrNotFound) {
		t.Error(err)
	}
	for _, err := range c.Follow(ctx, prefix+"nobody") {
		if !errors.Is(err, waybill.ErrNotFound) {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(ctx, prefix+"ok"); !errors.Is(err, waybill.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func testClient(t *testing.T, s *system, prefix string) {
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
	must(c.Submit(ctx, order(prefix+"ok", "ok")))
	task := ends(c, prefix+"ok", waybill.Processed)
	if string(task.Output) != `{"booked":"`+prefix+`ok"}` || task.LockedBy == nil || task.Steps[0].State != "completed" {
		t.Errorf("got %+v", task)
	}
	other := s.open(t)
	late := ends(other, prefix+"ok", waybill.Processed)
	late.AsOf = task.AsOf
	if got, err := c.Get(ctx, prefix+"ok"); err != nil || asJSON(t, got, task) != asJSON(t, task, task) || asJSON(t, late, task) != asJSON(t, task, task) {
		t.Errorf("Get: %v\n%s\nWait:\n%s\nanother client's Wait:\n%s", err, asJSON(t, got, task), asJSON(t, task, task), asJSON(t, late, task))
	}

	// The same order again changes nothing. Another order with its id is refused.
	must(other.Submit(ctx, order(prefix+"ok", "ok")))
	ends(other, prefix+"ok", waybill.Processed)
	fresh := s.open(t)
	must(fresh.Submit(ctx, order(prefix+"ok", "ok")))
	ends(fresh, prefix+"ok", waybill.Processed)
	cancelled, end := context.WithCancel(ctx)
	end()
	if err := other.Submit(cancelled, order(prefix+"ok", "otherwise")); err == nil {
		t.Error("an order was submitted, and its context had ended")
	}
	ends(other, prefix+"ok", waybill.Processed) // an unwritten order says nothing about the existing task
	must(c.Submit(ctx, order(prefix+"ok", "otherwise")))
	_, err := c.Wait(ctx, prefix+"ok")
	refused(err, "id_conflict")
	must(c.Submit(ctx, waybill.Order{ID: prefix + "none", Workflow: "nowhere"}))
	_, err = c.Wait(ctx, prefix+"none")
	refused(err, `unknown_workflow: no workflow "nowhere"`)

	// A task is held, and then cancelled.
	must(c.Submit(ctx, order(prefix+"full", "reject")))
	if task := ends(c, prefix+"full", waybill.Held); task.Error == nil || task.Error.Code != "full" {
		t.Errorf("held with %+v", task.Error)
	}
	must(c.Cancel(ctx, prefix+"full", waybill.CancelOptions{Why: "nobody waits for a seat"}))
	ends(c, prefix+"full", waybill.Cancelled)
	refused(c.Cancel(ctx, prefix+"full", waybill.CancelOptions{}), "is cancelled")

	// A task is cancelled while it runs, and its completed steps are undone.
	must(c.Submit(ctx, order(prefix+"long", "wait")))
	<-a.begun
	for within := 300 * time.Millisecond; ; within *= 2 { // a busy machine may read none of its events in that time
		short, cancel := context.WithTimeout(ctx, within)
		_, err := c.Wait(short, prefix+"long")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || within > suite.Patience {
			t.Fatalf("within %s: got %v", within, err)
		}
		if strings.Contains(err.Error(), "it is processing") {
			break
		}
	}
	again := waybill.CancelOptions{RequestID: "cancel-" + prefix + "long"}
	must(c.Cancel(ctx, prefix+"long", again))
	must(other.Cancel(ctx, prefix+"long", again))
	close(a.proceed)
	ends(c, prefix+"long", waybill.Cancelled)
	a.mu.Lock()
	if len(a.undone) != 1 || !a.undone[prefix+"long"] {
		t.Errorf("undone: %v", a.undone)
	}
	a.mu.Unlock()

	if err := c.Cancel(ctx, prefix+"nobody", waybill.CancelOptions{}); !errors.Is(err, waybill.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Get(ctx, prefix+"nobody"); !errors.Is(err, waybill.ErrNotFound) {
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
