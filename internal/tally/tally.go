// Package tally tells how much the tests did: graphs, seeds, simulated hours,
// kills. A test that passes is silent when many packages are tested at once, so
// the counts go to a file as well, and .ci/run prints it at its end.
package tally

import (
	"fmt"
	"os"
)

// Env names the environment variable that names the file; empty: counts are
// only logged. It has no WAYBILL_ in front: that is for settings of the program,
// which refuses those that it doesn't know.
const Env = "TEST_TALLY"

// T is what this package needs of a *testing.T.
type T interface {
	Helper()
	Name() string
	Log(args ...any)
	Fatalf(format string, args ...any)
}

// Add tells of n of something that a test did, such as 10000 "random graphs".
// Each call is one line, appended with one write, so processes may share the
// file.
func Add(t T, what string, n int) {
	t.Helper()
	Say(t, "%d %s", n, what)
}

// Say is Add for what isn't a whole number: durations, percentiles.
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
