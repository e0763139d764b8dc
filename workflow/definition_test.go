package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each field that a step leaves out comes from the defaults. Each field that an undo leaves out comes from its step.
// The last resort is DefaultRetry.
func TestEffective(t *testing.T) {
	second := Duration(time.Second)
	defaults := Retry{MaxAttempts: 5, Backoff: second, CoolDown: 60 * second}
	d, err := New("w", 1).CompleteWithin(time.Hour).AttemptWithin(10 * time.Second).Retry(defaults).
		Step(Step{ID: "plain", Agent: "a", Operation: "o", Undo: &Undo{Operation: "u"}}).
		Step(Step{ID: "own", Agent: "a", Operation: "o", CompleteWithin: Within(time.Minute), Retry: &Retry{MaxAttempts: 2, Max: 9 * second},
			Undo: &Undo{Operation: "u", Retry: &Retry{MaxAttempts: 99}}}).
		Step(Step{ID: "undo", Agent: "a", Operation: "o",
			Undo: &Undo{Operation: "u", Agent: "b", CompleteWithin: Within(2 * time.Hour), Retry: &Retry{Backoff: 120 * second}}}).
		Step(Step{ID: "codes", Agent: "a", Operation: "o", Retry: &Retry{Except: []string{"no_funds"}}, Undo: &Undo{Operation: "u"}}).
		Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		within time.Duration
		retry  Retry
		get    func() (time.Duration, Retry)
	}{
		{"plain", 10 * time.Second, Retry{MaxAttempts: 5, Backoff: second, Factor: 2, Max: 60 * second, CoolDown: 60 * second}, func() (time.Duration, Retry) { return d.Effective(0) }},
		{"plain undo", 10 * time.Second, Retry{MaxAttempts: 5, Backoff: second, Factor: 2, Max: 60 * second, CoolDown: 60 * second}, func() (time.Duration, Retry) { return d.EffectiveUndo(0) }},
		{"own", time.Minute, Retry{MaxAttempts: 2, Backoff: second, Factor: 2, Max: 9 * second, CoolDown: 60 * second}, func() (time.Duration, Retry) { return d.Effective(1) }},
		{"own undo", time.Minute, Retry{MaxAttempts: 99, Backoff: second, Factor: 2, Max: 9 * second, CoolDown: 60 * second}, func() (time.Duration, Retry) { return d.EffectiveUndo(1) }},
		{"undo's step", 10 * time.Second, Retry{MaxAttempts: 5, Backoff: second, Factor: 2, Max: 60 * second, CoolDown: 60 * second}, func() (time.Duration, Retry) { return d.Effective(2) }},
		{"codes", 10 * time.Second, Retry{MaxAttempts: 5, Backoff: second, Factor: 2, Max: 60 * second, CoolDown: 60 * second, Except: []string{"no_funds"}},
			func() (time.Duration, Retry) { return d.Effective(3) }},
		{"undo of codes", 10 * time.Second, Retry{MaxAttempts: 5, Backoff: second, Factor: 2, Max: 60 * second, CoolDown: 60 * second},
			func() (time.Duration, Retry) { return d.EffectiveUndo(3) }},
		{"undo", 2 * time.Hour, Retry{MaxAttempts: 5, Backoff: 120 * second, Factor: 2, Max: 120 * second, CoolDown: 60 * second}, func() (time.Duration, Retry) { return d.EffectiveUndo(2) }},
	} {
		if within, retry := c.get(); within != c.within || !reflect.DeepEqual(retry, c.retry) {
			t.Errorf("%s: %v %+v, want %v %+v", c.what, within, retry, c.within, c.retry)
		}
	}
	if got := fmt.Sprint(d.Agents()); got != "[a b]" {
		t.Errorf("agents %s", got)
	}
	if d.Steps[0].Undo.Agent != "a" || d.OnError != OnErrorUndo || d.Key() != "w/1" {
		t.Errorf("the defaults of single fields are not filled in: %s", d.JSON())
	}
}

// The effective retry rule of the sample workflow.
func TestEffectiveOfOrder(t *testing.T) {
	want := Retry{MaxAttempts: 5, Backoff: Duration(200 * time.Millisecond), Factor: 2, Max: Duration(30 * time.Second), CoolDown: Duration(5 * time.Minute)}
	for i := range Order().Steps {
		if within, r := Order().Effective(i); within != 10*time.Second || !reflect.DeepEqual(r, want) {
			t.Errorf("step %d: %v, %+v", i, within, r)
		}
	}
}

// A definition doesn't depend on its line ends or a byte order mark.
func TestLineEnds(t *testing.T) {
	src, err := os.ReadFile("order.yaml")
	if err != nil {
		t.Fatal(err)
	}
	src = append(src, "  note: |\n    one\n    two\n  fold: >\n    one\n    two\n  quoted: \"one\n    two\"\n  plain: one\n    two\n"...)
	src = bytes.Replace(src, []byte("\noutput: {tracking: \"${ steps.ship.output.tracking }\"}"), []byte("\noutput:\n  tracking: \"${ steps.ship.output.tracking }\""), 1)
	want, err := ParseYAML("order.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	windows := bytes.ReplaceAll(src, []byte("\n"), []byte("\r\n"))
	for name, text := range map[string][]byte{"windows line ends": windows, "a byte order mark": append([]byte("\xef\xbb\xbf"), src...)} {
		got, err := ParseYAML("order.yaml", text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(got.Stored(), want.Stored()) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got.Stored(), want.Stored())
		}
	}
}

// A builder reports the same faults as the YAML reader, with the same paths.
func TestBuilderReportsEveryFault(t *testing.T) {
	loop := map[string]any{}
	loop["loop"] = loop
	_, err := New("W", 0).OnError("stop").
		Step(Step{ID: "a", Agent: "x", Operation: "y", Needs: []string{"b"}, CompleteWithin: Within(-1), Input: map[string]any{"f": func() {}, "n": 1, "bad": "\xff"}}).
		Step(Step{ID: "a", Operation: "y", When: "${ 1 }", Input: loop}).
		Output([]string{"${ steps.c.output }"}).Build()
	var faults Errors
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	text := err.Error()
	for _, want := range []string{
		`workflow: "W" is not a name`, `version: missing`, `complete_within: missing`, `on_error: "stop"`,
		`steps.a.input.f: a Go value of type func()`, `steps.a.input.bad: the text is not UTF-8`,
		`steps.a: two steps have this id`, `steps.a.agent: missing`, `steps.a.complete_within: -1ns`, `nested more than 32 deep`,
		`steps.a.needs[0]: no step has the id "b"`, `steps.a.when`, `this gives int, want a boolean`, `output[0]`, `no step has the id "c"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q in:\n%s", want, text)
		}
	}
	for _, e := range faults {
		if e.Line != 0 || e.File != "" || e.Path == "" {
			t.Errorf("a fault of a definition from Go: %#v", e)
		}
	}
}

// Compile and Build don't change their arguments.
func TestCompileChangesNothing(t *testing.T) {
	d := &Definition{Name: "w", Version: 1, CompleteWithin: Duration(time.Hour), Steps: []Step{{
		ID: "a", Agent: "x", Operation: "y", CompleteWithin: Within(time.Second), Input: map[string]any{"n": 1}, Undo: &Undo{Operation: "z"},
	}}}
	p := compiled(t, d)
	if d.OnError != "" || d.Steps[0].Undo.Agent != "" || d.Steps[0].Input.(map[string]any)["n"] != 1 {
		t.Errorf("changed to %+v", d)
	}
	if c := p.Definition(); c.OnError != OnErrorUndo || c.Steps[0].Undo.Agent != "x" {
		t.Errorf("not completed: %s", c.JSON())
	}
}

// Sizes beyond a bound are refused before they are processed. The fault names the bound.
func TestBounds(t *testing.T) {
	steps := func(n int) string {
		var b strings.Builder
		b.WriteString("workflow: w\nversion: 1\ncomplete_within: 1h\ndefaults: {complete_within: 1s}\nsteps:\n")
		for i := range n {
			fmt.Fprintf(&b, "  s%d: {agent: a, operation: o, when: \"${ input.n > %d }\"}\n", i, i)
		}
		return b.String()
	}
	if d, err := ParseYAML("f", []byte(steps(MaxSteps))); err != nil || len(d.Steps) != MaxSteps {
		t.Errorf("%d steps: %v", MaxSteps, err)
	}
	one := strings.TrimSuffix(steps(1), "}\n")
	for what, src := range map[string]string{
		"1025 steps, the limit is 1024":       steps(MaxSteps + 1),
		"the limit is 524288":                 steps(1) + strings.Repeat("#", MaxDefinitionBytes),
		"not UTF-8":                           "workflow: \xff",
		"nested more than 500 deep":           one + ", input: " + strings.Repeat("[", 501),
		"nested more than 32 deep":            one + ", input: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}",
		"nested more than 500 deep; flatten":  strings.Repeat("- ", 501) + "a",
		"the expression has 4097 bytes":       one + ", input: \"${ " + strings.Repeat("1", MaxExpressionBytes+1) + " }\"}",
		"expression recursion limit exceeded": one + ", input: \"${ " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + " }\"}",
		"257 needs, the limit is 256":         one + ", needs: [" + strings.Repeat("x,", MaxNeeds+1) + "]}",
	} {
		if _, err := ParseYAML("f", []byte(src)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want a fault with %q, got %.300v", what, err)
		}
	}
	if _, err := ParseJSON(bytes.Repeat([]byte(" "), 2*MaxDefinitionBytes+1)); err == nil {
		t.Error("JSON past the limit was read")
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{"30m0s": "30m", "1h0m0s": "1h", "90s": "1m30s", "200ms": "200ms", "1h0m1s": "1h0m1s", "0": "0s", "1h30m": "1h30m", "30d": "720h", "1d12h": "36h", "3650d": "87600h"} {
		d, err := ParseDuration(text)
		if err != nil || d.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, d, err, want)
		}
		if back, err := ParseDuration(d.String()); err != nil || back != d {
			t.Errorf("%s came back as %s, %v", d, back, err)
		}
	}
	for _, text := range []string{"d", "1.5d", "-1d", "1d-1h", "1d+1h", "1d1d", "1dx", "3651d", "1d2562047h", "1h1d"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%s was read as %s", text, d)
		}
	}
}

// The package is pure: it imports no packages for time, randomness, goroutines or I/O. What it may import of
// this module is in internal/lint.
func TestImports(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if slices.Contains([]string{"os", "net", "crypto/rand", "log"}, path) || strings.HasPrefix(path, "net/") || strings.HasPrefix(path, "math/rand") || strings.HasPrefix(path, "log/") {
				t.Errorf("%s imports %s: a definition is data and its evaluation is pure; do this in the caller", e.Name(), path)
			}
		}
	}
}

// TestNumbersOfYAML: a plain scalar that some YAML parser reads as a number, but JSON doesn't, is refused everywhere.
func TestNumbersOfYAML(t *testing.T) {
	const definition = "workflow: w\nversion: %s\ncomplete_within: 1m\nsteps:\n  a:\n    agent: x\n    operation: o\n    complete_within: 1s\n    retry: {factor: %s}\n    input:\n      v: %s\n"
	in := func(version, factor, input string) error {
		_, err := ParseYAML("f", fmt.Appendf(nil, definition, version, factor, input))
		return err
	}
	for _, s := range []string{"010", "1_000", "0b11", "0x1F", "0o17", "01234", "+5", "1.", ".5", "09", "1_0.5", "-010", "00", "-.5", "+.5", "0777.5", "+1e3",
		"0O17", "0B1", "0X1f", "-0x1F", "1__0", "1_000_", "1.e5", "0_1"} {
		for _, at := range []error{in(s, "2", "1"), in("1", s, "1"), in("1", "2", s), in("1", "2", "[{x: "+s+"}]")} {
			if at == nil || !strings.Contains(at.Error(), s+" is no number in JSON") || !strings.Contains(at.Error(), strconv.Quote(s)+" as a string") {
				t.Errorf("%s: %v", s, at)
			}
		}
		if err := in("1", "2", strconv.Quote(s)); err != nil {
			t.Errorf("%q in quotes: %v", s, err)
		}
	}
	for _, s := range []string{"0", "-0", "1e3", "5.0", "12345678901234567890123", "1e+3", "0.10", "2026-01-01", "1:30", "1.2.3", "_1", "0xg", "1e", "s010", "010 Main Road"} {
		if err := in("1", "2", s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestTextsOfDefinitions: a text is refused if its parser would have to replace an escape that isn't a character.
func TestTextsOfDefinitions(t *testing.T) {
	const definition = "workflow: w\nversion: 1\ncomplete_within: 1m\nsteps:\n  a:\n    agent: x\n    operation: o\n    complete_within: 1s\n    input: {%s}\n"
	for text, good := range map[string]bool{`"\ud83d"`: false, `"\udfff x"`: false, `"\U00110000"`: false, `"\ud83d\u0041"`: false, `"�\udfff"`: false,
		`"\ud83d\ude00"`: true, `"\U0001F600"`: true, `"�"`: true, `"\ufffd\uFFFD"`: true, `'\udfff'`: true} {
		for _, entry := range []string{"v: " + text, text + ": 1"} {
			if _, err := ParseYAML("f", fmt.Appendf(nil, definition, entry)); (err == nil) != good {
				t.Errorf("YAML %s: %v", entry, err)
			}
		}
		if strings.ContainsAny(text, "'U") {
			continue
		}
		for _, entry := range []string{`"v":` + text, text + ":1"} {
			src := `{"workflow":"w","version":1,"complete_within":"1m","steps":{"a":{"agent":"x","operation":"o","complete_within":"1s","input":{` + entry + `}}}}`
			if _, err := ParseJSON([]byte(src)); (err == nil) != good {
				t.Errorf("JSON %s: %v", entry, err)
			}
		}
	}
}
