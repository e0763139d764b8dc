package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// workDocuments are valid and invalid documents of a task.
var workDocuments = []string{
	``, `null`, `3`, `"text"`, `[1,{"a":2}]`, `{}`, `{"a":1}`, ` {"a" : {"b":[1,2,{"c":"x"}]} , "n":2.50} `, `{"a":1,"a":{"b":3}}`,
	`{"\u0061":{"b":4}}`, `{"a":"\u00e4\ud83d\ude00","b":1e400}`, `{"a":1} x`, `{"a":`, `{"a":01}`, `{"a":{"b":` + deepList + `}}`, "{\"a\":\"\xff\"}",
}

var deepList = strings.Repeat(`[`, maxJSONDepth+1) + strings.Repeat(`]`, maxJSONDepth+1)

// The results of evaluations are the same with and without a Work, for any number of earlier lookups.
func TestWorkChangesNothing(t *testing.T) {
	var templates []any
	for _, x := range []string{`X`, `X.a`, `X.a.b`, `X["a"]`, `X[0]`, `X.a.b[2].c`, `has(X.a)`, `X.a == 1 || true`, `size(X)`, `X == X`, `string(X.n)`} {
		for _, of := range []string{"input", "steps.first.output"} {
			x := "${ " + strings.ReplaceAll(x, "X", of) + " }"
			templates = append(templates, x, map[string]any{"in": "text " + x})
		}
	}
	for _, tree := range templates {
		d, err := stepsAround(tree)
		if err != nil {
			t.Fatalf("%v: %v", tree, err)
		}
		p := compiled(t, d)
		for _, doc := range workDocuments {
			s := Scope{Input: json.RawMessage(doc), Steps: make([]StepScope, 4)}
			s.Steps[1].Output = json.RawMessage(doc)
			want, wantErr := p.Input(3, s)
			s.Work = &Work{}
			for n := range 3 * sharedAfterLookups {
				got, err := p.Input(3, s)
				if string(got) != string(want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%v of %.60q, evaluation %d: %s, %v; without a Work %s, %v", tree, doc, n+1, got, err, want, wantErr)
				}
			}
		}
	}
}

// After DocumentsChanged a Work doesn't use the old documents.
func TestWorkOfAnotherInput(t *testing.T) {
	d, err := stepsAround([]any{"${ input.a }", "${ input.a + 1 }"})
	if err != nil {
		t.Fatal(err)
	}
	p, w := compiled(t, d), &Work{}
	for n := range 3 {
		for range 2 * sharedAfterLookups {
			got, err := p.Input(3, Scope{Input: json.RawMessage(fmt.Sprintf(`{"a":%d}`, n)), Work: w})
			if want := fmt.Sprintf(`[%d,%d]`, n, n+1); string(got) != want || err != nil {
				t.Fatalf("%s, %v, want %s", got, err, want)
			}
		}
		w.DocumentsChanged()
	}
}

// The total cost of many evaluations is bounded, although each is within its own bound.
func TestWorkIsBounded(t *testing.T) {
	d, err := stepsAround(`${ input.items.all(i, i.price > 0) }`)
	if err != nil {
		t.Fatal(err)
	}
	p, w := compiled(t, d), &Work{}
	s := Scope{Input: costInput(""), Work: w}
	if _, err := p.Input(3, s); err != nil || w.spent == 0 {
		t.Fatalf("%d spent: %v", w.spent, err)
	}
	w.DocumentsChanged()
	for range 2 {
		w.spent += MaxWorkCost / 2
	}
	if _, err := p.Input(3, s); err == nil || !strings.Contains(err.Error(), "the evaluations of one decision together cost more than 30000000; simplify") {
		t.Errorf("%v", err)
	}
	s.Work = &Work{}
	if got, err := p.Input(3, s); string(got) != "true" || err != nil {
		t.Errorf("by itself: %s, %v", got, err)
	}
}

// Many evaluations decode a large input once.
func TestWorkReadsOnce(t *testing.T) {
	d, err := stepsAround([]any{"${ input.short }", `${ input.short == "" }`})
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, d)
	took := func(w *Work) time.Duration {
		s, begin := Scope{Input: costInput(""), Work: w}, time.Now()
		for range 60 {
			if _, err := p.Input(3, s); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(begin)
	}
	if with, without := took(&Work{}), took(nil); with*4 > without {
		t.Errorf("60 evaluations took %v, without a Work %v", with, without)
	}
}
