package scheduler

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestReplyNamesItsInstance checks that only the event of a reply names the agent's instance. The events that follow
// from it don't.
func TestReplyNamesItsInstance(t *testing.T) {
	for source, want := range map[string]string{
		"waybill.agent/inventory/till-2": "till-2",
		"waybill.agent/inventory/a/b":    "a/b",
		"waybill.agent/payments/till-2":  "waybill.agent/payments/till-2",
		"urn:python:agent":               "urn:python:agent",
		"waybill.agent/inventory":        "waybill.agent/inventory",
		"":                               "",
	} {
		for _, outcome := range []events.Outcome{events.Completed, events.Failed, events.Rejected} {
			x := newBench(t)
			delete(x.env.Requests, "payments") // so that a failed attempt of the next step follows
			task := Decide(nil, submission(1), x.cause, &x.env).Task
			x.cause.Offset++
			d := Decide(task.Clone(), &events.Reply{Task: task.ID, Ref: reserve, Token: testToken(task.ID, reserve), Outcome: outcome, Body: done, Source: source}, x.cause, &x.env)
			for i, e := range d.Events {
				got, replied := "", i == 0
				switch f := e.Fact.(type) {
				case *events.AttemptCompleted:
					got = f.Instance
				case *events.AttemptFailed:
					got = f.Instance
				case *events.AttemptRejected:
					got = f.Instance
				}
				if replied && got != want || !replied && got != "" {
					t.Errorf("%s from %q: event %d (%s) has instance %q, want %q of the first alone", outcome, source, i, e.Fact.Type(), got, want)
				}
			}
			if len(d.Events) == 0 {
				t.Errorf("%s from %q led to nothing", outcome, source)
			}
		}
	}
}
