package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

func program(t *testing.T, yaml string) *workflow.Program {
	t.Helper()
	def, err := workflow.ParseYAML("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	p, err := workflow.Compile(def)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const order = `
workflow: order
version: %d
on_error: undo
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: %d, backoff: 1s}}
steps:
  reserve: {agent: stock, operation: reserve, undo: {operation: free}}
  charge: {agent: bank, operation: charge, needs: [reserve], undo: {operation: refund}}
  ship: {agent: parcels, operation: ship, needs: [charge]%s}
`

// token is the token of every attempt.
const token = "recorded"

// history writes a task's records as a scheduler does. Each input has its time in seconds since the submission.
type history struct {
	t       *testing.T
	env     scheduler.Env
	task    *events.Task
	records []events.Record
	offset  int64
}

type one struct{ p *workflow.Program }

func (o one) Program(string, int) (*workflow.Program, bool) { return o.p, true }
func (o one) Applied(string, int) (*workflow.Program, scheduler.Absence) {
	return o.p, scheduler.Unknown
}

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func recordOf(t *testing.T, p *workflow.Program) *history { return recordUntil(t, p, time.Time{}) }

func emptyHistory(t *testing.T, p *workflow.Program) *history {
	return &history{t: t, env: scheduler.Env{Token: func(string, events.RequestRef) string { return token }, Namespace: events.DefaultNamespace, Source: "test", Definitions: one{p}, DefinitionsRead: true,
		Requests: map[string]int32{"stock": 1, "bank": 1, "parcels": 1, "mail": 1}}}
}

// recordUntil is recordOf for a submission with a complete-by.
func recordUntil(t *testing.T, p *workflow.Program, by time.Time) *history {
	h := emptyHistory(t, p)
	h.input(0, &events.Submission{ID: "o-1", Workflow: "order", Input: []byte(`{"total":5}`), CompleteBy: by})
	return h
}

func (h *history) input(seconds float64, in events.Input) {
	h.t.Helper()
	h.env.Now = noon.Add(time.Duration(seconds * float64(time.Second)))
	d := scheduler.Decide(h.task.Clone(), in, events.Cause{Inbox: inboxOf(in), Offset: h.offset}, &h.env)
	if len(d.Events) == 0 {
		h.t.Fatalf("%+v changed nothing: %v", in, d.Ignored)
	}
	h.took(d)
}

// inboxOf returns the inbox of an input.
func inboxOf(in events.Input) events.Inbox {
	switch in.(type) {
	case *events.Submission, *events.Withdrawal:
		return events.Tasks
	case *events.Recovery:
		return events.Recoveries
	case *events.Control:
		return events.Controls
	case *events.Reply:
		return events.Replies
	case *events.Signal:
		return events.Signals
	}
	panic(fmt.Sprintf("%T", in))
}

// took appends the events of a decision.
func (h *history) took(d scheduler.Decision) {
	if len(d.Events) > 0 {
		h.task = d.Task
	}
	for _, e := range d.Events {
		r := e.Record(h.env.Namespace, "test", 0, e.Value())
		r.Offset, r.Time = h.offset, e.At
		h.offset++
		h.records = append(h.records, r)
	}
}

func (h *history) reply(seconds float64, step string, attempt int, outcome events.Outcome, body string) {
	h.t.Helper()
	h.input(seconds, &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: step, Kind: events.Do, Attempt: attempt}, Token: token, Outcome: outcome,
		Effect: events.EffectNone, Body: []byte(body)})
}

// recover sends the recovery that the policy in the log asks for.
func (h *history) recover(seconds float64) {
	h.t.Helper()
	timers := &events.Timers{}
	for i := range h.records {
		e, err := events.DecodeEvent(&h.records[i])
		if err != nil {
			h.t.Fatal(err)
		}
		timers.Evolve(e)
	}
	now := noon.Add(time.Duration(seconds * float64(time.Second)))
	for _, a := range timers.Armed {
		if !a.Timer.Due.After(now) {
			h.input(seconds, a.Recovery("o-1", a.Policy.Next("o-1", a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now)))
			return
		}
	}
	h.t.Fatalf("nothing is due at %s", now)
}

// failed returns an order whose card was declined for a while. Its only attempt at the charge failed, and the order was
// undone.
func failed(t *testing.T) *history {
	h := recordOf(t, program(t, fmt.Sprintf(order, 1, 1, "")))
	h.decline()
	if h.task.State != events.StateUndone {
		t.Fatalf("the task is %s", h.task.State)
	}
	return h
}

// decline completes the reservation, declines the card, and undoes the reservation.
func (h *history) decline() {
	h.t.Helper()
	h.reply(1, "reserve", 1, events.Completed, `{"shelf":7}`)
	h.reply(2, "charge", 1, events.Failed, `{"code":"declined"}`)
	h.recover(2)
	h.input(3, &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: "reserve", Kind: events.Undo, Attempt: 1}, Token: token, Outcome: events.Completed, Body: []byte("null")})
}

// recordedTiming lists when the timers of a recorded task fired, and when steps that waited for their agent started.
// Supervisors may be late and agents busy; neither follows from the definition. In a fork, unchanged timers and starts
// happen at the recorded times.
func recordedTiming(f *replay.Forked) string {
	var words []string
	for _, l := range f.Forked {
		w := strings.TrimSuffix(strings.TrimPrefix(l.Type, "waybill."), ".v1")
		if l.Step != "" {
			w += " " + l.Step
		}
		if l.Attempt > 0 {
			w += fmt.Sprintf("/%d", l.Attempt)
		}
		if l.Assumed {
			w += "?"
		}
		words = append(words, w)
	}
	return strings.Join(words, ", ")
}

func fork(t *testing.T, h *history, f replay.Fork) *replay.Forked {
	t.Helper()
	before := len(h.records)
	got, err := f.Run(h.records)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.records) != before {
		t.Error("the history was changed")
	}
	return got
}

// The failed order succeeds under a policy with more attempts. Recorded replies are used; other replies are reported as
// assumed.
func TestForkWithMoreAttempts(t *testing.T) {
	h := failed(t)
	more := program(t, fmt.Sprintf(order, 2, 3, ""))
	got := fork(t, h, replay.Fork{Program: more, At: 5, Assume: replay.AssumeCompleted})
	want := "step.failed charge/1, step.waiting charge/1, step.started charge/2, step.completed charge/2?, " +
		"step.started ship/1?, step.completed ship/1?, task.processed?"
	if got.State != events.StateProcessed || got.Assumed != 2 || recordedTiming(got) != want {
		t.Errorf("%s, %d assumed: %s\nwant %s", got.State, got.Assumed, recordedTiming(got), want)
	}
	if n := len(got.Recorded); n != len(h.records)-5 {
		t.Errorf("%d recorded events after the fork, want %d", n, len(h.records)-5)
	}
	got = fork(t, h, replay.Fork{Program: more, At: 5, Assume: replay.AssumeFailed})
	if got.State == events.StateProcessed {
		t.Errorf("%s, though the other attempts fail: %s", got.State, recordedTiming(got))
	}
}

// Under its own definition a task has the recorded course, from each of its events on.
func TestForkUnderTheSameDefinition(t *testing.T) {
	h := failed(t)
	same := program(t, fmt.Sprintf(order, 1, 1, ""))
	for at := uint64(1); at <= h.task.Seq; at++ {
		got := fork(t, h, replay.Fork{Program: same, At: at, Assume: replay.AssumeSilent})
		if got.State != h.task.State || got.Assumed != 0 {
			t.Errorf("from event %d on: %s, %d assumed; want %s", at, got.State, got.Assumed, h.task.State)
		}
		if len(got.Forked) != len(got.Recorded) {
			t.Errorf("from event %d on: %s, want %d events", at, recordedTiming(got), len(got.Recorded))
			continue
		}
		for i := range got.Forked {
			a, b := got.Forked[i].Line, got.Recorded[i]
			if a.Type != b.Type || a.Step != b.Step || a.Attempt != b.Attempt || a.At != b.At {
				t.Errorf("from event %d on: %+v, want %+v", at, a, b)
			}
		}
	}
}

// The same holds for the tasks of a recorded system: each ends as recorded, by the same attempts. Tasks with an
// operator's command, or withdrawn by their parent, don't, because a fork leaves commands out.
func TestForkOfRecordedTasks(t *testing.T) {
	definitions := &scheduler.CompiledDefinitions{}
	for _, r := range logOf(t, head.Namespace.Definitions()) {
		definitions.Apply(&r)
	}
	forks := 0
	for id, records := range byTask(recorded(t)) {
		s := replay.NewStepper(replay.Until{}, false)
		commanded, submitted := false, events.Cause{}
		for i := range records {
			if _, err := s.Add(&records[i]); err != nil {
				t.Fatal(err)
			}
			e, err := events.DecodeEvent(&records[i])
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				submitted = e.Cause
			}
			commanded = commanded || e.Cause.Inbox == events.Controls || e.Cause.Inbox == events.Tasks && e.Cause != submitted && !e.Queued
		}
		end := s.Task()
		p, ok := definitions.Program(end.Workflow, end.Version)
		if !ok {
			t.Fatalf("no definition %s/%d", end.Workflow, end.Version)
		}
		if commanded || end.Open() && end.State != events.StateError {
			continue
		}
		for at := uint64(1); at <= end.Seq; at++ {
			got, err := replay.Fork{Program: p, At: at, Assume: replay.AssumeSilent}.Run(records)
			if err != nil {
				t.Fatalf("task %s from event %d on: %v", id, at, err)
			}
			forks++
			if got.State != end.State || got.Assumed != 0 || got.Stalled != "" || len(got.Forked) != len(got.Recorded) {
				t.Errorf("task %s from event %d on: %s, %d assumed, %s: %s; it had ended %s after %d events", id, at, got.State, got.Assumed,
					got.Stalled, recordedTiming(got), end.State, end.Seq)
			}
		}
	}
	if forks < 100 {
		t.Errorf("%d forks: too few to show anything", forks)
	}
}

// The attempts of a silent agent time out, after the times of the new definition.
func TestForkIntoSilence(t *testing.T) {
	h := failed(t)
	got := fork(t, h, replay.Fork{Program: program(t, fmt.Sprintf(order, 2, 2, "")), At: 5, Assume: replay.AssumeSilent})
	want := "step.failed charge/1, step.waiting charge/1, step.started charge/2, step.expired charge/2?, step.errored charge?, task.undoing?"
	if !strings.HasPrefix(recordedTiming(got), want) {
		t.Errorf("%s\nwant %s ...", recordedTiming(got), want)
	}
}

// A new step is executed, a removed one isn't, and completed steps stay completed.
func TestForkWithOtherSteps(t *testing.T) {
	h := failed(t)
	other := program(t, `
workflow: order
version: 2
on_error: hold
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 1}}
steps:
  reserve: {agent: stock, operation: reserve}
  letter: {agent: mail, operation: send, needs: [reserve]}
`)
	got := fork(t, h, replay.Fork{Program: other, At: 5, Assume: replay.AssumeCompleted})
	want := "step.started letter/1, step.completed letter/1?, task.processed?"
	if recordedTiming(got) != want || got.Assumed != 1 {
		t.Errorf("%s, %d assumed\nwant %s", recordedTiming(got), got.Assumed, want)
	}
}

// A task that can't be forked is refused with a reason.
func TestForkRefuses(t *testing.T) {
	h := failed(t)
	p := program(t, fmt.Sprintf(order, 2, 1, ""))
	for want, f := range map[string]func() error{
		"ends with event": func() error { _, err := replay.Fork{Program: p, At: 99}.Run(h.records); return err },
		"no event":        func() error { _, err := replay.Fork{Program: p, At: 1}.Run(nil); return err },
		"begin here":      func() error { _, err := replay.Fork{Program: p, At: 3}.Run(h.records[1:]); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// It has ended, so there is nothing to continue.
	if got := fork(t, h, replay.Fork{Program: p}); len(got.Forked) != 0 || got.State != events.StateUndone {
		t.Errorf("from its end on: %s: %s", got.State, recordedTiming(got))
	}
}

// Events that both courses have are in one row, and no event is missing.
func TestPairs(t *testing.T) {
	h := failed(t)
	f := fork(t, h, replay.Fork{Program: program(t, fmt.Sprintf(order, 2, 3, "")), At: 5, Assume: replay.AssumeCompleted})
	left, right, both := 0, 0, 0
	for _, p := range replay.Pairs(f) {
		switch {
		case p.Recorded != nil && p.Forked != nil:
			both++
			if p.Recorded.Type != p.Forked.Type || p.Recorded.Step != p.Forked.Step {
				t.Errorf("%s beside %s", p.Recorded.Type, p.Forked.Type)
			}
		case p.Recorded != nil:
			if p.Recorded.Seq != f.Recorded[left+both].Seq {
				t.Errorf("event %d is out of its order", p.Recorded.Seq)
			}
			left++
		default:
			right++
		}
	}
	if left+both != len(f.Recorded) || right+both != len(f.Forked) || both != 1 {
		t.Errorf("%d, %d and %d in both, of %d recorded and %d forked", left, right, both, len(f.Recorded), len(f.Forked))
	}
}

// forksAsRecorded checks that a fork under the same definition does at each moment what the log has, from each event on.
func forksAsRecorded(t *testing.T, h *history, same *workflow.Program, assume replay.Assume) {
	t.Helper()
	for seq := uint64(1); seq <= h.task.Seq; seq++ {
		got := fork(t, h, replay.Fork{Program: same, At: seq, Assume: assume})
		if got.State != h.task.State || got.Assumed != 0 || len(got.Forked) != len(got.Recorded) {
			t.Errorf("from event %d on: %s, %s, %d assumed", seq, got.State, recordedTiming(got), got.Assumed)
			continue
		}
		for i := range got.Forked {
			if a, b := got.Forked[i].Line, got.Recorded[i]; a.Type != b.Type || a.At != b.At {
				t.Errorf("from event %d on: %+v, want %+v", seq, a, b)
			}
		}
	}
}
