package workflow

import (
	"testing"
)

func TestItems(t *testing.T) {
	p := compiled(t, parsed(t, `
workflow: pick
version: 1
complete_within: 1h
on_error: hold
defaults: {complete_within: 10s}
steps:
  look: {agent: stock, operation: look}
  pick:
    needs: [look]
    for_each: "${ input.orders[0]['a/b~'] }"
    agent: stock
    operation: pick
    input: {sku: "${ item.sku }", n: "${ index }", task: "${ task.id }", text: "${ index }: ${ item.sku }", sum: "${ item.n + index }"}
    repeat: {until: "${ output.done && item.n == 1 }", every: 1s, max: 3}
    undo: {operation: put_back, input: {slip: "${ output.slip }", whole: "${ output }", sku: "${ item.sku }", next: "${ index + 1 }"}}
  bill:
    needs: [pick]
    for_each: "${ steps.pick.output.filter(o, o > 1) }"
    on_item_error: collect
    agent: billing
    operation: bill
`))
	scope := Scope{TaskID: "order-7", Input: []byte(`{"orders":[{"a/b~":[{"sku":"x","n":1},{"sku":"y","n":2}]}]}`), Steps: []StepScope{{}, {Output: []byte(`[1,2,3]`)}}}
	list, err := p.Items(1, scope)
	if err != nil || string(list.JSON) != `[{"sku":"x","n":1},{"sku":"y","n":2}]` || !list.InInput || list.Pointer != "/orders/0/a~1b~0" {
		t.Errorf("items %+v, %v", list, err)
	}
	scope.Item, scope.Index = []byte(`{"sku":"y","n":2}`), 1
	const want = `{"n":1,"sku":"y","sum":3,"task":"order-7","text":"1: y"}`
	if in, err := p.Input(1, scope); err != nil || string(in) != want {
		t.Errorf("input %s, %v", in, err)
	}
	if list, err := p.Items(2, scope); err != nil || string(list.JSON) != `[2,3]` || list.InInput {
		t.Errorf("items %+v, %v", list, err)
	}
	item := p.Item(1)
	if item.ItemOf() != "pick" || p.Item(0) != nil || p.Item(2).Definition().OnError != OnErrorUndo || item.Definition().OnError != OnErrorHold {
		t.Errorf("the programs of items: %q, %v", item.ItemOf(), p.Item(0))
	}
	testItemProgram(t, item)
	for _, bad := range []string{`{"orders":[{"a/b~":{}}]}`, `{"orders":[{"a/b~":null}]}`, `{}`} {
		scope.Input = []byte(bad)
		if list, err := p.Items(1, scope); err == nil {
			t.Errorf("%s gives the list %+v", bad, list)
		}
	}
}

func parsed(t *testing.T, src string) *Definition {
	t.Helper()
	d, err := ParseYAML("pick.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// testItemProgram evaluates the expressions of an item's task.
func testItemProgram(t *testing.T, item *Program) {
	scope := Scope{TaskID: "order-7/pick/1", Input: []byte(`{"index":1,"input":{"n":1},"item":{"sku":"y","n":1}}`),
		Item: []byte(`{"sku":"y","n":1}`), Index: 1, Steps: []StepScope{{Output: []byte(`{"slip":"s-1"}`)}}}
	if in, err := item.Input(0, scope); err != nil || string(in) != `{"n":1}` {
		t.Errorf("input %s, %v", in, err)
	}
	if done, err := item.Until(0, scope, []byte(`{"done":true}`)); err != nil || !done {
		t.Errorf("until %v, %v", done, err)
	}
	const want = `{"next":2,"sku":"y","slip":"s-1","whole":{"slip":"s-1"}}`
	if in, _, err := item.UndoInput(0, scope); err != nil || string(in) != want {
		t.Errorf("undo.input %s, %v", in, err)
	}
	if out, err := item.Output(scope); err != nil || string(out) != `{"slip":"s-1"}` {
		t.Errorf("output %s, %v", out, err)
	}
}
