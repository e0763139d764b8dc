package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// costInput has a long text in each of its members, and many small items.
func costInput(text string) json.RawMessage {
	const items = 20_000
	list := strings.TrimSuffix(strings.Repeat(`{"price":1},`, items), ",")
	return json.RawMessage(fmt.Sprintf(`{"items":[%s],"text":%q,"same":%[2]q,"by":{%[2]q:1},"short":""}`, list, text))
}

// The cost of a call on a long text depends on the length of the text, whatever its result. Otherwise many rounds could
// take seconds at a small cost. The test checks costs, not times.
func TestLongTextCosts(t *testing.T) {
	const size = 250_000
	input := costInput(strings.Repeat("1", size))
	for _, x := range []string{
		`i.price <= double(input.text)`, `int(input.text) == 1 || true`, `uint(input.text) == 1u || true`, `bool(input.text) || true`,
		`timestamp(input.text) == null || true`, `duration(input.text) == null || true`,
		`bytes(input.text) == b"" || true`, `string(input.text) == "" || true`,
		`size(input.text) > 0`, `input.text.size() > 0`,
		`input.text < input.same || true`, `input.text <= input.same`, `input.text > input.same || true`, `input.text >= input.same`,
		`input.text == input.same`, `input.text != input.same || true`, `input.text in [input.same]`, `input.text in input.by`,
		`input.text.contains(input.same)`, `input.text.startsWith(input.same)`, `input.text.endsWith(input.same)`,
		`input.text.matches("^1+$")`, `"".matches(input.text) || true`, `(input.text + "a") != ""`,
	} {
		wantTooMuch(t, "${ input.items.all(i, "+x+") }", input)
	}
}

// Repetitions make a regular expression many times as large as its text.
func TestRepetitionsCost(t *testing.T) {
	const size = 25_000
	input := costInput(strings.Repeat("1", size))
	for _, repeated := range []string{`(1?){40}2`, `(1?){0,35}2`, `((1?){6}){6}2`} {
		if got := instructions(repeated); got != maxRegexSize {
			t.Errorf("%s counts as %d instructions", repeated, got)
		}
		wantTooMuch(t, `${ [0,1,2,3,4,5,6,7,8,9].all(i, input.text.matches("`+repeated+`") || true) }`, input)
	}
	for small, want := range map[string]int{`^a+$`: 4, `^[0-9]{5}$`: 50, `a{`: 2, `a{,3}`: 15, `a{x}`: 4, `a{2,}b`: 12} {
		if got := instructions(small); got != want {
			t.Errorf("%s counts as %d instructions, want %d", small, got, want)
		}
	}
}

func wantTooMuch(t *testing.T, expression string, input json.RawMessage) {
	t.Helper()
	d, err := stepsAround(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	if _, err := compiled(t, d).Input(3, Scope{Input: input}); err == nil || !strings.Contains(err.Error(), "it costs more than 1000000") {
		t.Errorf("%s: %v", expression, err)
	}
}

// Short texts stay cheap: an expression may convert and match a text for each of many items.
func TestShortTextIsCheap(t *testing.T) {
	d, err := stepsAround(`${ input.items.all(i, double(string(i.price)) > 0.0 && size("1234") == 4 && "12345".matches("^[0-9]{5}$")) }`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := compiled(t, d).Input(3, Scope{Input: costInput("")})
	if err != nil || string(got) != "true" {
		t.Errorf("%s, %v", got, err)
	}
}
