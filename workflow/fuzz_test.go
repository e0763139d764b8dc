package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// transcriptFiles returns all files with the extension in the transcripts.
func transcriptFiles(t testing.TB, ext string) []string {
	t.Helper()
	archives, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(archives) == 0 {
		t.Fatal("no transcripts", err)
	}
	var found []string
	for _, file := range archives {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if filepath.Ext(f.Name) == ext {
				found = append(found, string(f.Data))
			}
		}
	}
	return found
}

// For any file, ParseYAML returns a definition that can be stored and parsed again, or faults that all have a position
// and a message.
func FuzzParseYAML(f *testing.F) {
	for _, src := range transcriptFiles(f, ".yaml") {
		f.Add([]byte(src))
	}
	f.Add(orderYAML)
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := ParseYAML("f.yaml", src)
		if err != nil {
			checkFaults(t, err, "f.yaml")
			return
		}
		body := d.JSON()
		back, err := ParseJSON(d.Stored())
		if err != nil {
			t.Fatalf("%s can't be read back: %v", d.Stored(), err)
		}
		if !bytes.Equal(back.JSON(), body) || !bytes.Equal(back.Stored(), d.Stored()) {
			t.Fatalf("%s came back as %s", d.Stored(), back.Stored())
		}
		if _, err := Compile(back); err != nil {
			t.Fatalf("%s doesn't compile after it was read back: %v", body, err)
		}
		for i := range d.Steps {
			if within, r := d.Effective(i); within <= 0 || r.MaxAttempts < 1 || r.Factor < 1 || r.Backoff <= 0 || r.Max < r.Backoff {
				t.Fatalf("step %d of %s has the rule %v, %+v", i, body, within, r)
			}
		}
	})
}

// FuzzParseJSON is FuzzParseYAML for values of the definitions topic.
func FuzzParseJSON(f *testing.F) {
	for _, ext := range []string{".json", ".stored"} {
		for _, src := range transcriptFiles(f, ext) {
			f.Add([]byte(src))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := ParseJSON(src)
		if err != nil {
			checkFaults(t, err, "definition")
			return
		}
		back, err := ParseJSON(d.Stored())
		if err != nil || !bytes.Equal(back.JSON(), d.JSON()) {
			t.Fatalf("%s can't be read back: %v", d.Stored(), err)
		}
		if _, err := Compile(d); err != nil {
			var faults Errors
			if !errors.As(err, &faults) {
				t.Fatalf("%T: %v", err, err)
			}
		}
	})
}

func checkFaults(t *testing.T, err error, file string) {
	t.Helper()
	var faults Errors
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("%T: %v", err, err)
	}
	for _, e := range faults {
		if e.File != file || e.Line < 1 || e.Column < 1 || e.What == "" {
			t.Fatalf("a fault without file, place or text: %#v", e)
		}
	}
}

// quoting calls add with conditions that fail with a message that quotes their input.
func quoting(add func(condition, input string)) {
	long, wide := strings.Repeat("\x7f", 210_000), "x"+strings.Repeat("é", 210_000)
	add(`timestamp(input.t) > timestamp("2026-01-01T00:00:00Z")`, `{"t":"`+long+`"}`)
	add(`input.m[input.t + input.t]`, `{"m":{},"t":"`+wide+`"}`)
	add(`input.m + 1 > 0`, `{"m":`+strings.Repeat("9", 210_000)+`}`)
	add(`{input.t: true}[input.t + "x"]`, `{"t":"`+wide+`"}`)
}

// For any string and data, the result of an evaluation is valid JSON, or an error with its path. The JSON is the same
// each time, and the same as without the fast path.
func FuzzExpression(f *testing.F) {
	for _, lines := range transcriptFiles(f, ".eval") {
		for line := range strings.Lines(lines) {
			f.Add(strings.TrimSpace(line), `{"a":1,"n":5,"total":2.5,"list":[1,2,"x"],"o":{"z":1},"s":"text"}`)
		}
	}
	quoting(func(condition, input string) { f.Add("${ "+condition+" }", input) })
	f.Fuzz(func(t *testing.T, text, input string) {
		d, err := stepsAround(text)
		if err != nil {
			var faults Errors
			if !errors.As(err, &faults) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		p := compiled(t, d)
		s := Scope{TaskID: "t", Input: json.RawMessage(input), Labels: map[string]string{"b": "2", "a": "1"}}
		first, err := p.Input(3, s)
		again, errAgain := p.Input(3, s)
		if !bytes.Equal(first, again) || (err == nil) != (errAgain == nil) {
			t.Fatalf("%s of %s gives %s, %v, then %s, %v", text, input, first, err, again, errAgain)
		}
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Path != "steps.s.input" || e.Column < 1 || len(e.What) > 2*maxWhatBytes || strings.Contains(e.What, "internal error") {
				t.Fatalf("%s of %s: %#v", text, input, err)
			}
			return
		}
		if !json.Valid(first) || len(first) > MaxResultBytes {
			t.Fatalf("%s of %s gives invalid JSON: %s", text, input, first)
		}
		parts := p.steps[3].input.parts
		if len(parts) == 2 && parts[0].x.raw != nil && !parts[0].text {
			slow, err := parts[0].append(nil, newActivation(p, &s))
			if err != nil {
				t.Fatalf("%s of %s: copied %s, CEL fails with %v", text, input, first, err)
			}
			if b, err := appendValue(nil, value(first), maxJSONDepth); err != nil || !bytes.Equal(b, slow) {
				t.Fatalf("%s of %s: copied %s, CEL gives %s", text, input, first, slow)
			}
		}
	})
}

// FuzzWhen: any condition is refused with its position, or fails with its path, or has a result. The result is the same
// each time.
func FuzzWhen(f *testing.F) {
	for _, text := range []string{"${ input.n > 2 }", "${ steps.first.output != null }", `${ labels["a"] == "1" && task.priority >= 0 }`, "${ input }", "${ 1 }", "true", "${ true", "${ true } ",
		"${ input.list.exists(x, x == 2) }", `${ has(input.n) && steps["first"].state == "completed" }`, "${ input.n / 0 == 1 }"} {
		f.Add(text, `{"n":5,"list":[1,2,"x"]}`)
	}
	quoting(func(condition, input string) { f.Add("${ "+condition+" }", input) })
	f.Fuzz(func(t *testing.T, text, input string) {
		d, err := New("demo", 1).CompleteWithin(time.Hour).AttemptWithin(time.Second).
			Step(Step{ID: "first", Agent: "a", Operation: "o"}).
			Step(Step{ID: "s", Agent: "a", Operation: "o", Needs: []string{"first"}, When: text}).Build()
		if err != nil {
			var faults Errors
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		p := compiled(t, d)
		s := Scope{TaskID: "t", Input: json.RawMessage(input), Labels: map[string]string{"a": "1"}}
		first, err := p.When(1, s)
		again, errAgain := p.When(1, s)
		if first != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("%s of %s gives %v, %v, then %v, %v", text, input, first, err, again, errAgain)
		}
		if e := (*Error)(nil); err != nil && (first || !errors.As(err, &e) || e.Path != "steps.s.when" || e.Column < 1 || len(e.What) > 2*maxWhatBytes || strings.Contains(e.What, "internal error")) {
			t.Fatalf("%s of %s gives %v, %#v", text, input, first, err)
		}
		if text == "" && !first {
			t.Fatal("a step without a condition is skipped")
		}
	})
}

// FuzzJSONIsYAML: JSON is YAML. If JSON from the definitions topic compiles, ParseYAML returns the same definition.
// Otherwise ParseYAML refuses it too.
func FuzzJSONIsYAML(f *testing.F) {
	for _, src := range transcriptFiles(f, ".json") {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := ParseJSON(src)
		if err != nil {
			return
		}
		_, compileErr := Compile(d)
		y, err := ParseYAML("f.yaml", d.JSON())
		if (err == nil) != (compileErr == nil) || err == nil && !bytes.Equal(y.JSON(), d.JSON()) {
			t.Fatalf("%s compiles: %v; it is read from a file as %v, %v", d.JSON(), compileErr, y, err)
		}
	})
}

// FuzzDuration: a duration is the same after it is written and parsed. Its text isn't longer than Go's.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"0", "200ms", "1h30m", "30m0s", "1h0m0s", "-1.5h", "1µs", "2562047h47m16.854775807s", "-2562047h47m16.854775808s", "1e3s", "", "10", "1h 30m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		text, err := d.MarshalText()
		var back Duration
		if err != nil || back.UnmarshalText(text) != nil || back != d || len(text) > len(time.Duration(d).String()) {
			t.Fatalf("%q is %d ns, written %q, read %d ns, %v", s, d, text, back, err)
		}
	})
}

// The kept corpora run as tests. Each must belong to a fuzz test, because a renamed fuzz test would no longer run its
// corpus.
func TestCorporaBelongToFuzzers(t *testing.T) {
	dirs, err := os.ReadDir("testdata/fuzz")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		switch d.Name() {
		case "FuzzParseYAML", "FuzzParseJSON", "FuzzExpression", "FuzzWhen", "FuzzJSONIsYAML", "FuzzDuration":
		default:
			t.Errorf("testdata/fuzz/%s belongs to no fuzzer: rename it with its fuzzer, or remove it", d.Name())
		}
	}
}
