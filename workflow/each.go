package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/waybill-run/waybill/events"
)

// The bounds of Step.MaxParallel.
const (
	DefaultParallel = 10
	MaxParallel     = events.MaxItemsAtOnce
)

// The values of Step.OnItemError.
const (
	OnItemErrorFail    = "fail"
	OnItemErrorCollect = "collect"
)

// The values of Step.Outputs.
const (
	OutputsList    = "list"
	OutputsSummary = "summary"
)

// Parallel returns how many items of the step may run at the same time.
func (s *Step) Parallel() int {
	if s.MaxParallel == 0 {
		return DefaultParallel
	}
	return s.MaxParallel
}

// Collects reports whether the error of an item becomes its output.
func (s *Step) Collects() bool { return s.OnItemError == OnItemErrorCollect }

// Summarizes reports whether the step's output has the numbers of items instead of their outputs.
func (s *Step) Summarizes() bool { return s.Outputs == OutputsSummary }

// checkEach reports faults of the fields that run a step for each item of a list.
func checkEach(f *faults, s *Step, path string) {
	if s.ForEach == "" {
		for _, other := range []struct {
			name  string
			given bool
		}{{"max_parallel", s.MaxParallel != 0}, {"on_item_error", s.OnItemError != ""}, {"outputs", s.Outputs != ""}} {
			if other.given && !f.reported(path+".for_each") {
				f.add(path+"."+other.name, other.name+" without for_each", `remove it, or write for_each: "${ input.items }"`)
			}
		}
		return
	}
	if n := s.MaxParallel; n < 0 || n > MaxParallel {
		f.add(path+".max_parallel", fmt.Sprintf("%d is out of range", n), fmt.Sprintf("write a whole number from 1 to %d", MaxParallel))
	}
	if v := s.OnItemError; v != "" && v != OnItemErrorFail && v != OnItemErrorCollect {
		f.add(path+".on_item_error", fmt.Sprintf("%q is neither fail nor collect", v), suggest(v, []string{OnItemErrorFail, OnItemErrorCollect}))
	}
	if v := s.Outputs; v != "" && v != OutputsList && v != OutputsSummary {
		f.add(path+".outputs", fmt.Sprintf("%q is neither list nor summary", v), suggest(v, []string{OutputsList, OutputsSummary}))
	}
}

// eachOf says in a graph that a step runs for each item; empty: it doesn't.
func eachOf(s *Step) string {
	if s.ForEach == "" {
		return ""
	}
	text := fmt.Sprintf("for each of %s, at most %d at once", bare(s.ForEach), s.Parallel())
	if s.Collects() {
		text += ", errors are collected"
	}
	if s.Summarizes() {
		text += ", outputs are counted"
	}
	return text
}

var wantList = wanted{cel.ListType(cel.DynType), "a list", `write a list, as in "${ input.items }"`}

// eachProgram is the compiled list of a step, and the program of one item.
type eachProgram struct {
	list *template // one expression
	item *Program  // of a call; nil: the items are tasks of another workflow
}

// each compiles what a step with for_each adds.
func (c *compiler) each(i int, path string, before scope) *eachProgram {
	s := &c.d.Steps[i]
	if x := c.single(s.ForEach, path+".for_each", before, &wantList); x == nil {
		return nil
	}
	p := &eachProgram{list: c.template(s.ForEach, path+".for_each", before)}
	if s.StepKind() == events.CallStep {
		p.item = c.itemProgram(s, path)
	}
	return p
}

// itemDefinition is the definition of an item's task: the one step, once. Its task is held only if the error of an item
// would hold the workflow's task.
func itemDefinition(d *Definition, s *Step) *Definition {
	own := *s
	own.Needs, own.When, own.ForEach, own.MaxParallel, own.OnItemError, own.Outputs, own.Catch, own.Pivot = nil, "", "", 0, "", "", nil, false
	own.Input = "${ input.input }" // see events.ItemInput
	onError := OnErrorUndo
	if d.OnError == OnErrorHold && !s.Collects() {
		onError = OnErrorHold
	}
	return &Definition{Name: d.Name, Version: d.Version, CompleteWithin: d.CompleteWithin, OnError: onError, DedupeFor: d.DedupeFor, Defaults: d.Defaults,
		Steps: []Step{own}, Output: `${ steps["` + s.ID + `"].output }`, source: d.source}
}

// itemProgram compiles the program of an item's task. Its expressions can use the item, and nothing else of the workflow's
// task.
func (c *compiler) itemProgram(s *Step, path string) *Program {
	d := itemDefinition(c.d, s)
	vars, opts := variables(d)
	env, err := baseEnvironment().Extend(opts...)
	if err != nil {
		return nil // compile reports that ids can't be used
	}
	p := &Program{d: d, vars: vars, itemOf: s.ID}
	in := &compiler{d: d, f: c.f, env: env, vars: vars}
	own := func(int) bool { return true }
	sp := stepProgram{input: in.template(d.Steps[0].Input, path+".input", scope{step: 0, visible: own})}
	inItem := scope{step: 0, visible: own, item: inItemTask, callOutput: true}
	if s.Repeat != nil && s.Repeat.Until != "" {
		sp.until = in.single(s.Repeat.Until, path+".repeat.until", inItem, &wantBoolean)
	}
	if s.Undo != nil && s.Undo.Input != nil {
		in.wantObject(s.Undo.Input, path+".undo.input")
		sp.undo = in.template(s.Undo.Input, path+".undo.input", inItem)
	}
	p.steps = []stepProgram{sp}
	p.output = in.template(d.Output, "output", scope{step: -1, visible: own})
	return p
}

// Item returns the program of the tasks of a step's items; nil: the step runs once, or its items are tasks of another
// workflow.
func (p *Program) Item(step int) *Program {
	if each := p.steps[step].each; each != nil {
		return each.item
	}
	return nil
}

// ItemOfStep is Item of a step by its id; nil also if there is no such step.
func (p *Program) ItemOfStep(id string) *Program {
	if i := p.d.Index(id); i >= 0 {
		return p.Item(i)
	}
	return nil
}

// ItemOf returns the id of the step whose items the program is for; empty: it is the program of a workflow.
func (p *Program) ItemOf() string { return p.itemOf }

// ItemList is the list of a step with for_each.
type ItemList struct {
	JSON json.RawMessage
	// Pointer says where in the task's input the list is, as a JSON Pointer (RFC 6901), if InInput is true.
	InInput bool
	Pointer string
}

// Items returns the list of a step with for_each. It returns an *Error if the expression fails or its result isn't a
// list. It panics if the step has no for_each.
func (p *Program) Items(step int, s Scope) (ItemList, error) {
	t := p.steps[step].each.list
	list, err := t.render(p, &s)
	if err != nil {
		return ItemList{}, err
	}
	x := t.parts[0].x
	if len(list) == 0 || list[0] != '[' {
		e := x.errorOf(errors.New("it gives no list"))
		e.Fix = wantList.fix
		return ItemList{}, e
	}
	l := ItemList{JSON: list}
	if raw := x.raw; raw != nil && raw.from.kind == scopeInput {
		l.InInput, l.Pointer = true, raw.pointer()
	}
	return l, nil
}

// pointer returns the links as a JSON Pointer.
func (p *rawPath) pointer() string {
	var b strings.Builder
	for _, l := range p.links {
		b.WriteByte('/')
		if l.isIndex {
			b.WriteString(strconv.FormatInt(l.index, 10))
		} else {
			b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(l.name))
		}
	}
	return b.String()
}

// itemScope says whether an expression can use item and index.
type itemScope uint8

const (
	noItem     itemScope = iota
	withItem             // the input of a step with for_each
	inItemTask           // an expression that is evaluated in the task of an item
)

// checkItem reports a use of item or index outside a step with for_each.
func (r *references) checkItem(s selection) (what, fix string) {
	if r.item != noItem {
		return "", ""
	}
	return s.root + " is known only in a step with for_each", "its input, id, repeat.until and undo.input can use it"
}

// outsideItem reports a use of what the task of an item doesn't have.
func (r *references) outsideItem(s selection) (what, fix string) {
	const advice = "use item, index and output; an undo's request has the input of its call in any case"
	switch s.root {
	case variableInput:
		return "an item's task doesn't have the input of the workflow's task", advice
	case variableTask:
		if len(s.links) > 0 && (s.links[0].name == "id" || s.links[0].name == "labels") {
			return "task." + s.links[0].name + " would be that of the item's task", advice
		}
	case variableSteps:
		if len(s.links) > 1 && s.links[0].name == r.d.Steps[0].ID && s.links[1].name == fieldOutput {
			return "", ""
		}
		return "an item's task doesn't have the steps of the workflow's task", advice
	}
	return "", ""
}
