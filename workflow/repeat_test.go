package workflow

import (
	"strings"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	d, err := New("w", 1).CompleteWithin(time.Hour).AttemptWithin(time.Second).
		Step(Step{ID: "a", Agent: "x", Operation: "o"}).
		Step(Step{ID: "b", Agent: "x", Operation: "o", Needs: []string{"a"},
			Repeat: &Repeat{Until: "${ output.n >= input.n || output == steps.a.output }", Every: Duration(1500 * time.Microsecond), Max: 3}}).Build()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	s := Scope{Input: []byte(`{"n":2}`), Steps: []StepScope{{Output: []byte(`{"n":-1}`)}}}
	for output, want := range map[string]string{`{"n":1}`: "false", `{"n":2.0}`: "true", `{"n":-1}`: "true", `{}`: "no such key", `{"n":"x"}`: "no such overload", `null`: "failed", `{`: "failed"} {
		done, err := p.Until(1, s, []byte(output))
		switch got := map[bool]string{true: "true", false: "false"}[done]; {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %s", output, err, want)
		case err == nil && got != want:
			t.Errorf("%s: %s, want %s", output, got, want)
		}
	}
	if w := d.Steps[1].Repeat.Wait(); w != 2*time.Millisecond {
		t.Errorf("a wait of 1.5 ms is one of %s", w)
	}
}
