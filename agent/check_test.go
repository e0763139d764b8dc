package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

func requestOfACheck(value string) (Request, error) {
	q := &events.Request{Task: "o-7", Ref: events.RequestRef{Step: "charge", Kind: Check, Attempt: 2}, Token: "token", Operation: "status",
		CompleteBy: time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC), IdempotencyKey: "ns.o-7/charge/check/1", Value: json.RawMessage(value)}
	rec := q.Record("ns.", "scheduler", "payments", 0)
	return newRequest(&rec)
}

// TestRequestOfACheck checks that a handler receives what the scheduler asks about, and that a request without it is
// refused.
func TestRequestOfACheck(t *testing.T) {
	of := events.CheckOf{IdempotencyKey: "ns.o-7/charge/do/1", Input: json.RawMessage(`{"amount":12.50}`)}
	r, err := requestOfACheck(string(events.CheckValue(of)))
	if err != nil || r.Kind != Check || r.UndoOf != nil || r.CheckOf == nil || r.CheckOf.IdempotencyKey != of.IdempotencyKey || string(r.CheckOf.Input) != string(of.Input) {
		t.Errorf("%+v of %+v, %v", r, r.CheckOf, err)
	}
	for _, value := range []string{`{}`, `null`, `1`, `{"check_of":{}}`, `{"check_of":"k"}`, `{"undo_of":{"idempotency_key":"k"}}`} {
		if r, err := requestOfACheck(value); err == nil {
			t.Errorf("%s is read as %+v", value, r)
		}
	}
}

// TestCheckResult checks that the scheduler reads each result that a handler returns.
func TestCheckResult(t *testing.T) {
	for _, c := range []struct {
		result CheckResult
		output string
	}{
		{CheckResult{Outcome: BecameCompleted, Output: map[string]string{"charge": "ch_1"}}, `{"charge":"ch_1"}`},
		{CheckResult{Outcome: BecameCompleted}, `null`},
		{CheckResult{Outcome: BecameNone}, ``},
		{CheckResult{Outcome: BecameUnknown}, ``},
	} {
		body, err := json.Marshal(c.result)
		if err != nil {
			t.Fatal(err)
		}
		became, output, failure := (&events.Reply{Body: body}).Became()
		if failure != nil || became != c.result.Outcome || string(output) != c.output {
			t.Errorf("%s is read as %s with %s: %v", body, became, output, failure)
		}
	}
}
