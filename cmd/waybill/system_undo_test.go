package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestHoldAndUndo: with on_error hold, a task with a permanent failure is held until an operator continues it. With
// undo, steps that may have taken effect are undone first, then completed steps in reverse order. No effect is left,
// even of calls that arrive after their complete-by. An undo that keeps failing is held, and can be resubmitted or
// released.
func TestHoldAndUndo(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	files := []string{quickWorkflow(t, "holding", "hold", 2), quickWorkflow(t, "undoing", "undo", 2),
		// Only the cancel ends its charge, however long that takes on a busy machine.
		quickWorkflow(t, "cancelling", "undo", 1000)}
	t.Run(kafkatest.EmbeddedKind, func(t *testing.T) {
		u := startUpProcess(t, "--workflow", files[0], "--workflow", files[1], "--workflow", files[2])
		holdAndUndo(t, &u.system)
		u.stop(t)
	})
	t.Run(kafkatest.KafkaKind, func(t *testing.T) {
		s := onBroker(t, kafkatest.Kafka(t), files...)
		s.start(t, "scheduler", "--session-timeout", shortSession)
		s.start(t, "supervisor", "--session-timeout", shortSession)
		holdAndUndo(t, s)
	})
}

// The orders of this test. The troubles decide what happens to each, or else its card does.
const (
	blocked    = "blocked"     // its charge is rejected until the cause is fixed
	unanswered = "unanswered"  // its ship takes effect, but its reply is lost
	lateBefore = "late-before" // its charge takes effect late, before its undo
	lateAfter  = "late-after"  // its charge takes effect late, after its undo
	slowShip   = "slow-ship"   // charged late, then ship is rejected
	slow1      = "slow-1"      // charged late by the service itself, and cancelled
	slow2      = "slow-2"
	stuck1     = "stuck-1" // its undo keeps failing; resubmitted
	stuck2     = "stuck-2" // its undo keeps failing; released
)

// cancelled is the prefix of the mark that an order was cancelled; the order's id follows.
const cancelled = "cancelled "

func holdAndUndo(t *testing.T, s *system) {
	trouble := newTroubles()
	shop := openShop(t, trouble.answer)
	trouble.shop = shop
	s.agents(t, shop)
	seen := observe(t, s)
	var orders bytes.Buffer
	for id, card := range map[string]string{blocked: demo.CardWorks, unanswered: demo.CardWorks, lateBefore: demo.CardWorks, lateAfter: demo.CardWorks,
		slowShip: demo.CardSlow, slow1: demo.CardSlow, slow2: demo.CardSlow, stuck1: demo.CardStuckUndo, stuck2: demo.CardStuckUndo} {
		workflow := "undoing"
		switch id {
		case blocked:
			workflow = "holding"
		case lateBefore, lateAfter, slow1, slow2:
			workflow = "cancelling"
		}
		fmt.Fprintf(&orders, `{"id":%q,"workflow":%q,"input":{"items":[],"total":9.5,"card":%q,"address":"1 Harbour Road"}}`+"\n", id, workflow, card)
	}
	s.waybill(t, exitOK, "submit", "-f", writeFile(t, "orders.jsonl", orders.Bytes()))

	for _, id := range []string{lateBefore, lateAfter, slow1, slow2} {
		trouble.awaitCall(t, id+"/charge/do/1")
		s.waybill(t, exitOK, "task", "cancel", id, "--why", "the customer changed his mind")
		trouble.mark(cancelled + id)
	}
	resumeHeld(t, s, seen, trouble)
	for id, state := range map[string]events.TaskState{blocked: events.StateProcessed, unanswered: events.StateUndone, lateBefore: events.StateCancelled,
		lateAfter: events.StateCancelled, slowShip: events.StateUndone, slow1: events.StateCancelled, slow2: events.StateCancelled,
		stuck1: events.StateUndone, stuck2: events.StateUndone} {
		seen.awaitState(t, id, state)
	}
	close(trouble.deliver)
	trouble.late.Wait()
	shop.end(t)
	log := checkLog(t, s, testimony{seen.inputs, shop.ledger, []string{blocked, unanswered, lateBefore, lateAfter, slowShip, slow1, slow2, stuck1, stuck2}})
	if charge := log.Task(blocked).Steps[1]; charge.Key == trouble.rejectedKey {
		t.Errorf("the charge that was rejected under the key %s was resubmitted under the same", charge.Key)
	}
	checkUndone(t, shop.ledger)
}

// resumeHeld finds the held tasks and continues them, as an operator does.
func resumeHeld(t *testing.T, s *system, seen *observer, trouble *troubles) {
	t.Helper()
	held := []string{blocked, stuck1, stuck2}
	for _, id := range held {
		seen.awaitState(t, id, events.StateError)
	}
	var list []events.TaskView
	if err := json.Unmarshal([]byte(s.waybill(t, exitOK, "task", "list", "--state", "error", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, v := range list {
		listed = append(listed, v.ID)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, held) {
		t.Errorf("task list --state error: %v, want %v", listed, held)
	}
	alerts := s.broker.ReadTopic(t, s.ns.Alerts())
	for id, want := range map[string]string{blocked: "card_blocked", stuck1: events.CodeTriesExhausted, stuck2: events.CodeTriesExhausted} {
		if !slices.ContainsFunc(alerts, func(r events.Record) bool {
			a, err := events.DecodeAlert(&r)
			return err == nil && a.Task == id && a.Code == want && a.Step == "charge"
		}) {
			t.Errorf("no alert %s of the charge of %s", want, id)
		}
	}
	if v := s.task(t, stuck1); v.Steps[1].Undo == nil || v.Steps[1].Undo.State != events.StepError {
		t.Errorf("%s is held with %+v, want the undo of charge in error", stuck1, v.Steps[1].Undo)
	}
	s.waybill(t, exitOK, "release", stuck2, "charge", "--as", "undone", "--why", "refunded by hand")
	trouble.repair()
	s.waybill(t, exitOK, "resubmit", stuck1, "--why", "refunds work again")
	trouble.unblock()
	s.waybill(t, exitOK, "resubmit", blocked, "--why", "the bank has unblocked the card")
}

// checkUndone compares the ledger with what is expected: each effect has its undo, except those of processed tasks and
// of tasks settled by hand.
func checkUndone(t *testing.T, ledger string) {
	t.Helper()
	entries, err := demo.ReadLedger(ledger)
	if err != nil {
		t.Fatal(err)
	}
	effects, undone := map[string]string{}, map[string]bool{} // by key; an effect's request
	var order []string                                        // the order in which steps of unanswered were undone
	for _, e := range entries {
		switch e.What {
		case demo.Effect:
			if effects[e.Key] != "" {
				t.Errorf("two effects for the key %s", e.Key)
			}
			effects[e.Key] = e.Request
		case demo.Undone, demo.Nothing:
			undone[e.UndoOf] = true
			if task, ref, err := events.ParseRequestID(e.Request); err == nil && task == unanswered {
				order = append(order, ref.Step)
			}
		}
	}
	left := map[string]int{}
	for key, request := range effects {
		if !undone[key] {
			task, ref, err := events.ParseRequestID(request)
			if err != nil {
				t.Fatal(err)
			}
			left[task+"/"+ref.Step]++
		}
	}
	want := map[string]int{blocked + "/reserve": 1, blocked + "/charge": 1, blocked + "/ship": 1, stuck2 + "/charge": 1}
	if fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("effects without undo: %v, want %v", left, want)
	}
	if want := []string{"ship", "charge", "reserve"}; !slices.Equal(order, want) {
		t.Errorf("%s was undone in the order %v, want %v: first what is unknown, then what completed, the last first", unanswered, order, want)
	}
	kinds := map[string][]demo.What{}
	for _, e := range entries {
		if task, ref, err := events.ParseRequestID(e.Request); err == nil && ref.Step == "charge" && e.What != demo.Called {
			kinds[task] = append(kinds[task], e.What)
		}
	}
	for id, want := range map[string][]demo.What{lateBefore: {demo.Effect, demo.Undone}, lateAfter: {demo.Nothing}} {
		if !slices.Equal(kinds[id], want) {
			t.Errorf("the ledger has for the charge of %s %v, want %v", id, kinds[id], want)
		}
	}
	t.Logf("%d effects, %d undone or barred; slow ones by themselves: %v, %v", len(effects), len(undone), kinds[slow1], kinds[slow2])
}

// troubles injects failures between the agents and the services.
type troubles struct {
	shop    *shop
	deliver chan struct{}  // closed: the late calls of late-after arrive now
	late    sync.WaitGroup // those deliveries

	mu          sync.Mutex
	open        bool // the card is unblocked
	refunds     bool // refunds of tok_stuck_undo succeed
	rejectedKey string
	calls       map[string]chan struct{} // by request: closed when it is called
}

func newTroubles() *troubles {
	return &troubles{deliver: make(chan struct{}), calls: map[string]chan struct{}{}}
}

func (x *troubles) unblock() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = true
}

// repair makes undos of tok_stuck_undo succeed from now on.
func (x *troubles) repair() {
	x.shop.Repair()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refunds = true
}

// called returns a channel that is closed once the request has arrived.
func (x *troubles) called(request string) chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.calls[request] == nil {
		x.calls[request] = make(chan struct{})
	}
	return x.calls[request]
}

func (x *troubles) awaitCall(t *testing.T, request string) {
	t.Helper()
	select {
	case <-x.called(request):
	case <-time.After(suite.Patience):
		t.Fatalf("%s was never called", request)
	}
}

// mark closes the channel of a request, once.
func (x *troubles) mark(request string) {
	c := x.called(request)
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

// answer injects the failure for an order. If it returns true, the services don't get the call.
func (x *troubles) answer(w http.ResponseWriter, r *http.Request) bool {
	request := r.Header.Get("X-Waybill-Request")
	task, ref, err := events.ParseRequestID(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return true
	}
	x.mark(request)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return true // the caller has disconnected
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	arrive := func() {
		late := r.Clone(context.Background())
		late.Body = io.NopCloser(bytes.NewReader(body))
		x.shop.ServeHTTP(httptest.NewRecorder(), late)
	}
	switch task + "/" + ref.Step + "/" + string(ref.Kind) {
	case blocked + "/charge/do":
		return x.reject(w, r)
	case slowShip + "/ship/do":
		http.Error(w, `{"code":"no_such_address","message":"nobody lives there"}`, http.StatusUnprocessableEntity)
	case unanswered + "/ship/do":
		arrive()
		<-r.Context().Done()
	case lateBefore + "/charge/do":
		<-r.Context().Done()
		arrive()
		x.mark("late " + lateBefore)
	case lateBefore + "/charge/undo":
		<-x.called("late " + lateBefore)
		return false
	case lateAfter + "/charge/do":
		x.late.Go(func() {
			<-x.deliver
			arrive()
		})
		<-r.Context().Done()
	case slow1 + "/charge/do", slow2 + "/charge/do":
		if ref.Attempt > 1 { // on a busy machine it would be answered, and the order processed, before it is cancelled
			select {
			case <-x.called(cancelled + task):
			case <-r.Context().Done():
			}
		}
		return false
	default:
		return !x.repaired() && refundsAreDown(w, r, body)
	}
	return true
}

func (x *troubles) repaired() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refunds
}

func (x *troubles) reject(w http.ResponseWriter, r *http.Request) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open {
		return false
	}
	x.rejectedKey = r.Header.Get("Idempotency-Key")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = io.Copy(w, strings.NewReader(`{"code":"card_blocked","message":"ask your bank"}`)) // the caller may have disconnected
	return true
}
