package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestUndoOfAProcessedTaskNeedsItsRole checks that only a token of the role undo_processed may say that a processed task is
// meant. An ordinary undo never says so.
func TestUndoOfAProcessedTaskNeedsItsRole(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("operator olga 0123456789abcdef\nundo_processed una fedcba9876543210\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := newRecording(t)
	s := w.console(t, tokens)
	task := w.some(t, events.StateProcessed)
	path := api + "/tasks/" + url.PathEscape(task.ID) + "/undo"
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, Seq: task.Seq, State: events.StateUndoing}, nil
	}
	for _, c := range []struct {
		token, body string
		status      int
		processed   bool
	}{
		{"0123456789abcdef", `{"reason":"x"}`, http.StatusOK, false},
		{"0123456789abcdef", `{"reason":"x","processed":false}`, http.StatusOK, false},
		{"0123456789abcdef", `{"reason":"x","processed":true}`, http.StatusForbidden, false},
		{"fedcba9876543210", `{"reason":"x"}`, http.StatusOK, false},
		{"fedcba9876543210", `{"reason":"x","processed":true}`, http.StatusOK, true},
	} {
		before := len(w.written)
		r := ask(t, s, http.MethodPost, path, c.body, "Authorization: Bearer "+c.token)
		if r.status != c.status {
			t.Errorf("%s: %d %s", c.body, r.status, r.body)
		}
		if r.status == http.StatusForbidden {
			if !strings.Contains(r.body, "a token of the role undo_processed") || len(w.written) > before {
				t.Errorf("%s: %s; %d commands were written", c.body, r.body, len(w.written)-before)
			}
			continue
		}
		_, in, err := events.DecodeInput(events.Controls, &w.written[len(w.written)-1])
		if x, ok := in.(*events.Control); err != nil || !ok || x.Command != events.UndoTask || x.Processed != c.processed {
			t.Errorf("%s wrote %+v, %v", c.body, in, err)
		}
	}
}
