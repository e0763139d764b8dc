// Package mutation breaks the product on purpose, one place at a time, and
// shows that a test notices: a promise that no test would miss is a wish.
//
// The tree is never touched. Each mutation is an overlay of the compiler
// (go help build, -overlay), and the tests that must fail are named. A mutation
// counts as caught only where such a test ran and failed; what doesn't compile
// proves nothing.
//
//	go test ./internal/mutation -v                       as many as begin within -for
//	go test ./internal/mutation -v -for 0                all
//	go test ./internal/mutation -v -mutation undo-order  one, or several by comma
//
// Each builds a test binary, and all take ten minutes on two cores that do other
// things too. So a plain run begins at another place each day, and says how many
// of how many it tried.
//
// table_test.go and the files beside it are the mutations.
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
	within = flag.Duration("for", 40*time.Second, "as many as begin within this, from another one on each day; 0: all")
)

// mutation is one way to break the product.
type mutation struct {
	name  string
	edits []edit
	// pkg is the folder of the tests, and fail are those that must fail, and
	// must pass without the mutation. TestA/b is a subtest.
	pkg  string
	fail []string
}

// edit replaces code that occurs once in a function, wherever in its package that
// is, and however it is laid out: in is scheduler.flow.next for the method next of
// flow in the folder scheduler, or names a constant, a variable or a type.
type edit struct{ in, old, new string }

// testsWithin bounds the run of one mutation's tests.
const testsWithin = 2 * time.Minute

// TestMutationsFitTheSource says at once which rows a change of the source has
// made meaningless.
func TestMutationsFitTheSource(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations() {
		if names[m.name] || m.name == "" || len(m.fail) == 0 {
			t.Errorf("mutation %q: its name is taken, or it has none, or no test is to fail", m.name)
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
	suite.NeedAll(t, "much computing")
	all := mutations()
	chosen := ofToday(all, time.Now())
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
					t.Run(m.name, func(t *testing.T) { r.broken(t, &m) })
				}
			})
		}
	})
	t.Run("without", func(t *testing.T) {
		for pkg, tests := range testsOf(r.tried) {
			t.Run(pkg, func(t *testing.T) {
				t.Parallel()
				r.clean(t, pkg, tests)
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

// ofToday has another one first each day: in some days all had their turn.
func ofToday(ms []mutation, now time.Time) []mutation {
	rng := rand.New(rand.NewPCG(uint64(now.UTC().YearDay()), uint64(now.UTC().Year())))
	rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms
}

// testsOf are the tests of each package that take part.
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
	until  time.Time // no mutation begins past it; zero: never
	mu     sync.Mutex
	left   []mutation
	tried  []mutation
	caught []string
}

// next is the mutation whose turn it is; none when all had theirs, or the time is over.
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

// clean: without any mutation the tests pass.
func (r *results) clean(t *testing.T, pkg string, tests []string) {
	t.Helper()
	out, err := runTests(t, pkg, tests, nil)
	for _, name := range tests {
		if err != nil || verdict(out, name) != "PASS" {
			t.Fatalf("%s doesn't pass without a mutation, so its failure would prove nothing (%v):\n%s", name, err, out)
		}
	}
}

// broken: with the mutation its tests fail.
func (r *results) broken(t *testing.T, m *mutation) {
	t.Helper()
	replaced, err := m.mutate()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, err := runTests(t, m.pkg, m.fail, replaced)
	if errors.Is(err, errBuild) {
		t.Fatalf("the mutation doesn't compile: that catches nothing; adapt it\n%s", out)
	}
	for _, name := range m.fail {
		if v := verdict(out, name); v != "FAIL" {
			t.Fatalf("with the mutation %s says %q: nothing holds what was broken; write the test that does\n%s", name, v, last(out, 4000))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%-34s %s: %s (%.1f s)", m.name, m.pkg, strings.Join(failed(out), ", "), time.Since(began).Seconds())
	t.Log(line)
	r.caught = append(r.caught, line)
}

// verdict is what go test said of a test: PASS, FAIL, SKIP, or nothing.
func verdict(out []byte, name string) string {
	said := regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): `+regexp.QuoteMeta(name)+` \(`).FindAllSubmatch(out, -1)
	v := ""
	for _, s := range said {
		if v = string(s[1]); v == "FAIL" {
			return v
		}
	}
	return v
}

// failed are the tests that failed, without those that failed with a subtest.
func failed(out []byte) []string {
	var names []string
	for _, said := range regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+) \(`).FindAllSubmatch(out, -1) {
		names = append(names, string(said[1]))
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

func last(out []byte, n int) []byte { return out[max(0, len(out)-n):] }

var errBuild = errors.New("go test -c failed")

// runTests builds the package's tests with files replaced, and runs some. The
// tests' own failure is no error: the output says it.
func runTests(t *testing.T, pkg string, tests []string, replaced map[string][]byte) ([]byte, error) {
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
	ctx, cancel := context.WithTimeout(t.Context(), testsWithin)
	defer cancel()
	args := []string{"-test.v", "-test.timeout", testsWithin.String(), "-test.run", strings.Join(patterns, "|")}
	if strings.Contains(testSource(t, pkg), `"pgregory.net/rapid"`) {
		args = append(args, "-rapid.nofailfile") // what it would keep is no fault of the product
	}
	run := exec.CommandContext(ctx, binary, args...)
	run.Dir = filepath.Join(root, pkg)
	// The counts of a broken build are nobody's.
	run.Env = append(os.Environ(), tally.Env+"=", kafkatest.Env+"="+kafkatest.Off)
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	_ = run.Run() // most are to fail
	return out.Bytes(), nil
}
