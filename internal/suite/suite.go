// Package suite says which tests run. Plain `go test ./...` needs Go alone and
// ends within minutes: every decision, fold, codec, store and API, and orders
// from end to end on the embedded broker. WAYBILL_TEST=all runs the rest too:
// what needs Apache Kafka or Chromium, processes that are killed, minutes of
// waiting, and properties over many more histories. .ci/run does both.
package suite

import (
	"fmt"
	"os"
)

// Env names the environment variable that selects the tests: "" or "all".
const Env = "WAYBILL_TEST"

// All reports whether all tests were asked for. Any value but "all" panics: it would silently run
// fewer tests.
func All() bool {
	switch v := os.Getenv(Env); v {
	case "all":
		return true
	case "":
		return false
	default:
		panic(fmt.Sprintf("%s=%q: want %s=all, or no value", Env, v, Env))
	}
}

// T is what this package needs of a testing.TB.
type T interface {
	Helper()
	Skipf(format string, args ...any)
}

// NeedAll skips a test that plain `go test ./...` leaves out. why says what the test needs, as in
// "processes that are killed".
func NeedAll(t T, why string) {
	t.Helper()
	if !All() {
		t.Skipf("%s: %s=all runs this test, and so does .ci/run", why, Env)
	}
}

// Of returns how many cases a property is checked over: quick in plain `go test`, all with
// WAYBILL_TEST=all.
func Of(quick, all int) int {
	if All() {
		return all
	}
	return quick
}
