package backoff_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/backoff"
)

// TestRefusedPeriod: a role ends after it was refused for RefusedMax. A refusal after a client that was permitted for longer is a new one.
func TestRefusedPeriod(t *testing.T) {
	const refused, other = true, false
	start := time.Unix(0, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for name, ends := range map[string][]struct {
		refused     bool
		began, ends int
		exceeded    bool
	}{
		"refused all the time":         {{refused, 0, 1, false}, {refused, 2, 30, false}, {refused, 31, 62, true}},
		"another error between":        {{refused, 0, 1, false}, {other, 2, 30, false}, {refused, 31, 62, false}},
		"permitted for hours between":  {{refused, 0, 1, false}, {refused, 2, 20_000, false}, {refused, 20_001, 20_030, false}, {refused, 20_031, 20_062, true}},
		"permitted for a short while":  {{refused, 0, 1, false}, {refused, 2, 50, false}, {refused, 51, 63, true}},
		"never refused, and an outage": {{other, 0, 100, false}, {other, 101, 200, false}},
	} {
		var p backoff.RefusedPeriod
		for i, e := range ends {
			if got := p.Exceeded(e.refused, at(e.began), at(e.ends)); got != e.exceeded {
				t.Errorf("%s: end %d: exceeded is %v", name, i, got)
			}
		}
	}
}
