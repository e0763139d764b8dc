package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
	"github.com/waybill-run/waybill/scheduler"
)

// readRun is the state of a run by its last event, read without the fold.
type readRun struct {
	started, waiting, failed bool
	cools                    bool // waits for its cool-down
	attempt                  int
	at, due                  time.Time
}

// readRuns reads the records of a task. A decision to undo or to hold ends waiting runs.
func readRuns(t *testing.T, records []events.Record) map[events.Slot]readRun {
	t.Helper()
	runs, ending, undoing := map[events.Slot]readRun{}, false, false
	for i := range records {
		e, err := events.DecodeEvent(&records[i])
		if err != nil {
			t.Fatal(err)
		}
		switch f := e.Fact.(type) {
		case *events.AttemptStarted:
			runs[events.Slot{Step: f.Step, Kind: f.Kind}] = readRun{started: true, attempt: f.Attempt, at: e.At, due: e.Due}
		case *events.AttemptWaiting:
			runs[events.Slot{Step: f.Step, Kind: f.Kind}] = readRun{waiting: true, cools: f.CoolDown, attempt: f.Attempt, at: e.At, due: e.Due}
		case *events.AttemptFailed:
			slot := events.Slot{Step: f.Step, Kind: f.Kind}
			if delete(runs, slot); !ending || f.Kind == events.Undo {
				runs[slot] = readRun{failed: true, attempt: f.Attempt, at: e.At, due: e.Due}
			}
		case *events.TaskResumed:
			ending = undoing
		case *events.TaskUndoing, *events.TaskHeld:
			_, is := f.(*events.TaskUndoing)
			ending, undoing = true, undoing || is
			for slot, run := range runs {
				if !run.started && slot.Kind == events.Do {
					delete(runs, slot)
				}
			}
		default:
			if slot, one := e.Slot(); one && slot.Step != "" {
				delete(runs, slot)
			}
		}
	}
	return runs
}

// moves are the inputs that a task may get now: a reply to each running attempt, the recovery of the next timer, and an
// operator's commands.
func (h *history) moves(runs map[events.Slot]readRun) (list []func() (time.Duration, events.Input)) {
	later := h.env.Now.Sub(noon) + time.Second
	add := func(in events.Input) {
		list = append(list, func() (time.Duration, events.Input) { return later, in })
	}
	for slot, run := range runs {
		for _, o := range []events.Outcome{events.Completed, events.Failed, events.Rejected} {
			if run.started {
				add(&events.Reply{Task: "o-1", Ref: events.RequestRef{Step: slot.Step, Kind: slot.Kind, Attempt: run.attempt}, Token: token, Outcome: o, Body: []byte(`{}`)})
			}
		}
	}
	timers := &events.Timers{}
	for i := range h.records {
		if e, err := events.DecodeEvent(&h.records[i]); err == nil {
			timers.Evolve(e)
		}
	}
	for _, a := range timers.Armed {
		due := max(later, a.Timer.Due.Sub(noon))
		next := a.Policy.Next("o-1", a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, noon.Add(due))
		list = append(list, func() (time.Duration, events.Input) { return due, a.Recovery("o-1", next) })
	}
	by := events.By{Who: "test", Why: "test", RequestID: fmt.Sprint(h.offset)}
	for _, x := range []events.Control{{Command: events.Cancel}, {Command: events.Cancel, Keep: true}, {Command: events.UndoTask}, {Command: events.Resubmit}} {
		x.Task, x.By = "o-1", by
		add(&x)
	}
	return list
}

const (
	wideSteps = `
  reserve: {agent: stock, operation: reserve, undo: {operation: free}}
  charge: {agent: stock, operation: charge, undo: {operation: refund}}
  ship: {agent: parcels, operation: ship, needs: [reserve, charge]}
`
	narrowSteps = `
  reserve: {agent: stock, operation: reserve, undo: {operation: free}}
  ship: {agent: parcels, operation: ship, needs: [reserve]}
`
)

// In all small histories up to a length, the explanation of a task agrees with a direct reading of its records.
func TestWhyIsWhatTheRecordsSay(t *testing.T) {
	seen := 0
	for _, c := range []struct {
		onError, steps string
		depth          int
	}{
		{"undo", wideSteps, 5},
		{"hold", wideSteps, 4},
		{"undo", narrowSteps, 7},
		{"hold", narrowSteps, 7},
	} {
		p := program(t, `
workflow: order
version: 1
on_error: `+c.onError+`
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1s, cool_down: 1m}}
steps:
`+c.steps)
		var walk func(h *history, left int)
		walk = func(h *history, left int) {
			runs := readRuns(t, h.records)
			h.holdsWhy(t, runs)
			if seen++; left == 0 || t.Failed() {
				return
			}
			for _, move := range h.moves(runs) {
				next := *h
				next.records = slices.Clone(h.records)
				at, in := move()
				next.env.Now = noon.Add(at)
				d := scheduler.Decide(h.task.Clone(), in, events.Cause{Inbox: inboxOf(in), Offset: h.offset}, &next.env)
				if len(d.Events) > 0 {
					next.took(d)
					walk(&next, left-1)
				}
			}
		}
		walk(recordOf(t, p), c.depth-suite.Of(t, 2, 0))
	}
	tally.Add(t, "histories of which it is told why the task stands", seen)
}

// holdsWhy compares an explanation with the runs read from the records.
func (h *history) holdsWhy(t *testing.T, runs map[events.Slot]readRun) {
	t.Helper()
	now := h.env.Now
	lags := map[string]replay.AgentState{"stock": {Members: 1}, "parcels": {Members: 1}}
	for slot, run := range runs { // all agents are busy: the lag of each is its request and the transaction marker
		if agent := map[bool]string{true: "parcels", false: "stock"}[slot.Step == "ship"]; run.started {
			a := lags[agent]
			a.Lag += 2
			lags[agent] = a
		}
	}
	for name, agents := range map[string]map[string]replay.AgentState{"nothing is known of agents": nil, "all agents are at work": lags} {
		w := replay.Explain(h.task, sinceOf(h), "", agents, now)
		told := map[events.Slot]replay.StepWhy{}
		for _, s := range w.Steps {
			told[events.Slot{Step: s.Step, Kind: s.Kind}] = s
		}
		open := w.State == events.StateProcessing || w.State == events.StateUndoing
		for slot, run := range runs {
			s, is := told[slot]
			want := replay.ReasonAtWork
			switch {
			case run.waiting && run.due.After(now):
				want = replay.ReasonWaitingRetry
				if run.cools {
					want = replay.ReasonCoolDown
				}
			case run.waiting:
				want = replay.ReasonCapacity
			case run.failed:
				want = replay.ReasonWaitingRetry
			}
			switch {
			case !open:
			case !is || s.Reason != want || s.Attempt != run.attempt:
				t.Fatalf("%s, %s: %+v is told as %+v, want %s\n%s", name, w.State, slot, s, want, lines(h))
			case want != replay.ReasonCapacity && (s.Since == nil || *s.Since != run.at.Format(events.TimeLayout) || s.Until == nil || *s.Until != run.due.Format(events.TimeLayout)):
				t.Fatalf("%s: %+v of %v to %v is told since %v until %v\n%s", name, slot, run.at, run.due, *s.Since, *s.Until, lines(h))
			}
		}
		for slot, s := range told {
			if run := runs[slot]; !run.started && (s.Reason == replay.ReasonAtWork || s.Reason == replay.ReasonQueue) {
				t.Fatalf("%s: nothing runs of %+v, and it is told as %+v\n%s", name, slot, s, lines(h))
			}
		}
		if open && len(runs) > 0 && !slices.ContainsFunc(w.Steps, func(s replay.StepWhy) bool { return s.Reason == w.Reason && s.Step == w.Step }) {
			t.Fatalf("%s: the task is told as %+v", name, w)
		}
		if open && len(runs) == 0 {
			t.Fatalf("%s: %s, and nothing goes on: %+v\n%s", name, w.State, w, lines(h))
		}
	}
}

// lines formats a history as lines.
func lines(h *history) (text string) {
	for i := range h.records {
		l, _ := events.TimelineLine(&h.records[i])
		text += fmt.Sprintf("%d %s %s %s/%d\n", l.Seq, l.At, l.Type, l.Step, l.Attempt)
	}
	return text
}
