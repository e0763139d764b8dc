package events

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestOversizedErrorKeepsItsCode checks that catch and retry match the error of an agent that isn't bounded, and that its
// message remains text: its event can be read.
func TestOversizedErrorKeepsItsCode(t *testing.T) {
	long := strings.Repeat("ä", MaxErrorBytes)
	for body, want := range map[string]Error{
		`{"code":"no_funds","message":"empty","details":"` + long + `"}`: {Code: "no_funds", Message: "empty..."},
		`{"code":"no_funds","message":"` + long + `"}`:                   {Code: "no_funds", Message: long[:oversizedTextBytes] + "..."},
		`{"code":"no_funds","message":"a` + long + `"}`:                  {Code: "no_funds", Message: "a" + long[:oversizedTextBytes-2] + "..."},
		`{"code":"no_funds","details":"` + long + `"}`:                   {Code: "no_funds", Message: `{"code":"no_funds","details":"` + long[:226] + "..."},
		`{"message":"empty","details":"` + long + `"}`:                   {Code: codeAgentError, Message: "empty..."},
		`{"code":"` + long + `","message":"empty"}`:                      {Code: codeAgentError, Message: "empty..."},
		`{"code":1,"message":"empty","details":"` + long + `"}`:          {Code: codeAgentError, Message: `{"code":1`},
		`"` + long + `"`: {Code: codeAgentError, Message: `"` + long[:oversizedTextBytes-2] + "..."},
	} {
		e := (&Reply{Outcome: Failed, Body: []byte(body)}).Failure()
		if e.Code != want.Code || !strings.HasPrefix(e.Message, want.Message) || !utf8.ValidString(e.Message) || e.Details != nil {
			t.Errorf("%.50q: %s %q", body, e.Code, e.Message)
		}
		event := &Event{Task: "o", Seq: 5, At: time.Unix(1, 0), Epoch: 1, Fact: &AttemptFailed{Step: "s", Attempt: 1, Error: e}}
		if rec := event.Record("waybill.", "x", 0, event.Value()); !utf8.Valid(rec.Value) {
			t.Errorf("%.50q: its event is not UTF-8", body)
		}
	}
}
