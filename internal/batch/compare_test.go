package batch

import (
	"slices"
	"testing"
)

func TestCompare(t *testing.T) {
	dryRun := []Result{{Task: "a", Status: Accepted}, {Task: "b", Status: Accepted}, {Task: "c", Status: Accepted}, {Task: "d", Status: Refused, Why: "old"},
		{Task: "e", Status: Refused, Why: "old"}, {Task: "f", Status: Refused, Why: "old"}, {Task: "g", Status: Accepted}, {Task: "h", Status: Accepted}, {Task: "k", Status: Waiting}}
	outcome := []Result{{Task: "a", Status: Accepted}, {Task: "b", Status: Passed}, {Task: "c", Status: Recurred, Why: "held"}, {Task: "d", Status: Refused, Why: "old"},
		{Task: "e", Status: Refused, Why: "new"}, {Task: "f", Status: Passed}, {Task: "g", Status: Refused, Why: "new"}, {Task: "k", Status: Passed}, {Task: "i", Status: Passed}}
	want := []Difference{{"e", Refused, Refused, "old", "new"}, {"f", Refused, Passed, "old", ""}, {"g", Accepted, Refused, "", "new"}, {"h", Accepted, "", "", ""},
		{"i", "", Passed, "", ""}, {"k", Waiting, Passed, "", ""}}
	if got := Compare(dryRun, outcome); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got := Compare(dryRun[:4], outcome[:4]); got == nil || len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
