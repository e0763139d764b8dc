package workflowtest

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what happened into the expectations of test files")

const repository = "../.."

func every(string) bool { return true }

// TestExamples runs all test files of the repository.
func TestExamples(t *testing.T) {
	files := 0
	err := filepath.WalkDir(repository, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != repository:
			return fs.SkipDir
		case strings.HasSuffix(name, Suffix):
			files++
			t.Run(strings.TrimPrefix(filepath.ToSlash(name), repository+"/"), func(t *testing.T) { runFile(t, name) })
		case strings.HasSuffix(name, ".schedule.yaml"), strings.HasSuffix(name, ".intake.yaml"): // no workflows
		case strings.HasPrefix(filepath.ToSlash(name), repository+"/docs/examples/") && strings.HasSuffix(name, ".yaml"):
			if _, err := os.Stat(strings.TrimSuffix(name, ".yaml") + Suffix); err != nil {
				t.Errorf("%s has no tests: write *%s beside it", name, Suffix)
			}
		}
		return nil
	})
	if err != nil || files < 2 {
		t.Fatalf("%d files found (%v): the test proves nothing", files, err)
	}
}

func runFile(t *testing.T, name string) {
	f, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	results := f.Run(every)
	if *update {
		if err := f.Update(results); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range results {
		if !r.Passed && !r.Updated {
			t.Errorf("%s:%d: %s (-update writes what happened)\n%s%s", r.File, r.Line, r.Case, r.Fault, strings.Join(r.Differences, "\n"))
		}
	}
}

// copyOf writes a test file beside a copy of the definition parcel.yaml.
func copyOf(t *testing.T, src string) string {
	t.Helper()
	dir := t.TempDir()
	definition, err := os.ReadFile("testdata/parcel.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "parcel.yaml"), definition, 0o600)
	}
	name := filepath.Join(dir, "parcel"+Suffix)
	if err == nil {
		err = os.WriteFile(name, []byte(src), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestMistakes: a mistake in a file names its line, and what to do.
func TestMistakes(t *testing.T) {
	const input = "    input: {customer: ann, total: 1, weight: 1, ship_at: \"2026-01-01T00:00:00Z\"}\n"
	for name, tt := range map[string]struct{ src, want string }{
		"no YAML":           {"cases: [\n", `:\d+: .*; fix the YAML there`},
		"empty":             {"# nothing\n", `:1: the file is empty; write at least one case`},
		"no case":           {"replies: {}\n", `:1: the file has no case; write`},
		"two documents":     {"cases: {}\n---\ncases: {}\n", `:3: a second document; write all cases`},
		"unknown field":     {"cases:\n  a:\n    inputs: 1\n", `:3: the case has no field "inputs"; use one of id, start, input`},
		"list of cases":     {"cases:\n  - a\n", `:2: cases isn't an object; write names and values`},
		"unknown step":      {"cases:\n  a:\n    replies:\n      pay: completed\n", `:4: nothing in parcel/2 calls "pay"; use one of reserve, reserve/undo, charge, charge/undo, ship, inventory.reserve`},
		"a wait's reply":    {"replies: {slot: completed}\ncases: {a: {}}\n", `:1: nothing in parcel/2 calls "slot"`},
		"no such reply":     {"replies:\n  ship: sent\ncases: {a: {}}\n", `:2: "sent" isn't a reply; write completed, silence`},
		"two replies":       {"replies:\n  ship: {completed: 1, failed: x}\ncases: {a: {}}\n", `:2: a reply is one of completed, failed`},
		"no code":           {"replies:\n  ship: {failed: 7}\ncases: {a: {}}\n", `:2: the code of the error isn't text`},
		"bad delay":         {"replies:\n  ship: {completed: 1, after: soon}\ncases: {a: {}}\n", `:2: after: "soon" isn't a duration; write a number and a unit`},
		"too often":         {"replies:\n  ship: [{failed: x, times: 0}]\ncases: {a: {}}\n", `:2: times isn't a whole number that fits; write one from 1`},
		"bad effect":        {"replies:\n  ship: {failed: x, effect: some}\ncases: {a: {}}\n", `:2: effect is none or unknown`},
		"octal":             {"cases:\n  a:\n    input: {zip: 010}\n", `:3: 010 is no number in JSON; write it in decimal digits, or as a string`},
		"anchor":            {"cases:\n  a:\n    input: {x: &a 1}\n", `:3: this YAML has no JSON value`},
		"untimed command":   {"cases:\n  a:\n    commands: [{command: cancel}]\n", `:3: a command needs its time; write`},
		"command twice":     {"cases:\n  a:\n    commands: [{at: 1m, when: held, command: cancel}]\n", `:3: a command needs its time`},
		"unknown command":   {"cases:\n  a:\n    commands:\n      - {at: 1m, command: stop}\n", `:4: it can't be used: .*; write command: cancel, undo, resubmit or release`},
		"release of what":   {"cases:\n  a:\n    commands: [{at: 1m, command: release}]\n", `:3: it can't be used: .*release needs a step`},
		"signal of what":    {"cases:\n  a:\n    signals: [{at: 1m, data: 1}]\n", `:3: it can't be used: .*name.*; write its name`},
		"signals":           {"cases:\n  a:\n    signals: {at: 1m}\n", `:3: signals isn't a list; write each as an item: - {at: 1h, name: `},
		"unknown state":     {"cases:\n  a:\n    expect: {state: done}\n", `:3: no task is ever in the state "done"; write one of pending, processing, processed, held`},
		"state of when":     {"cases:\n  a:\n    commands: [{when: error, command: undo}]\n", `:3: no task is ever in this state; write a state`},
		"expected step":     {"cases:\n  a:\n    expect:\n      steps: {pay: completed}\n", `:4: the definition has no step "pay"`},
		"expected input":    {"cases:\n  a:\n    expect:\n      inputs: {slot: {}}\n", `:4: no step calls an agent as "slot"`},
		"start":             {"cases:\n  a:\n    start: today\n", `:3: start isn't an instant`},
		"no definition":     {"workflow: none.yaml\ncases: {a: {}}\n", `:1: the definition can't be read: .*none.yaml.*; write its name`},
		"no reply":          {"cases:\n  a:\n" + input, `:2: case "a": attempt 1 of reserve \(inventory.reserve\) has no reply; add one under replies: reserve: completed`},
		"no second reply":   {"cases:\n  a:\n" + input + "    replies:\n      reserve: [silence]\n", `:5: case "a": attempt 2 of reserve .* has no reply`},
		"refused":           {"cases:\n  a:\n    id: \"a\\u0001b\"\n", `:2: case "a": the submission is refused: .*control character`},
		"several":           {"cases:\n  a:\n    until: x\n    start: y\n", `:3: (?s:.*):4: `},
		"definition faulty": {"workflow: parcel" + Suffix + "\ncases: {a: {}}\n", `:1: the definition has faults; fix them there:\n(?s:.*)no such field`},
	} {
		t.Run(name, func(t *testing.T) {
			file := copyOf(t, tt.src)
			f, err := Load(file)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = f.Run(every)[0].Fault
			}
			if !regexp.MustCompile("^" + regexp.QuoteMeta(file) + tt.want).MatchString(got) {
				t.Errorf("got\n%s\nwant %s", got, tt.want)
			}
		})
	}
}

// body is a file in which each case has another form of expectation.
const body = `# head
replies:
  reserve: {completed: {id: r-1}}
  inventory.release: completed
  charge: completed
  charge/undo: completed
cases:
  none:
    input: {customer: a, total: 0, weight: 1, ship_at: "2026-01-01T00:00:00Z"}
    replies: {ship: {completed: {tracking: T}}}

  # a comment before a case
  chosen fields:
    input: {customer: a, total: 1, weight: 1, ship_at: "2026-01-01T00:00:00Z"}
    replies: {ship: {rejected: no}}
    expect:
      state: processed    # wrong
      # a comment within
      steps:
        ship: completed
        reserve: completed
      inputs: {ship: {}, reserve/undo: 1}
  one line:
    input: {customer: a, total: 0, weight: 1, ship_at: "2026-01-01T00:00:00Z"}
    expect: {state: pending, error: {code: x}}
    replies: {ship: {completed: {tracking: T}}}
  right:
    until: 0s
    input: {customer: a, total: 0, weight: 1, ship_at: "2026-01-01T00:00:00Z"}
    replies: {ship: {completed: {tracking: T}}}
    expect: {state: processed}
`

// TestUpdate: what happened is written where it belongs, and nothing else changes.
func TestUpdate(t *testing.T) {
	name := copyOf(t, body)
	f, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	results := f.Run(every)
	if err := f.Update(results); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if want := i < 3; r.Updated != want {
			t.Errorf("%s: updated is %v\n%s", r.Case, r.Updated, strings.Join(r.Differences, "\n"))
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/updated.txt")
	if *update {
		want, err = got, os.WriteFile("testdata/updated.txt", got, 0o600)
	}
	if err != nil || string(got) != string(want) {
		t.Errorf("%v\n%s", err, diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
	}
	again, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range again.Run(every) {
		if !r.Passed {
			t.Errorf("%s doesn't pass after an update: %s", r.Case, strings.Join(r.Differences, "\n"))
		}
	}
}

// TestUpdateOfOneLine: a case that is in one line can't be updated, and says so.
func TestUpdateOfOneLine(t *testing.T) {
	f, err := Load(copyOf(t, "replies: {reserve: silence}\ncases:\n  a: {until: 1s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Update(f.Run(every)); err == nil || !strings.Contains(err.Error(), ":3: case \"a\" can't be updated in this form; write each") {
		t.Errorf("got %v", err)
	}
}

// TestUnused: what a case says, and doesn't happen, is a difference, also for an update.
func TestUnused(t *testing.T) {
	f, err := Load(copyOf(t, `replies: {reserve: {rejected: no}}
cases:
  a:
    replies:
      ship: [completed]
    commands:
      - {when: held, command: undo}
    expect: {state: undone}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := f.Run(every)[0]
	all := strings.Join(r.Differences, "\n")
	if r.Passed || !strings.Contains(all, "line 5: 1 reply of ship, but only 0 attempts") || !strings.Contains(all, "line 7: the task was never held when this undo could come") {
		t.Errorf("got %s", all)
	}
	if err := f.Update([]*Result{r}); err != nil || r.Updated {
		t.Errorf("updated %v (%v)", r.Updated, err)
	}
}

func TestDiff(t *testing.T) {
	lines := func(s string) []string { return strings.Split(s, "") }
	for _, tt := range []struct{ want, got, diff string }{
		{"abc", "abc", "  ..."},
		{"abc", "abxc", "  a\n  b\n+ x\n  c"},
		{"abcdefgh", "abcdeXgh", "  ...\n  d\n  e\n- f\n+ X\n  g\n  h"},
		{"ab", "b", "- a\n  b"},
		{"aXcdefgYi", "acdefgi", "  a\n- X\n  c\n  d\n  ...\n  f\n  g\n- Y\n  i"},
	} {
		if got := diff(lines(tt.want), lines(tt.got)); got != tt.diff {
			t.Errorf("%s and %s:\n%s\nwant\n%s", tt.want, tt.got, got, tt.diff)
		}
	}
}

func TestEqualJSON(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[1.0,null]}`, `{"b":[1,null],"a":1e0}`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`"1"`, `1`, false},
	} {
		if got := equalJSON([]byte(tt.a), []byte(tt.b)); got != tt.want {
			t.Errorf("%s and %s: %v", tt.a, tt.b, got)
		}
	}
}

func TestCompact(t *testing.T) {
	if got := compact([]byte(`{"a" : [1, 2],"b\\":"x: \",y","c":"\\"}`)); got != `{"a": [1, 2], "b\\": "x: \",y", "c": "\\"}` {
		t.Error(got)
	}
}

// TestReferenceHasAllFields: the page of the format lists each field of each part.
func TestReferenceHasAllFields(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(repository, "docs/reference/workflow-test.md"))
	if err != nil {
		t.Fatal(err)
	}
	for title, fields := range map[string][]string{"The file": fileFields, "A case": caseFields, "`replies`": replyFields, "`commands`": slices.Concat(momentFields, commandFields), "`signals`": slices.Concat(momentFields, signalFields), "`expect`": expectFields} {
		_, part, _ := strings.Cut(string(src), "\n## "+title+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		for _, f := range fields {
			if !regexp.MustCompile("(?m)^\\| [^|]*`" + f + "`").MatchString(part) {
				t.Errorf("the part %q has no row for the field %s", title, f)
			}
		}
	}
}
