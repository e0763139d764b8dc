package workflow

import (
	"encoding/json"
	"testing"
)

// anOrder is a submission of the sample workflow. It has every kind of JSON value.
const anOrder = `{"customer":{"id":"c-17","name":"Zoë <z@example.org>"},` +
	`"items":[{"sku":"A-1","quantity":2,"price":12.50},{"sku":"B-7","quantity":1,"price":99.90}],` +
	`"total":124.90,"currency":"EUR","card":"tok_4242","gift":false,"note":null,` +
	`"address":{"street":"Rue de l'Église 5","zip":"1000","city":"Bruxelles","country":"BE"}}`

func orderScope() Scope {
	return Scope{
		TaskID: "order-1", Workflow: "order", Version: 1, Priority: 5,
		Labels: map[string]string{"region": "eu", "shop": "web"},
		Input:  json.RawMessage(anOrder),
		Steps: []StepScope{
			{Output: json.RawMessage(`{"reservation":"r-9"}`), State: "completed"},
			{State: "skipped"},
			{Output: json.RawMessage(`{"tracking":"T-123"}`), State: "completed"},
		},
	}
}

func compiled(t testing.TB, d *Definition) *Program {
	t.Helper()
	p, err := Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The sample's expressions produce exactly the bytes that the design says.
func TestOrderRuns(t *testing.T) {
	p, s := compiled(t, Order()), orderScope()
	for step, want := range []string{
		`{"items":[{"sku":"A-1","quantity":2,"price":12.50},{"sku":"B-7","quantity":1,"price":99.90}],"order":"order-1"}`,
		`{"amount":124.90,"card":"tok_4242"}`,
		`{"address":{"street":"Rue de l'Église 5","zip":"1000","city":"Bruxelles","country":"BE"},"order":"order-1"}`,
	} {
		got, err := p.Input(step, s)
		if err != nil || string(got) != want {
			t.Errorf("input of step %d: %s, %v; want %s", step, got, err, want)
		}
		if run, err := p.When(step, s); err != nil || !run {
			t.Errorf("when of step %d: %v, %v", step, run, err)
		}
		if got, has, err := p.UndoInput(step, s); got != nil || has || err != nil {
			t.Errorf("undo input of step %d: %s, %v, %v; want none", step, got, has, err)
		}
	}
	if got, err := p.Output(s); err != nil || string(got) != `{"tracking":"T-123"}` {
		t.Errorf("output: %s, %v", got, err)
	}
	s.Input = json.RawMessage(`{"total":0}`)
	if run, err := p.When(1, s); err != nil || run {
		t.Errorf("charge of nothing: %v, %v; want it skipped", run, err)
	}
}

// BenchmarkInput measures the three inputs and the condition of one task, as a scheduler computes them.
func BenchmarkInput(b *testing.B) {
	p, s := compiled(b, Order()), orderScope()
	b.ReportAllocs()
	for b.Loop() {
		for step := range p.Definition().Steps {
			if _, err := p.Input(step, s); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkWhen(b *testing.B) {
	p, s := compiled(b, Order()), orderScope()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.When(1, s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	d := Order()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(d); err != nil {
			b.Fatal(err)
		}
	}
}
