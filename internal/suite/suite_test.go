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

// TestSomeChecksFewer checks that plain go test checks the first cases of a property, that one that fails is tried as
// often as asked for, and that the test is recorded.
func TestSomeChecksFewer(t *testing.T) {
	t.Setenv(LeftOutEnv, filepath.Join(t.TempDir(), "left-out"))
	for env, want := range map[string]int{"": 20, "all": 100} {
		t.Setenv(Env, env)
		checked := 0
		property := Some(t, func(int) { checked++ })
		for n := range 100 {
			property(n)
		}
		if checked != want {
			t.Errorf("%s=%q: %d cases, want %d", Env, env, checked, want)
		}
	}
	t.Setenv(Env, "")
	tried := 0
	property := Some(t, func(n int) {
		if tried++; n == 3 {
			panic("a failure")
		}
	})
	for n := range 10 {
		func() { defer func() { _ = recover() }(); property(min(n, 3)) }()
	}
	if tried != 10 {
		t.Errorf("%d tries, want 10", tried)
	}
}
