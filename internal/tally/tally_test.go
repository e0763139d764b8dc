package tally

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCountsAreAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tally")
	t.Setenv(Env, path)
	Add(t, "kills", 3)
	Say(t, "%.1f simulated hours", 1.5)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "TestCountsAreAppended: 3 kills\nTestCountsAreAppended: 1.5 simulated hours\n"; string(got) != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}
