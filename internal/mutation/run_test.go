// Package mutation changes the product in one place at a time, and checks that a test fails. A guarantee
// that no test checks could be lost unnoticed.
//
// The tree is never changed. Each mutation is an overlay of the compiler (go help build, -overlay), and names
// the tests that must fail. It is caught only if such a test ran and failed. A mutation that doesn't compile
// is an error.
//
//	go test ./internal/mutation -v                       as many as start within -for
//	go test ./internal/mutation -v -for 0                all
//	go test ./internal/mutation -v -mutation undo-order  one, or several by comma
//
// Each mutation builds a test binary, and all take about ten minutes on two busy cores. So a plain run shuffles
// them by the day, and reports how many it tried.
//
// table_test.go and flow_test.go hold the mutations.
package mutation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/sources"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

var (
	only   = flag.String("mutation", "", "try only the mutations of these names, separated by commas")
	within = flag.Duration("for", 40*time.Second, "start mutations within this time, in an order that changes daily; 0: all")
)

// mutation is one change that breaks the product.
type mutation struct {
	name  string
	edits []edit
	// pkg is the folder of the tests. The tests of fail must fail with the mutation and pass without it;
	// TestA/b is a subtest.
	pkg  string
	fail []string
}

// edit replaces code that occurs exactly once in a declaration, independent of file and formatting. in is
// folder.Type.Method, folder.Function, or the name of a constant, a variable or a type.
type edit struct{ in, old, new string }

const (
	// mutatedTimeout bounds the tests of one mutation, which may wait for what never comes.
	mutatedTimeout = 2 * time.Minute
	// unmutatedTimeout bounds the same tests without mutations. They end, but a busy machine may take long.
	unmutatedTimeout = 10 * time.Minute
)

// TestMutationsFitTheSource reports mutations that no longer fit the source. It runs none.
func TestMutationsFitTheSource(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations() {
		if names[m.name] || m.name == "" || len(m.fail) == 0 {
			t.Errorf("mutation %q: the name is missing or duplicate, or no failing test is named", m.name)
		}
		names[m.name] = true
		if _, err := m.mutate(); err != nil {
			t.Error(err)
		}
		tests := testSource(t, m.pkg)
		for _, name := range m.fail {
			name, _, _ = strings.Cut(name, "/")
			if !strings.Contains(tests, "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("mutation %s: there is no test %s in %s: name the one that catches it now", m.name, name, m.pkg)
			}
		}
	}
}

func testSource(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// TestMutationsAreCaught applies mutations and runs their tests.
func TestMutationsAreCaught(t *testing.T) {
	suite.NeedAll(t, "long computation")
	all := mutations()
	chosen := shuffledByDay(all, time.Now())
	switch {
	case *only != "":
		chosen = slices.DeleteFunc(all, func(m mutation) bool { return !slices.Contains(strings.Split(*only, ","), m.name) })
	}
	if len(chosen) == 0 {
		t.Fatalf("no mutation is named %q", *only)
	}
	if err := sources.Open(root); err != nil {
		t.Fatal(err)
	}
	r := &results{left: chosen}
	if *within > 0 && *only == "" {
		r.until = time.Now().Add(*within)
	}
	t.Run("with", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for m, ok := r.next(); ok; m, ok = r.next() {
					t.Run(m.name, func(t *testing.T) { r.checkFail(t, &m) })
				}
			})
		}
	})
	t.Run("without", func(t *testing.T) {
		for pkg, tests := range testsOf(r.tried) {
			t.Run(pkg, func(t *testing.T) {
				t.Parallel()
				r.checkPass(t, pkg, tests)
			})
		}
	})
	slices.Sort(r.caught)
	t.Logf("mutation -> the tests that failed\n%s", strings.Join(r.caught, "\n"))
	if len(r.tried) == 0 {
		t.Fatalf("no mutation was tried within %v", *within)
	}
	tally.Say(t, "%d mutations of %d caught; there are %d (-for 0 tries all)", len(r.caught), len(r.tried), len(all))
}

// shuffledByDay shuffles the mutations by the day, so that bounded runs on several days cover all.
func shuffledByDay(ms []mutation, now time.Time) []mutation {
	rng := rand.New(rand.NewPCG(uint64(now.UTC().YearDay()), uint64(now.UTC().Year())))
	rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms
}

// testsOf returns the tests of each package that the mutations name.
func testsOf(ms []mutation) map[string][]string {
	tests := map[string][]string{}
	for _, m := range ms {
		for _, name := range m.fail {
			if !slices.Contains(tests[m.pkg], name) {
				tests[m.pkg] = append(tests[m.pkg], name)
			}
		}
	}
	return tests
}

type results struct {
	until  time.Time // no mutation starts after it; zero: no limit
	mu     sync.Mutex
	left   []mutation
	tried  []mutation
	caught []string
}

// next returns the next mutation, or false if none is left or the time is over.
func (r *results) next() (m mutation, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.left) == 0 || !r.until.IsZero() && time.Now().After(r.until) {
		return mutation{}, false
	}
	m, r.left = r.left[0], r.left[1:]
	r.tried = append(r.tried, m)
	return m, true
}

// checkPass checks that the tests pass without a mutation.
func (r *results) checkPass(t *testing.T, pkg string, tests []string) {
	t.Helper()
	out, err := runTests(t, pkg, tests, nil, unmutatedTimeout)
	for _, name := range tests {
		if err != nil || verdict(out, name) != "PASS" {
			t.Fatalf("%s doesn't pass without a mutation, so its failure would prove nothing (%v):\n%s", name, err, out)
		}
	}
}

// checkFail checks that the tests fail with the mutation.
func (r *results) checkFail(t *testing.T, m *mutation) {
	t.Helper()
	replaced, err := m.mutate()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, err := runTests(t, m.pkg, m.fail, replaced, mutatedTimeout)
	if errors.Is(err, errBuild) {
		t.Fatalf("the mutation doesn't compile; adapt it\n%s", out)
	}
	for _, name := range m.fail {
		if v := verdict(out, name); v != "FAIL" {
			t.Fatalf("with the mutation, the result of %s is %q, want FAIL; write a test that fails\n%s", name, v, tailOf(out, 4000))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%-34s %s: %s (%.1f s)", m.name, m.pkg, strings.Join(failed(out), ", "), time.Since(began).Seconds())
	t.Log(line)
	r.caught = append(r.caught, line)
}

// timedOut matches a test that ran out of -test.timeout, in the panic that go test prints.
var timedOut = regexp.MustCompile(`(?ms)^panic: test timed out after \S+\n\s+running tests:\n(.*?)\n\n`)

// verdict returns the result of a test in the output of go test: PASS, FAIL, SKIP, or "". A test that is still running
// when the time is over has failed: a mutation may make it wait for what never comes.
func verdict(out []byte, name string) string {
	if running := timedOut.FindSubmatch(out); running != nil &&
		regexp.MustCompile(`(?m)^\s+`+regexp.QuoteMeta(name)+`(/\S+)? \(`).Match(running[1]) {
		return "FAIL"
	}
	said := regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): `+regexp.QuoteMeta(name)+` \(`).FindAllSubmatch(out, -1)
	v := ""
	for _, s := range said {
		if v = string(s[1]); v == "FAIL" {
			return v
		}
	}
	return v
}

// failed returns the failed tests, without parents of failed subtests.
func failed(out []byte) []string {
	var names []string
	for _, said := range regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+) \(`).FindAllSubmatch(out, -1) {
		names = append(names, string(said[1]))
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

func tailOf(out []byte, n int) []byte { return out[max(0, len(out)-n):] }

var errBuild = errors.New("go test -c failed")

// runTests builds the package's tests with replaced files, and runs some. A failure of the tests isn't an error.
func runTests(t *testing.T, pkg string, tests []string, replaced map[string][]byte, timeout time.Duration) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	binary, overlay := filepath.Join(dir, "tests"), filepath.Join(dir, "overlay.json")
	table := struct{ Replace map[string]string }{map[string]string{}}
	for file, content := range replaced {
		mutated := filepath.Join(dir, fmt.Sprintf("%d_%s", len(table.Replace), filepath.Base(file)))
		table.Replace[file] = mutated
		if err := os.WriteFile(mutated, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./"+pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return out, fmt.Errorf("%w: %w", errBuild, err)
	}
	patterns := make([]string, len(tests))
	for i, name := range tests {
		patterns[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	const grace = 30 * time.Second // in which the panic of a test that timed out is printed
	ctx, cancel := context.WithTimeout(t.Context(), timeout+grace)
	defer cancel()
	args := []string{"-test.v", "-test.timeout", timeout.String(), "-test.run", strings.Join(patterns, "|")}
	if strings.Contains(testSource(t, pkg), `"pgregory.net/rapid"`) {
		args = append(args, "-rapid.nofailfile") // failures with a mutation must not be recorded
	}
	run := exec.CommandContext(ctx, binary, args...)
	run.Dir = filepath.Join(root, pkg)
	// Runs with mutations don't count in the tally.
	run.Env = append(os.Environ(), tally.Env+"=", kafkatest.Env+"="+kafkatest.Off)
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	_ = run.Run() // the tests are expected to fail
	return out.Bytes(), nil
}
