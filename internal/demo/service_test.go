package demo

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

func openServices(t *testing.T, path string) *Services {
	t.Helper()
	w, err := OpenServices(path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func charge(key, card string, within time.Duration) Call {
	input, _ := json.Marshal(map[string]string{"card": card})
	return Call{Service: "payments", Operation: "charge", Key: key, Deadline: time.Now().Add(within), Input: input}
}

func refund(key, of, card string) Call {
	input, _ := json.Marshal(map[string]string{"card": card})
	return Call{Service: "payments", Operation: "refund", Key: key, UndoKey: of, UndoInput: input, Deadline: time.Now().Add(time.Second)}
}

// do makes a call whose caller waits until the call's deadline.
func do(t *testing.T, w *Services, c Call) error {
	ctx, cancel := context.WithDeadline(t.Context(), c.Deadline)
	defer cancel()
	_, err := w.Do(ctx, c)
	return err
}

func what(t *testing.T, path string) string {
	t.Helper()
	es, err := ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range es {
		s = append(s, string(e.What))
	}
	return strings.Join(s, " ")
}

// TestServiceIsIdempotent: a call takes effect once per key, also across a restart, and never after its undo. The undo
// of an effect that never happened succeeds.
func TestServiceIsIdempotent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w := openServices(t, path)
	for range 2 {
		if err := do(t, w, charge("k", CardWorks, time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = openServices(t, path)
	if err := do(t, w, charge("k", CardWorks, time.Second)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := do(t, w, refund("u", "k", CardWorks)); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(t, w, refund("u2", "never", CardWorks)); err != nil {
		t.Fatal(err)
	}
	var f *Failure
	if err := do(t, w, charge("never", CardWorks, time.Second)); !errors.As(err, &f) || !f.Permanent {
		t.Errorf("a charge after its undo: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := what(t, path), "call effect call call call undo call call nothing call"; got != want {
		t.Errorf("ledger: %s\nwant:   %s", got, want)
	}
}

// TestSlowCharge: tok_slow takes effect after its caller's deadline, unless it was undone before.
func TestSlowCharge(t *testing.T) {
	for _, undone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { slowCharge(t, undone) })
	}
}

func slowCharge(t *testing.T, undone bool) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w := openServices(t, path)
	if err := do(t, w, charge("k", CardSlow, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the first call: %v", err)
	}
	if undone {
		if err := do(t, w, refund("u", "k", CardSlow)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil { // waits for pending effects
		t.Fatal(err)
	}
	want := "call effect"
	if undone {
		want = "call call nothing"
	}
	if got := what(t, path); got != want {
		t.Errorf("undone %v: %s; want %s", undone, got, want)
	}
}

func TestMisbehaviour(t *testing.T) {
	w := openServices(t, filepath.Join(t.TempDir(), "ledger.jsonl"))
	var f *Failure
	if err := do(t, w, charge("a", CardDeclined, time.Second)); !errors.As(err, &f) || !f.Permanent {
		t.Errorf("declined: %v", err)
	}
	for i := range downFailures {
		if err := do(t, w, charge("b", CardDown, time.Second)); !errors.As(err, &f) || f.Permanent {
			t.Errorf("down, call %d: %v", i+1, err)
		}
	}
	if err := do(t, w, charge("b", CardDown, time.Second)); err != nil {
		t.Errorf("up again: %v", err)
	}
	if err := do(t, w, refund("u", "c", CardStuckUndo)); !errors.As(err, &f) {
		t.Errorf("stuck undo: %v", err)
	}
	for range stuckUndoFailures - 1 {
		if err := do(t, w, refund("u", "c", CardStuckUndo)); !errors.As(err, &f) {
			t.Errorf("stuck undo: %v", err)
		}
	}
	if err := do(t, w, refund("u", "c", CardStuckUndo)); err != nil {
		t.Errorf("no longer stuck: %v", err)
	}
	if err := do(t, w, refund("u2", "d", CardStuckUndo)); !errors.As(err, &f) {
		t.Errorf("stuck undo: %v", err)
	}
	w.Repair()
	if err := do(t, w, refund("u2", "d", CardStuckUndo)); err != nil {
		t.Errorf("repaired: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCheckLedger: CheckLedger reports a ledger that breaks a promise.
func TestCheckLedger(t *testing.T) {
	plan := events.NewPlan(events.OnErrorUndo, time.Hour, []events.PlanStep{{ID: "charge", Undo: &events.PlanUndo{}}})
	final := events.NewPlan(events.OnErrorUndo, time.Hour, []events.PlanStep{{ID: "ship"}})
	task := func(state events.TaskState, step events.StepState) func(string) *events.Task {
		return func(string) *events.Task {
			return &events.Task{ID: "t", State: state, Plan: plan, Steps: []*events.Step{{Run: events.Run{State: step, Key: "k"}}}}
		}
	}
	cancelled := func(keep bool, plan *events.Plan) func(string) *events.Task {
		return func(string) *events.Task {
			return &events.Task{ID: "t", State: events.StateCancelled, Keep: keep, Plan: plan,
				Steps: []*events.Step{{Run: events.Run{State: events.StepCancelled, Key: "k"}}}}
		}
	}
	effect, undo := Entry{What: Effect, Key: "k"}, Entry{What: Undone, UndoOf: "k"}
	for _, tt := range []struct {
		name, want string
		ledger     []Entry
		task       func(string) *events.Task
	}{
		{"good", "", []Entry{effect}, task(events.StateProcessed, events.StepCompleted)},
		{"undone", "", []Entry{effect, undo}, task(events.StateUndone, events.StepUndone)},
		{"twice", "P7", []Entry{effect, effect}, task(events.StateProcessed, events.StepCompleted)},
		{"never", "P7", nil, task(events.StateProcessed, events.StepCompleted)},
		{"not undone", "P6", []Entry{effect}, task(events.StateUndone, events.StepCancelled)},
		{"cancelled", "P6", []Entry{effect}, cancelled(false, plan)},
		{"cancelled, and barred before it came", "", []Entry{{What: Nothing, UndoOf: "k"}}, cancelled(false, plan)},
		{"cancelled, but kept", "", []Entry{effect}, cancelled(true, plan)},
		{"cancelled, and there is no undo", "", []Entry{effect}, cancelled(false, final)},
		{"an effect after its undo", "P6", []Entry{undo, effect}, task(events.StateUndone, events.StepUndone)},
		{"lost", "P1", nil, func(string) *events.Task { return nil }},
	} {
		got := ""
		if faults := CheckLedger(tt.ledger, tt.task, []string{"t"}); len(faults) > 0 {
			got = faults[0][:2]
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestParcelIsDelivered: a parcel is on its way for a few questions, each with its own key, and then delivered.
func TestParcelIsDelivered(t *testing.T) {
	w := openServices(t, filepath.Join(t.TempDir(), "ledger.jsonl"))
	defer w.Close()
	var all []string
	for i := range transitAsks + 2 {
		out, err := w.Do(t.Context(), Call{Service: "shipping", Operation: "track", Key: strconv.Itoa(i), Deadline: time.Now().Add(time.Second), Input: json.RawMessage(`{"parcel":"p-1"}`)})
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Status string }
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		all = append(all, got.Status)
	}
	if got, want := strings.Join(all, " "), "in_transit in_transit in_transit delivered delivered"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTransferReportsProgress: a transfer reports each step of its way, and takes effect at its end, once.
func TestTransferReportsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.jsonl")
		w := openServices(t, path)
		defer w.Close()
		reports := 0
		c := Call{Service: "payments", Operation: "transfer", Key: "k", Deadline: time.Now().Add(time.Hour), Input: json.RawMessage(`{}`),
			Progress: func(any) error { reports++; return nil }}
		for range 2 {
			if _, err := w.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		lost := errors.New("lost")
		c.Key, c.Progress = "k2", func(any) error { return lost }
		if _, err := w.Do(t.Context(), c); !errors.Is(err, lost) {
			t.Errorf("a transfer whose attempt is over goes on: %v", err)
		}
		if got := what(t, path); reports != 2*transferSteps || got != "call effect call" {
			t.Errorf("%d reports, ledger %q", reports, got)
		}
	})
}

// TestStatus checks what the service tells of a key: nothing while a call may still take effect, the result after it, and
// that there is none before a call and after an undo.
func TestStatus(t *testing.T) {
	w := openServices(t, filepath.Join(t.TempDir(), "ledger.jsonl"))
	status := func(key string) string {
		t.Helper()
		out, err := w.Do(t.Context(), Call{Service: "payments", Operation: "status", Key: "check of " + key, CheckKey: key, Deadline: time.Now().Add(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := status("k"); got != `{"outcome":"none"}` {
		t.Errorf("before the call: %s", got)
	}
	if err := do(t, w, charge("k", CardSlow, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if got := status("k"); got != `{"outcome":"unknown"}` && !strings.Contains(got, "completed") {
		t.Errorf("while it may happen: %s", got)
	}
	w.pending.Wait()
	out, err := w.Do(t.Context(), charge("k", CardSlow, time.Second))
	if got := status("k"); err != nil || got != `{"outcome":"completed","output":`+string(out)+`}` {
		t.Errorf("after it: %s, and the call's output is %s, %v", got, out, err)
	}
	if err := do(t, w, refund("u", "k", CardSlow)); err != nil {
		t.Fatal(err)
	}
	if got := status("k"); got != `{"outcome":"none"}` {
		t.Errorf("after its undo: %s", got)
	}
}
