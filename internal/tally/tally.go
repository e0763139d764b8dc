// Package tally counts what the tests did: graphs, seeds, simulated hours, kills. go test prints
// nothing of a test that passes when it tests several packages. So the counts are also appended to a
// file, which .ci/run prints at its end.
package tally

import (
	"fmt"
	"os"
)

// Env names the environment variable with the path of the file; empty: counts are only logged. It
// has no prefix WAYBILL_, which is for settings of the program: the program refuses unknown ones.
const Env = "TEST_TALLY"

// T is what this package needs of a *testing.T.
type T interface {
	Helper()
	Name() string
	Log(args ...any)
	Fatalf(format string, args ...any)
}

// Add records that a test did n of something, such as 10000 "random graphs". Each call appends one
// line with one write, so several processes may share the file.
func Add(t T, what string, n int) {
	t.Helper()
	Say(t, "%d %s", n, what)
}

// Say is Add for values that aren't whole numbers: durations, percentiles.
func Say(t T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	path := os.Getenv(Env)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("%s: %v", Env, err)
	}
	_, err = fmt.Fprintf(f, "%s: %s\n", t.Name(), line)
	if err := f.Close(); err != nil {
		t.Fatalf("%s: %v", Env, err)
	}
	if err != nil {
		t.Fatalf("%s: %v", Env, err)
	}
}
