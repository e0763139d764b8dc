package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

const fallback = `
workflow: order
version: %d
on_error: undo
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 1}}
steps:
  charge: {agent: bank, operation: charge%s, undo: {operation: refund}}
  invoice: {agent: mail, operation: invoice, needs: [charge], when: "${ steps.charge.state == 'caught' }", input: {why: "${ steps.charge.error.code }"}}
  ship: {agent: parcels, operation: ship, needs: [invoice]%s}
  tell: {agent: mail, operation: tell, needs: [ship]}
`

// caughtCharge returns an order whose charge expired. It was refunded and caught, and the order went on.
func caughtCharge(t *testing.T) *history {
	h := recordOf(t, program(t, fmt.Sprintf(fallback, 1, ", catch: [expired]", ", pivot: true")))
	h.recover(11)
	return h
}

func (h *history) undone(seconds float64, step string, outcome events.Outcome) {
	h.input(seconds, &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: step, Kind: events.Undo, Attempt: 1}, Token: token, Outcome: outcome, Body: []byte(`{"code":"never"}`)})
}

// invoiced goes on to the end: the order is announced, and processed.
func (h *history) invoiced() {
	h.undone(12, "charge", events.Completed)
	h.reply(13, "invoice", 1, events.Completed, `{}`)
	h.reply(14, "ship", 1, events.Completed, `{}`)
	h.reply(15, "tell", 1, events.Completed, `{}`)
}

// whyOf lists the steps that don't advance, with their reasons.
func whyOf(h *history) string {
	w := replay.Explain(h.task, sinceOf(h), "", nil, h.env.Now)
	list := []string{fmt.Sprintf("%s: %s %s", w.State, w.Reason, w.Step)}
	for _, s := range w.Steps {
		list = append(list, fmt.Sprintf("%s %s/%d %s, %s", s.Step, s.Kind, s.Attempt, s.Reason, s.Moves))
	}
	return strings.Join(list, "; ")
}

// While a caught step is undone, its undo is at work and the steps after it wait. Once it is caught they go on. If its
// undo ends in error the task is held.
func TestWhyOfACaughtStep(t *testing.T) {
	const reply = "the agent's reply, or the end of the attempt's time"
	h := caughtCharge(t)
	want := "processing: at_work charge; charge undo/1 at_work, " + reply + "; invoice do/0 upstream_step, the end of charge; ship do/0 upstream_step, the end of invoice; tell do/0 upstream_step, the end of ship"
	if got := whyOf(h); got != want {
		t.Errorf("%s", got)
	}
	if names := replay.AgentsAwaited(h.task, h.env.Now); !slices.Equal(names, []string{"bank"}) {
		t.Errorf("asks about %v, want bank", names)
	}
	h.undone(12, "charge", events.Completed)
	want = "processing: at_work invoice; invoice do/1 at_work, " + reply + "; ship do/0 upstream_step, the end of invoice; tell do/0 upstream_step, the end of ship"
	if got := whyOf(h); got != want {
		t.Errorf("%s", got)
	}
	h = caughtCharge(t)
	h.undone(12, "charge", events.Rejected)
	if got := whyOf(h); got != "error: hold charge" {
		t.Errorf("%s", got)
	}
}

// A failure behind a completed pivot holds the task.
func TestWhyPastAPivot(t *testing.T) {
	h := caughtCharge(t)
	h.undone(12, "charge", events.Completed)
	h.reply(13, "invoice", 1, events.Completed, `{}`)
	h.reply(14, "ship", 1, events.Completed, `{}`)
	h.reply(15, "tell", 1, events.Rejected, `{"code":"never"}`)
	if got := whyOf(h); got != "error: hold tell" {
		t.Errorf("%s", got)
	}
	forksAsRecorded(t, h, program(t, fmt.Sprintf(fallback, 1, ", catch: [expired]", ", pivot: true")), replay.AssumeSilent)
	got := fork(t, h, replay.Fork{Program: program(t, fmt.Sprintf(fallback, 2, ", catch: [expired]", "")), At: h.task.Seq - 2, Assume: replay.AssumeCompleted})
	if want := "step.rejected tell/1, task.undoing, task.undone"; recordedTiming(got) != want {
		t.Errorf("without the pivot: %s (%s)", recordedTiming(got), got.Stalled)
	}
}

// Under the same definition a step is caught as in the log. Under one that doesn't catch it, the task is undone. A caught
// step isn't undone later, even if the new definition gives it an undo.
func TestForkOfACaughtStep(t *testing.T) {
	h, same := caughtCharge(t), program(t, fmt.Sprintf(fallback, 1, ", catch: [expired]", ", pivot: true"))
	h.invoiced()
	if h.task.State != events.StateProcessed {
		t.Fatalf("the task is %s", h.task.State)
	}
	forksAsRecorded(t, h, same, replay.AssumeSilent)
	got := fork(t, h, replay.Fork{Program: program(t, fmt.Sprintf(fallback, 2, "", "")), At: 1, Assume: replay.AssumeCompleted})
	if want := "task.started, step.started charge/1, step.expired charge/1, step.errored charge, task.undoing, undo.started charge/1, undo.completed charge/1, task.undone"; recordedTiming(got) != want {
		t.Errorf("without the catch: %s (%s)", recordedTiming(got), got.Stalled)
	}
	bare := strings.Replace(fmt.Sprintf(fallback, 1, ", catch: [expired]", ""), ", undo: {operation: refund}", "", 1)
	h = recordOf(t, program(t, bare))
	h.recover(11)
	got = fork(t, h, replay.Fork{Program: program(t, fmt.Sprintf(fallback, 2, ", catch: [expired]", "")), Assume: replay.AssumeRejected})
	if want := "step.rejected invoice/1?, task.undoing?, task.undone?"; recordedTiming(got) != want {
		t.Errorf("with an undo: %s (%s)", recordedTiming(got), got.Stalled)
	}
}

// A plan says what a definition would change for tasks with steps of every kind.
func TestOutlookOfEveryKind(t *testing.T) {
	caught, repeated, pivoted := caughtCharge(t), recordOf(t, program(t, polling)), caughtCharge(t)
	caught.invoiced()
	repeated.reply(1, "deliver", 1, events.Completed, `{"done":false}`)
	pivoted.undone(12, "charge", events.Completed)
	pivoted.reply(13, "invoice", 1, events.Completed, `{}`)
	pivoted.reply(14, "ship", 1, events.Completed, `{}`)
	signalled := recordOf(t, program(t, approving))
	signalled.reply(1, "reserve", 1, events.Completed, `{}`)
	signalled.input(2, &events.Signal{Task: "o-1", Name: "approved", ID: "1"})
	same := fmt.Sprintf(fallback, 1, ", catch: [expired]", ", pivot: true")
	for _, tt := range []struct {
		name     string
		task     *history
		old, new string
		assume   replay.Assume
		want     string
	}{
		{"caught, as it was", caught, same, same, replay.AssumeFailed, "processed: processed, then processed"},
		{"caught, not caught", caught, same, fmt.Sprintf(fallback, 2, "", ""), replay.AssumeCompleted, "processed: processed, then undone, changed at waybill.task.undoing.v1 (then)"},
		{"pivot, as it was", pivoted, same, same, replay.AssumeFailed, "processing: error, then error"},
		{"pivot, without it", pivoted, same, fmt.Sprintf(fallback, 2, ", catch: [expired]", ""), replay.AssumeFailed, "processing: error, then undone, changed at waybill.task.held.v1 (otherwise)"},
		{"signal, as it was", signalled, approving, approving, replay.AssumeCompleted, "processing: undone, then undone"},
		{"signal, one less", signalled, approving, strings.NewReplacer("  again: {needs: [reserve], signal: approved, complete_within: 5m}\n", "", ", again]", "]").Replace(approving), replay.AssumeCompleted, "processing: undone, then processed, changed at waybill.step.errored.v1 again (otherwise)"},
		{"repeat, as it was", repeated, polling, polling, replay.AssumeFailed, "processing: undone, then undone"},
		{"repeat, fewer calls", repeated, polling, strings.Replace(polling, "max: 3", "max: 1", 1), replay.AssumeCompleted, "processing: undone, then undone"},
	} {
		p := &replay.Plan{Program: program(t, tt.new), Assume: tt.assume, Old: func(string, int) (*workflow.Program, error) { return program(t, tt.old), nil }}
		o, err := p.Evaluate(tt.task.records)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := strings.TrimSpace(fmt.Sprintf("%s: %s, then %s", o.Now, o.Otherwise, o.Then) + o.Stalled)
		if o.Changed {
			got += fmt.Sprintf(", changed at %s (%s)", strings.TrimSpace(o.First.Type+" "+o.First.Step), o.FirstIn)
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
