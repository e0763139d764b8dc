// Package suite says which tests run. Plain `go test ./...` needs Go alone and
// ends within minutes: every decision, fold, codec, store and API, and orders
// from end to end on the embedded broker. WAYBILL_TEST=all runs the rest too:
// what needs Apache Kafka or Chromium, processes that are killed, minutes of
// waiting, and properties over many more histories. .ci/run does both.
package suite

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Env names the environment variable that selects the tests: "" or "all".
const Env = "WAYBILL_TEST"

// LeftOutEnv names the environment variable with the path of a file; empty: none. Each test that plain `go test ./...`
// leaves out, or runs with fewer cases, appends a line with its directory and its name. .ci/run runs these tests again
// with WAYBILL_TEST=all, and no others. It has no prefix WAYBILL_, which is for settings of the program.
const LeftOutEnv = "TEST_LEFT_OUT"

// Patience bounds every wait of a test for what must come. It claims nothing about speed: it only ends a test that would
// hang with a message that says what didn't come. A busy machine may slow a test down twenty times and stays far below
// it. go test's own -timeout, 10 minutes unless a longer one is given, may end the package first, with all stacks.
const Patience = 20 * time.Minute

// T is what this package needs of a testing.TB.
type T interface {
	Helper()
	Name() string
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// All reports whether all tests were asked for. If not, it records that the test left something out. Any value but "all"
// panics: it would silently run fewer tests.
func All(t T) bool {
	t.Helper()
	all := wanted()
	if path := os.Getenv(LeftOutEnv); !all && path != "" {
		if err := record(path, t.Name()); err != nil {
			t.Fatalf("%s: %v", LeftOutEnv, err)
		}
	}
	return all
}

func wanted() bool {
	switch v := os.Getenv(Env); v {
	case "all":
		return true
	case "":
		return false
	default:
		panic(fmt.Sprintf("%s=%q: want %s=all, or no value", Env, v, Env))
	}
}

// record appends one line with one write, so several processes may share the file. go test runs a test in the directory
// of its package.
func record(path, test string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(test, "/")
	_, err = fmt.Fprintf(f, "%s %s\n", dir, name)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// NeedAll skips a test that plain `go test ./...` leaves out. why says what the test needs, as in
// "processes that are killed".
func NeedAll(t T, why string) {
	t.Helper()
	if !All(t) {
		t.Skipf("%s: %s=all runs this test, and so does .ci/run", why, Env)
	}
}

// Of returns how many cases a property is checked over: quick in plain `go test`, all with
// WAYBILL_TEST=all.
func Of(t T, quick, all int) int {
	t.Helper()
	if All(t) {
		return all
	}
	return quick
}

// Flag is Of for the default value of a flag. No test is recorded, so .ci/run runs its package as a whole.
func Flag(quick, all int) int {
	if wanted() {
		return all
	}
	return quick
}

// Some wraps a property for rapid.Check, which checks it over 100 cases: plain `go test` checks the first 20 of them.
// It is for properties whose cases take long.
func Some[R any](t T, property func(R)) func(R) {
	t.Helper()
	left, failed := Of(t, 20, 100), false
	return func(r R) {
		if left == 0 && !failed { // once a case has failed, rapid searches for a smaller one
			return
		}
		failed = true // unless the property returns
		property(r)
		failed = false
		left = max(0, left-1)
	}
}
