package main

import (
	"strings"
	"testing"
)

// What a table shows of an id is whole while it can be, and else tells apart those that end differently.
func TestIDText(t *testing.T) {
	whole := strings.Repeat("é", idTextMax)
	if got := idText(whole); got != whole {
		t.Errorf("%q is shown as %q", whole, got)
	}
	long := strings.Repeat("x", 250)
	one, other := idText(long+"-1"), idText(long+"-2")
	if one == other || len([]rune(one)) != idTextMax || !strings.HasPrefix(one, "xxx") || !strings.HasSuffix(one, "x-1") {
		t.Errorf("%q and %q", one, other)
	}
}
