package suite

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLeftOutIsRecorded checks what .ci/run relies on: a test that plain go test leaves out, or runs with fewer cases,
// is in the file by its directory and its own name, and no other test is.
func TestLeftOutIsRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "left-out")
	t.Setenv(LeftOutEnv, path)
	t.Setenv(Env, "")
	t.Run("fewer", func(t *testing.T) {
		if n := Of(t, 1, 8); n != 1 {
			t.Errorf("%d cases, want 1", n)
		}
	})
	skipped := t.Run("skipped", func(t *testing.T) {
		NeedAll(t, "a test")
		t.Error("it ran")
	})
	t.Setenv(Env, "all")
	t.Run("all", func(t *testing.T) {
		if n := Of(t, 1, 8); n != 8 {
			t.Errorf("%d cases, want 8", n)
		}
		NeedAll(t, "a test")
	})
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := dir + " TestLeftOutIsRecorded\n"
	if want := line + line; string(got) != want || !skipped {
		t.Errorf("the file holds %q, want %q; skipped: %v", got, want, skipped)
	}
}
