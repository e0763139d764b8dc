package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// The error of a failed expression has the file, line, column and path of the YAML, also after the definition was
// stored and parsed again. Without stored positions it has the path and the column within the expression.
func TestFailureNamesItsPlace(t *testing.T) {
	stored, err := ParseJSON(Order().Stored())
	if err != nil {
		t.Fatal(err)
	}
	bare, err := ParseJSON(Order().JSON())
	if err != nil {
		t.Fatal(err)
	}
	const what = `${ input.address } failed: no such key: address; send the member, or test it first with has(...)`
	for _, c := range []struct {
		name string
		d    *Definition
		want string
	}{
		{"yaml", Order(), "order.yaml:25:54: steps.ship.input.address: " + what},
		{"stored", stored, "order.yaml:25:54: steps.ship.input.address: " + what},
		{"body only", bare, "steps.ship.input.address (column 6 of the expression): " + what},
	} {
		_, err := compiled(t, c.d).Input(2, Scope{TaskID: "1", Input: json.RawMessage(`{}`)})
		if e := (*Error)(nil); !errors.As(err, &e) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// A step fails, without a panic, if its condition isn't a boolean, its undo's input isn't an object or a document isn't
// JSON.
func TestWrongKindsFail(t *testing.T) {
	d, err := New("w", 1).CompleteWithin(time.Hour).AttemptWithin(time.Second).
		Step(Step{
			ID: "a", Agent: "x", Operation: "y", When: "${ input.flag }",
			Input: "${ input.deep }",
			Undo:  &Undo{Operation: "z", Input: "${ steps.a.output }"},
		}).Output("${ steps.a.error }").Build()
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, d)
	scope := func(input, output string) Scope {
		return Scope{Input: json.RawMessage(input), Steps: []StepScope{{Output: json.RawMessage(output)}}}
	}
	if run, err := p.When(0, scope(`{"flag":true}`, ``)); !run || err != nil {
		t.Errorf("true: %v, %v", run, err)
	}
	if _, err := p.When(0, scope(`{"flag":"yes"}`, ``)); err == nil || !strings.Contains(err.Error(), "it gives a value of type string, want a boolean") {
		t.Errorf("a text as condition: %v", err)
	}
	if got, has, err := p.UndoInput(0, scope(`{}`, `{"id":7}`)); string(got) != `{"id":7}` || !has || err != nil {
		t.Errorf("undo input: %s, %v, %v", got, has, err)
	}
	for _, output := range []string{``, `null`, `[1]`, `"{"`} {
		if got, has, err := p.UndoInput(0, scope(`{}`, output)); err == nil || !has || !strings.Contains(err.Error(), "must be an object") {
			t.Errorf("undo input of %s: %s, %v, %v", output, got, has, err)
		}
	}
	if got, err := p.Output(Scope{}); string(got) != `null` || err != nil {
		t.Errorf("output of a task that ran nothing: %s, %v", got, err)
	}
	deep := strings.Repeat(`[`, maxJSONDepth+1) + strings.Repeat(`]`, maxJSONDepth+1)
	for _, input := range []string{`{"deep":1`, `{"deep":1} {}`, `{deep:1}`, `{"deep":01}`, `{"deep":` + deep + `}`, "{\"deep\":\"\xff\"} x"} {
		if got, err := p.Input(0, scope(input, ``)); err == nil || !strings.Contains(err.Error(), "not valid JSON") {
			t.Errorf("input of %.30q: %s, %v", input, got, err)
		}
	}
	if got, err := p.Input(0, scope("{\"deep\":[\"\xff\"]}", ``)); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("text that is not UTF-8 was passed on: %q, %v", got, err)
	}
	large := `"` + strings.Repeat("x", MaxResultBytes) + `"`
	if got, err := p.Input(0, scope(`{"deep":`+large+`}`, ``)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a value of %d bytes was passed on: %v", len(got), err)
	}
}

// 10,000 lookups of the same member use an index; they don't scan the input each time. So a legitimate expression on a
// large input stays within its cost, which bounds its time.
func TestLoopOverALargeInput(t *testing.T) {
	d, err := stepsAround(`${ input.items.map(i, {"sku": i.sku, "order": input.id}) }`)
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	items := strings.TrimSuffix(strings.Repeat(`{"sku":"A"},`, n), ",")
	input := `{"items":[` + items + `],"id":"o-1"}`
	p := compiled(t, d)
	allocated := testing.AllocsPerRun(1, func() {
		out, err := p.Input(3, Scope{Input: json.RawMessage(input)})
		if err != nil || bytes.Count(out, []byte(`{"order":"o-1","sku":"A"}`)) != n {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
	})
	if allocated > 60*n {
		t.Errorf("%.0f allocations for %d items: is the input decoded for each of them?", allocated, n)
	}
}

// Many goroutines can use one program: there is no data race, and all results are equal.
func TestConcurrentUse(t *testing.T) {
	d, err := stepsAround(map[string]any{
		"a": "${ input.list.map(x, x * 2) }", "b": "${ input.list }", "c": "${ task.id }-${ input.n + 1 }",
		"d": `${ {"z": input, "y": task.labels} == {} }`, "e": `${ input.text.matches("^a+$") }`,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, d)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				s := Scope{TaskID: fmt.Sprint(g), Labels: map[string]string{"g": "h"},
					Input: json.RawMessage(fmt.Sprintf(`{"list":[%d,%d],"n":%d,"text":"aaa"}`, g, i, i))}
				want := fmt.Sprintf(`{"a":[%d,%d],"b":[%d,%d],"c":"%d-%d","d":false,"e":true}`, 2*g, 2*i, g, i, g, i+1)
				if got, err := p.Input(3, s); err != nil || string(got) != want {
					t.Errorf("%s, %v, want %s", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

// Results don't depend on the order of Go's maps, neither for built objects nor for iterations.
func TestSameAnswerEachTime(t *testing.T) {
	d, err := stepsAround(`${ {"q":1,"w":2,"e":3,"r":4,"t":5,"y":6,"u":7}.map(k, {k: task.labels}) }`)
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, d)
	labels := map[string]string{"one": "1", "two": "2", "three": "3", "four": "4"}
	first, err := p.Input(3, Scope{Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if again, err := p.Input(3, Scope{Labels: labels}); err != nil || !bytes.Equal(first, again) {
			t.Fatalf("%s, then %s, %v", first, again, err)
		}
	}
}

// A failure may quote its whole input, escaped to four times its size. The message keeps only the beginning, in whole
// characters.
func TestMessagesAreBounded(t *testing.T) {
	quoting(func(condition, input string) {
		d, err := stepsAround("${ " + condition + " }")
		if err != nil {
			t.Fatal(err)
		}
		_, err = compiled(t, d).Input(3, Scope{Input: json.RawMessage(input)})
		if err == nil {
			t.Fatalf("%s doesn't fail", condition)
		}
		text := err.Error()
		if len(text) > 2*maxWhatBytes || !utf8.ValidString(text) || !strings.Contains(text, " bytes)") {
			t.Errorf("%s: the message has %d bytes: %.200s", condition, len(text), text)
		}
	})
	wide := strings.Repeat("é", 210_000)
	if _, err := ParseJSON([]byte(`{"workflow":"w","version":1,"on_error":"` + wide + `"}`)); err == nil || len(err.Error()) > 3*maxWhatBytes {
		t.Errorf("a definition's fault: %.200v", err)
	}
}
