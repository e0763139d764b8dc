package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/workflow"
)

const charging = `
workflow: order
version: %d
on_error: undo
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1s}}
steps:
  charge: {agent: bank, operation: charge, undo: {operation: refund}%s}
  tell: {agent: mail, operation: tell, needs: [charge]}
`

const bankStatus = ", check: {operation: status, complete_within: 5s}"

// asking returns an order whose charge timed out. The bank is asked about it.
func asking(t *testing.T) *history {
	h := recordOf(t, program(t, fmt.Sprintf(charging, 1, bankStatus)))
	h.recover(10)
	h.recover(12)
	return h
}

func (h *history) answered(seconds float64, attempt int, answer string) {
	h.input(seconds, &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: "charge", Kind: events.Check, Attempt: attempt}, Token: token, Outcome: events.Completed, Body: []byte(answer)})
}

// charged returns an order that went on after the first answer failed and the second said that the charge happened.
func charged(t *testing.T) *history {
	h := asking(t)
	h.recover(17) // no answer within 5 s
	h.recover(19)
	h.answered(20, 2, `{"outcome":"completed","output":{"charge":"ch_1"}}`)
	h.reply(21, "tell", 1, events.Completed, `{}`)
	if h.task.State != events.StateProcessed {
		t.Fatalf("the task is %s", h.task.State)
	}
	return h
}

// A step that is checked waits for the agent of its check, and the steps behind it wait for it.
func TestWhyOfACheck(t *testing.T) {
	h := asking(t)
	want := "processing: at_work charge; charge check/1 at_work, the agent's reply, or the end of the attempt's time; tell do/0 upstream_step, the end of charge"
	if got := whyOf(h); got != want {
		t.Errorf("%s", got)
	}
	h.recover(17)
	want = "processing: waiting_retry charge; charge check/1 waiting_retry, the end of the wait: then attempt 2; tell do/0 upstream_step, the end of charge"
	if got := whyOf(h); got != want {
		t.Errorf("%s", got)
	}
}

// Under the same definition a check is answered as in the log, whatever is assumed. Under others the recorded answers count
// as long as the check asks the same agent the same.
func TestForkOfACheck(t *testing.T) {
	for _, assume := range replay.Assumes {
		forksAsRecorded(t, charged(t), program(t, fmt.Sprintf(charging, 1, bankStatus)), assume)
	}
	for _, c := range []struct {
		check  string
		at     uint64
		assume replay.Assume
		want   string
	}{
		{"", 3, replay.AssumeCompleted, "step.expired charge/1, step.waiting charge/1, step.started charge/2, step.completed charge/2?, step.started tell/1?, step.completed tell/1, task.processed"},
		{", check: {operation: look, complete_within: 5s}", 5, replay.AssumeCompleted, "check.started charge/1, check.completed charge/1?, step.started charge/2?, step.completed charge/2?, step.started tell/1?, step.completed tell/1, task.processed"},
		{", check: {operation: look, complete_within: 5s, retry: {max_attempts: 1}}", 5, replay.AssumeSilent, "check.started charge/1, check.expired charge/1?, check.errored charge?, step.started charge/2?, " +
			"step.expired charge/2?, check.started charge/2?, check.expired charge/2?, check.errored charge?, step.errored charge?, task.undoing?, undo.started charge/1?, undo.expired charge/1?, undo.waiting charge/1?, undo.started charge/2, undo.expired charge/2?, undo.errored charge?, task.held?"},
		// The check runs, and the definition has none.
		{"", 6, replay.AssumeCompleted, "step.started charge/2, step.completed charge/2?, step.started tell/1?, step.completed tell/1, task.processed"},
	} {
		got := fork(t, charged(t), replay.Fork{Program: program(t, fmt.Sprintf(charging, 2, c.check)), At: c.at, Assume: c.assume})
		if recordedTiming(got) != c.want || got.Stalled != "" {
			t.Errorf("%q from %d on: %s (%s)", c.check, c.at, recordedTiming(got), got.Stalled)
		}
	}
}

// An undo asks again; what the check found decides whether anything is undone.
func TestForkOfAnUndoneCheck(t *testing.T) {
	h := asking(t)
	h.input(13, &events.Control{Task: "o-1", Command: events.UndoTask, By: events.By{Who: "ada", RequestID: "r"}})
	h.answered(14, 1, `{"outcome":"none"}`)
	if h.task.State != events.StateUndone {
		t.Fatalf("the task is %s", h.task.State)
	}
	got := fork(t, h, replay.Fork{Program: program(t, fmt.Sprintf(charging, 1, bankStatus)), At: 7, Assume: replay.AssumeSilent})
	if want := "check.completed charge/1, task.undone"; recordedTiming(got) != want {
		t.Errorf("%s (%s)", recordedTiming(got), got.Stalled)
	}
}

// A plan says what a definition without the check would change.
func TestOutlookOfACheck(t *testing.T) {
	with, without := fmt.Sprintf(charging, 1, bankStatus), fmt.Sprintf(charging, 2, "")
	for _, c := range []struct {
		task   *history
		new    string
		assume replay.Assume
		want   string
	}{
		{charged(t), with, replay.AssumeSilent, "processed: processed, then processed"},
		{charged(t), without, replay.AssumeFailed, "processed: processed, then error, changed at waybill.check.started.v1 charge (otherwise)"},
		{asking(t), with, replay.AssumeCompleted, "processing: processed, then processed"},
		{asking(t), without, replay.AssumeCompleted, "processing: processed, then processed, changed at waybill.check.completed.v1 charge (otherwise)"},
	} {
		p := &replay.Plan{Program: program(t, c.new), Assume: c.assume, Old: func(string, int) (*workflow.Program, error) { return program(t, with), nil }}
		o, err := p.Evaluate(c.task.records)
		if err != nil {
			t.Error(err)
			continue
		}
		got := fmt.Sprintf("%s: %s, then %s", o.Now, o.Otherwise, o.Then) + o.Stalled
		if o.Changed {
			got += fmt.Sprintf(", changed at %s (%s)", strings.TrimSpace(o.First.Type+" "+o.First.Step), o.FirstIn)
		}
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
