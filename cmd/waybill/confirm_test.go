package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestConfirmation: on a terminal a command runs only if y is entered.
func TestConfirmation(t *testing.T) {
	x := &events.Control{Task: "o-1", Command: events.Release, Step: "charge", As: events.StepCompleted, Output: []byte(`{"a":1}`)}
	for answer, goes := range map[string]bool{"y\n": true, "yes\n": true, " Y \r\n": true, "y": true, "\n": false, "": false, "n\n": false, "yess\n": false, "yes please\n": false} {
		var asked bytes.Buffer
		err := askConfirmation(strings.NewReader(answer), &asked, commandText(x))
		if (err == nil) != goes {
			t.Errorf("the answer %q: %v", answer, err)
		}
		if want := `release o-1, step charge, as completed, with the result {"a":1}? [y/N] `; asked.String() != want {
			t.Errorf("asked %q, want %q", &asked, want)
		}
	}
}
