package main

import (
	"strings"
	"testing"
)

// TestIDText: a table shows an id in full if it fits. Otherwise it shortens the id so that different ends stay
// different.
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
