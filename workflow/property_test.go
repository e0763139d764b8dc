package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// names are few, so that paths often match members, and keys repeat.
var names = []string{"a", "b", "items", "x y", "é", `q"`, "total"}

var numbers = []string{"0", "-0", "5", "5.0", "-12.50", "1e3", "1E-7", "9007199254740993", "18446744073709551615", "0.1", "123456789012345678901234567890", "1e400"}

// drawJSON draws JSON text as clients may write it: white space, escapes, repeated keys, and numbers in any spelling.
func drawJSON(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space")
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	var b strings.Builder
	b.WriteString(space)
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		b.WriteString(rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word"))
	case 1:
		b.WriteString(rapid.SampledFrom(numbers).Draw(t, "number"))
	case 2:
		b.WriteString(strconv.FormatInt(rapid.Int64().Draw(t, "int"), 10))
	case 3:
		b.WriteString(drawString(t))
	case 4:
		b.WriteByte('[')
		for i := range rapid.IntRange(0, 3).Draw(t, "elements") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(drawJSON(t, depth-1))
		}
		b.WriteByte(']')
	case 5:
		b.WriteByte('{')
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(space + spell(t, rapid.SampledFrom(names).Draw(t, "key")) + space + ":" + drawJSON(t, depth-1))
		}
		b.WriteByte('}')
	}
	b.WriteString(space)
	return b.String()
}

func drawString(t *rapid.T) string {
	return spell(t, rapid.StringOf(rapid.RuneFrom([]rune("ab<>&\"\\/\n\t\u2028é😀"))).Draw(t, "text"))
}

// spell writes a string as JSON in one of several ways.
func spell(t *rapid.T, s string) string {
	switch rapid.IntRange(0, 2).Draw(t, "spelling") {
	case 0:
		return string(jsonscan.AppendString(nil, s))
	case 1:
		b, _ := json.Marshal(s) // a string always has JSON
		return string(b)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < 0x10000 {
			fmt.Fprintf(&b, `\u%04X`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// drawPath draws a path into the input, as CEL text and as steps.
func drawPath(t *rapid.T) (string, []any) {
	text := "input"
	var steps []any
	for range rapid.IntRange(0, 3).Draw(t, "links") {
		if rapid.IntRange(0, 3).Draw(t, "link") == 0 {
			i := rapid.IntRange(0, 3).Draw(t, "index")
			text += "[" + strconv.Itoa(i) + "]"
			steps = append(steps, i)
			continue
		}
		name := rapid.SampledFrom(names).Draw(t, "name")
		if simpleKey.MatchString(name) && rapid.Bool().Draw(t, "dot") {
			text += "." + name
		} else {
			text += "[" + strconv.Quote(name) + "]"
		}
		steps = append(steps, name)
	}
	return text, steps
}

// follow is the oracle: it follows the path in the value that encoding/json decodes.
func follow(v any, path []any) (any, bool) {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = m[step]; !ok {
				return nil, false
			}
		case int:
			l, ok := v.([]any)
			if !ok || step >= len(l) {
				return nil, false
			}
			v = l[step]
		}
	}
	return v, true
}

func decodeNumbers(t interface{ Fatalf(string, ...any) }, raw []byte) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// A path copied from raw JSON has the same result as CEL, and as a lookup in the value of encoding/json. This holds
// alone and inside text, for values and failures.
func TestPathsAreWhatCELGives(t *testing.T) {
	programs := map[string]*Program{}
	rapid.Check(t, func(t *rapid.T) {
		path, steps := drawPath(t)
		p := programs[path]
		if p == nil {
			d, err := stepsAround([]any{"${ " + path + " }", "<${ " + path + " }>"})
			if err != nil {
				t.Fatal(err)
			}
			if p, err = Compile(d); err != nil {
				t.Fatal(err)
			}
			programs[path] = p
		}
		input := drawJSON(t, 3)
		s := &Scope{Input: json.RawMessage(input)}
		want, found := follow(decodeNumbers(t, s.Input), steps)
		if n, ok := want.(json.Number); ok && strings.Contains(n.String(), "e400") {
			found = false // no double comes near it
		}
		for i, text := range []bool{false, true} {
			x := p.steps[3].input.parts[i].x
			if x.raw == nil {
				t.Fatalf("%s is no path", path)
			}
			fast, ok := x.raw.append(nil, s, text)
			slow, err := (&templatePart{x: x, text: text}).append(nil, newActivation(p, s))
			if ok && err != nil || ok && !sameSpelled(t, fast, slow, text) {
				t.Fatalf("%s of %s: copied %s, CEL gives %s, %v", path, input, fast, slow, err)
			}
			if !text && (found != (err == nil) || found != ok) {
				t.Fatalf("%s of %s: found %v, copied %v, CEL fails with %v", path, input, found, ok, err)
			}
			if !text && found && canonical(want) != canonical(decodeNumbers(t, fast)) {
				t.Fatalf("%s of %s is %v, got %s", path, input, want, fast)
			}
		}
	})
}

// sameSpelled compares a copied value with the value that CEL wrote. The bytes must be equal, except for the spelling
// of a lone number or string.
func sameSpelled(t *rapid.T, fast, slow []byte, text bool) bool {
	if text {
		if v := trim(fast); v != nil && isNumber(string(v)) {
			b, err := appendValue(nil, number(v), 1)
			return err == nil && bytes.Equal(b, slow)
		}
		quote := func(b []byte) string { return `"` + string(b) + `"` }
		return decodeNumbers(t, []byte(quote(fast))) == decodeNumbers(t, []byte(quote(slow)))
	}
	b, err := appendValue(nil, value(fast), maxJSONDepth)
	return err == nil && bytes.Equal(b, slow)
}

// canonical encodes a decoded value, so that two values can be compared.
func canonical(v any) string { return string(appendTree(nil, v)) }

// drawDefinition draws a valid definition.
func drawDefinition(t *rapid.T) *Definition {
	dur := rapid.Custom(func(t *rapid.T) Duration {
		return Duration(rapid.Int64Range(int64(MinDuration), int64(30*time.Minute)).Draw(t, "duration"))
	})
	retry := func() *Retry {
		if !rapid.Bool().Draw(t, "retry") {
			return nil
		}
		r := &Retry{MaxAttempts: rapid.IntRange(1, MaxAttempts).Draw(t, "attempts")}
		if rapid.Bool().Draw(t, "backoff") {
			r.Backoff, r.Factor = dur.Draw(t, "backoff"), rapid.Float64Range(1, MaxFactor).Draw(t, "factor")
			r.Max = r.Backoff + dur.Draw(t, "max")
			r.CoolDown = dur.Draw(t, "cool_down")
		}
		switch codes := []string{"no_funds", "expired"}; rapid.IntRange(0, 3).Draw(t, "codes") {
		case 0:
			r.Only = codes
		case 1:
			r.Except = codes
		}
		return r
	}
	tree := func() any {
		var v any
		if rapid.Bool().Draw(t, "tree") {
			v = decodeNumbers(t, []byte(strings.ReplaceAll(drawJSON(t, 3), "1e400", "1")))
		}
		return v
	}
	b := New("w", rapid.IntRange(1, MaxVersion).Draw(t, "version")).CompleteWithin(time.Hour).AttemptWithin(time.Duration(dur.Draw(t, "attempt")))
	if r := retry(); r != nil {
		b.Retry(*r)
	}
	if rapid.Bool().Draw(t, "hold") {
		b.OnError(OnErrorHold)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
		s := Step{ID: "s-" + strconv.Itoa(i), Agent: "agent", Operation: "Op.x", Input: tree(), Retry: retry(), Pivot: rapid.Bool().Draw(t, "pivot"),
			Catch: rapid.SampledFrom([][]string{nil, {"*"}, {"expired", "gone"}}).Draw(t, "catch")}
		for j := range i {
			if rapid.IntRange(0, 2).Draw(t, "needs") == 0 {
				s.Needs = append(s.Needs, "s-"+strconv.Itoa(j))
			}
		}
		if len(s.Needs) > 0 {
			s.When = fmt.Sprintf("${ steps[%q].output != null }", s.Needs[0])
		}
		if rapid.IntRange(0, 3).Draw(t, "repeat") == 0 {
			s.Repeat = &Repeat{Until: "${ output.done == true }", Every: dur.Draw(t, "every"), Max: rapid.IntRange(1, MaxRepeats).Draw(t, "max")}
		}
		if rapid.Bool().Draw(t, "undo") {
			s.Undo = &Undo{Operation: "undo", Retry: retry(), Input: map[string]any{"of": fmt.Sprintf("${ steps[%q].output }", s.ID)}}
		}
		if rapid.Bool().Draw(t, "heartbeat") {
			s.CompleteWithin, s.Heartbeat = Within(time.Minute), Within(time.Second+time.Duration(rapid.IntRange(0, 1000).Draw(t, "beat"))*time.Millisecond)
			if s.Undo != nil {
				s.Undo.Heartbeat = Within(2 * time.Second)
			}
		}
		b.Step(s)
	}
	d, err := b.Output(tree()).Build()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// All ways to write and parse a definition result in the same body.
func TestDefinitionsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDefinition(t)
		body := d.JSON()
		if !json.Valid(body) {
			t.Fatalf("not JSON: %s", body)
		}
		back, err := ParseJSON(body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got := back.JSON(); !bytes.Equal(got, body) {
			t.Fatalf("%s came back as %s", body, got)
		}
		// JSON is YAML, so ParseYAML must return the same definition, with positions.
		yaml, err := ParseYAML("w.yaml", body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got := yaml.JSON(); !bytes.Equal(got, body) {
			t.Fatalf("%s came back from YAML as %s", body, got)
		}
		if yaml, err = ParseYAML("w.yaml", d.YAML()); err != nil {
			t.Fatalf("%s\n%v", d.YAML(), err)
		} else if got := yaml.JSON(); !bytes.Equal(got, body) {
			t.Fatalf("%s came back from\n%s\nas %s", body, d.YAML(), got)
		}
		stored, err := ParseJSON(yaml.Stored())
		if err != nil {
			t.Fatalf("%s: %v", yaml.Stored(), err)
		}
		if !bytes.Equal(stored.JSON(), body) || !bytes.Equal(stored.Stored(), yaml.Stored()) {
			t.Fatalf("%s came back as %s", yaml.Stored(), stored.Stored())
		}
		for _, format := range []string{GraphText, GraphMermaid, GraphDot} {
			if g, err := d.Graph(format); err != nil || strings.Count(g, "agent.Op.x") != len(d.Steps) {
				t.Fatalf("%s: %v", g, err)
			}
		}
	})
}

// The scanner accepts the same JSON as encoding/json, and ends at the same byte.
func TestScannerAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(drawJSON(t, 4))
		if len(b) > 0 && rapid.Bool().Draw(t, "corruption") {
			i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			b[i] = rapid.SampledFrom([]byte("{}[]\",:0e-.\\ u\x00\x1f")).Draw(t, "byte")
		}
		if got, want := trim(b) != nil, json.Valid(b); got != want {
			t.Fatalf("%q: valid %v, encoding/json says %v", b, got, want)
		}
	})
}
