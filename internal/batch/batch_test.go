package batch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

var begin = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// Results returns what became of each task, in the order of the targets.
func (b *Batch) Results() []Result { return slices.Clone(b.results) }

// Count returns the number of tasks by status.
func (b *Batch) Count() map[Status]int {
	n := map[Status]int{}
	for i := range b.results {
		n[b.results[i].Status]++
	}
	return n
}

func held(n int) (targets []Target) {
	for i := range n {
		targets = append(targets, Target{Task: fmt.Sprintf("o-%d", i), Workflow: "order", Version: 1, State: events.StateError, Step: "charge", Code: "tries_exhausted"})
	}
	return targets
}

var resubmit = events.Control{Command: events.Resubmit, By: events.By{Why: "a test"}}

// world answers a batch's commands and has its tasks. Commands take a second to have their outcome.
type world struct {
	now      time.Time
	sent     map[string]int // commands by task
	requests map[string]bool
	times    []time.Time
	outcome  func(task string) events.TaskState // of an accepted command, or "" for refused
	at       map[string]time.Time
	most     int // commands; then it is killed. 0: no bound
}

func newWorld(outcome func(task string) events.TaskState) *world {
	return &world{now: begin, sent: map[string]int{}, requests: map[string]bool{}, outcome: outcome, at: map[string]time.Time{}}
}

func (w *world) run(t *testing.T, b *Batch) {
	t.Helper()
	for range 1_000_000 {
		do := b.Next(w.now)
		if do.Ended {
			return
		}
		for _, x := range do.Send {
			if w.most > 0 && len(w.times) >= w.most {
				return
			}
			w.sent[x.Task]++
			w.times = append(w.times, w.now)
			if w.at[x.Task].IsZero() {
				w.at[x.Task] = w.now
			}
			w.requests[x.RequestID] = true
			a := &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: w.outcome(x.Task) != "", State: events.StateProcessing, Reason: "its state"}
			b.Answered(w.now, x.Task, a, "")
		}
		for _, task := range do.Look {
			v := &events.TaskView{ID: task, State: events.StateProcessing}
			if w.now.Sub(w.at[task]) >= time.Second {
				v.State = w.outcome(task)
			}
			if v.State == events.StateError {
				v.Error = &events.Error{Code: "tries_exhausted"}
			}
			b.Observed(task, v)
		}
		w.now = w.now.Add(10 * time.Millisecond)
	}
	t.Fatal("the batch doesn't end")
}

func processed(string) events.TaskState { return events.StateProcessed }

func TestCanaryThenTheRestAtARate(t *testing.T) {
	w := newWorld(processed)
	b := New("b-1", resubmit, Plan{Rate: 20, Canary: 2, CanaryWithin: time.Minute}, held(50), nil)
	w.run(t, b)
	if n := b.Count(); n[Passed]+n[Accepted] != 50 || n[Passed] < 2 || len(w.sent) != 50 {
		t.Fatalf("%v", n)
	}
	if gap := w.times[2].Sub(w.times[1]); gap < time.Second {
		t.Errorf("the rest began %s after the canary, whose outcome takes 1s", gap)
	}
	if took := w.times[49].Sub(w.times[2]); took < 2*time.Second || took > 4*time.Second {
		t.Errorf("48 commands at 20 a second took %s", took)
	}
}

func TestCanaryRecurs(t *testing.T) {
	w := newWorld(func(string) events.TaskState { return events.StateError })
	b := New("b-1", resubmit, Plan{Canary: 2, CanaryWithin: time.Minute}, held(50), nil)
	w.run(t, b)
	why, timedOut := b.Stopped()
	if n := b.Count(); n[Recurred] == 0 || n[Waiting] != 48 || why == "" || timedOut {
		t.Errorf("%v: %q", n, why)
	}
}

func TestRecursInTheSample(t *testing.T) {
	w := newWorld(func(task string) events.TaskState {
		if task == "o-30" {
			return events.StateError
		}
		return events.StateProcessed
	})
	b := New("b-1", resubmit, Plan{Rate: 5, Canary: 1, CanaryWithin: time.Minute}, held(200), nil)
	w.run(t, b)
	if why, _ := b.Stopped(); why != "the fault recurred: o-30 is held again (tries_exhausted)" || b.Count()[Waiting] < 150 {
		t.Errorf("%v: %q", b.Count(), why)
	}
}

func TestCanaryTakesTooLong(t *testing.T) {
	w := newWorld(func(string) events.TaskState { return events.StateProcessing })
	b := New("b-1", resubmit, Plan{Canary: 1, CanaryWithin: 5 * time.Second}, held(3), nil)
	w.run(t, b)
	if _, timedOut := b.Stopped(); !timedOut || b.Count()[Waiting] != 2 || w.now.Sub(begin) < 5*time.Second {
		t.Errorf("%v after %s", b.Count(), w.now.Sub(begin))
	}
	// Continued with more time: the canary isn't sent again.
	w.outcome = processed
	again := New("b-1", resubmit, Plan{Canary: 1, CanaryWithin: time.Minute}, held(3), b.Results())
	w.run(t, again)
	if again.Count()[Waiting] != 0 || w.sent["o-0"] != 1 {
		t.Errorf("%v, %v", again.Count(), w.sent)
	}
}

func TestAllCanariesRefused(t *testing.T) {
	w := newWorld(func(string) events.TaskState { return "" })
	b := New("b-1", resubmit, Plan{Canary: 1, CanaryWithin: time.Second}, held(3), nil)
	w.run(t, b)
	if why, _ := b.Stopped(); why != "no canary passed: its state" || b.Count()[Waiting] != 2 {
		t.Errorf("%v: %q", b.Count(), why)
	}
	b = New("b-2", resubmit, Plan{}, held(3), nil)
	if w.run(t, b); b.Count()[Refused] != 3 {
		t.Errorf("%v", b.Count())
	}
}

// TestContinued: a batch that is killed anywhere and started again, with or without its results, sends the same request
// ids, so that no task gets a second command.
func TestContinued(t *testing.T) {
	for _, most := range []int{1, 2, 7, 30} {
		for _, kept := range []bool{true, false} {
			w := newWorld(processed)
			w.most = most
			plan := Plan{Canary: 2, CanaryWithin: time.Minute}
			first := New("b-1", resubmit, plan, held(30), nil)
			w.run(t, first)
			w.most = 0
			var earlier []Result
			if kept {
				earlier = first.Results()
			}
			again := New("b-1", resubmit, plan, held(30), earlier)
			w.run(t, again)
			if len(w.requests) != 30 || again.Count()[Waiting]+again.Count()[Sent] != 0 {
				t.Errorf("killed after %d: %d request ids, %v", most, len(w.requests), again.Count())
			}
			for task, n := range w.sent {
				if kept && n != 1 {
					t.Errorf("%s got %d commands", task, n)
				}
			}
		}
	}
	if RequestID("b-1", "o-1") == RequestID("b-2", "o-1") || RequestID("b-1", "o-1") == RequestID("b-1", "o-2") {
		t.Error("two commands have one request id")
	}
}

// TestRecurredIsContinued: the fault recurred in the sample, and the batch was interrupted before its end was written. Its next
// sender sends no other command.
func TestRecurredIsContinued(t *testing.T) {
	w := newWorld(func(task string) events.TaskState {
		if task == "o-0" {
			return events.StateProcessed
		}
		return events.StateError
	})
	plan := Plan{Rate: 10, Canary: 1, CanaryWithin: time.Minute}
	first := New("b-1", resubmit, plan, held(100), nil)
	w.run(t, first)
	sent := len(w.sent)
	if n := first.Count(); n[Recurred] == 0 || n[Waiting] == 0 {
		t.Fatalf("%v", n)
	}
	again := New("b-1", resubmit, plan, held(100), first.Results())
	w.run(t, again)
	if why, _ := again.Stopped(); len(w.sent) != sent || !strings.Contains(why, "recurred") {
		t.Errorf("%d more commands; stopped: %q", len(w.sent)-sent, why)
	}
}

// TestUnansweredIsSentAgain: after a pause, with the same request id. A batch that is stopped meanwhile ends.
func TestUnansweredIsSentAgain(t *testing.T) {
	b := New("b-1", resubmit, Plan{}, held(100), nil)
	do := b.Next(begin)
	if len(do.Send) != InFlightMax {
		t.Fatalf("%d commands at once", len(do.Send))
	}
	for _, x := range do.Send {
		b.Answered(begin, x.Task, nil, "no answer within 30s")
	}
	first := do.Send
	if do = b.Next(begin); do.Ended || len(do.Send) > 0 || !do.Until.Equal(begin.Add(RetryPause)) || b.Count()[Unanswered] != InFlightMax || b.Trouble() == "" {
		t.Errorf("%+v, %v", do, b.Count())
	}
	if do = b.Next(begin.Add(RetryPause)); !slices.EqualFunc(do.Send, first, func(x, y events.Control) bool { return x.Task == y.Task && x.RequestID == y.RequestID }) {
		t.Errorf("%+v", do)
	}
	b.Answered(begin, first[0].Task, &events.Answer{Accepted: true}, "")
	b.Stop("enough")
	for _, x := range first[1:] {
		b.Answered(begin, x.Task, nil, "no answer within 30s")
	}
	if do = b.Next(begin.Add(time.Hour)); !do.Ended || b.Count()[Unanswered] != InFlightMax-1 {
		t.Errorf("%+v, %v", do, b.Count())
	}
}

// TestUnreadableCanary checks that a batch says which task it can't read, until it can, and when the canary's time is over.
func TestUnreadableCanary(t *testing.T) {
	b := New("b-1", resubmit, Plan{Canary: 2, CanaryWithin: 5 * time.Second}, held(5), nil)
	for _, x := range b.Next(begin).Send {
		b.Answered(begin, x.Task, &events.Answer{Accepted: true, State: events.StateProcessing}, "")
	}
	if do := b.Next(begin); len(do.Look) != 2 {
		t.Fatalf("%+v", do)
	}
	b.ObservationFailed("o-4", "its state isn't read")
	b.ObservationFailed("o-1", "no leader")
	b.ObservationFailed("o-0", "no leader")
	if got, want := b.Trouble(), "the state of o-0 can't be read: no leader; it is read again"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Observed("o-0", &events.TaskView{State: events.StateProcessing})
	if got, want := b.Trouble(), "the state of o-1 can't be read: no leader; it is read again"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Observed("o-1", &events.TaskView{State: events.StateProcessed})
	if b.Trouble() != "" {
		t.Errorf("%q", b.Trouble())
	}
	b.ObservationFailed("o-1", "its state isn't read any more")
	b.ObservationFailed("o-0", "no broker")
	do := b.Next(begin.Add(5 * time.Second))
	why, timedOut := b.Stopped()
	if want := "1 of 2 canaries haven't passed within 5s: the state of o-0 can't be read: no broker"; why != want || !timedOut || !do.Ended || b.Trouble() != "" {
		t.Errorf("%q, %v, want %q; %+v, %q", why, timedOut, want, do, b.Trouble())
	}
}

func TestSelectAndPreview(t *testing.T) {
	listed := append(held(3), Target{Task: "p-1", Workflow: "order", Version: 1, State: events.StateProcessed}, Target{Task: "h-1", Workflow: "pay", Version: 2, State: events.StateError, Step: "x", Code: "rejected"})
	targets, left := Select(&resubmit, listed)
	want := []Group{{"order", 1, events.StateError, "charge", "tries_exhausted", 3, "o-0"}, {"pay", 2, events.StateError, "x", "rejected", 1, "h-1"}}
	if got := Preview(targets); left != 1 || !slices.Equal(got, want) {
		t.Errorf("%d, %+v", left, got)
	}
	undo := events.Control{Command: events.UndoTask}
	if _, left := Select(&undo, listed); left != 1 {
		t.Errorf("%d tasks can't be undone, want the processed one", left)
	}
	undo.Processed = true
	if _, left := Select(&undo, listed); left != 0 {
		t.Errorf("%d tasks can't be undone with --processed", left)
	}
}

func TestPlanCheck(t *testing.T) {
	for _, p := range []Plan{{Rate: -1}, {Canary: -1}, {Canary: 1}, {Canary: CanaryMax + 1, CanaryWithin: 1}} {
		if p.Check() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
	if p := (Plan{Rate: 200, Canary: 1, CanaryWithin: time.Minute}); p.Check() != nil {
		t.Error(p.Check())
	}
}
