package main

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// The table of errors fits a terminal of 80 columns, whatever agents wrote.
func TestErrorsFitTheTerminal(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *string { return events.InstantText(now.Add(-d)) }
	list := consoleapi.ErrorGroupList{Groups: []consoleapi.ErrorGroup{
		{Group: "3f9a0c2b7d11e845", Workflow: "order", Step: "charge", Kind: "do", Code: "card_declined", Pattern: "card # was declined", Held: 42, FirstSeen: ago(3*time.Hour + 12*time.Minute), LastSeen: ago(2 * time.Minute)},
		{Group: "0000000000000000", Workflow: strings.Repeat("w", 90), Step: "ship", Kind: "undo", Code: strings.Repeat("é", 200), Pattern: "a\x1b[31mb", Held: 1234567, FirstSeen: ago(1000 * 24 * time.Hour), LastSeen: ago(0)},
		{Group: "other", Other: true, Held: 3, FirstSeen: ago(26 * time.Hour), LastSeen: ago(time.Second)},
	}}
	var out strings.Builder
	if err := printErrorGroups(&out, &list, now); err != nil {
		t.Fatal(err)
	}
	want := `GROUP               HELD  SINCE     LAST      WORKFLOW STEP
3f9a0c2b7d11e845      42  3h12m     2m        order charge
  card_declined: card # was declined
`
	if !strings.HasPrefix(out.String(), want) || !strings.Contains(out.String(), "all other errors") || strings.ContainsAny(out.String(), "\x1b") {
		t.Errorf("\n%s\nwant\n%s", out.String(), want)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	out.Reset()
	if err := printErrorGroups(&out, &consoleapi.ErrorGroupList{}, now); err != nil || out.String() != "No task is held.\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
