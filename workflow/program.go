package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// Program is a compiled definition. It is immutable and safe for concurrent use.
type Program struct {
	d      *Definition
	vars   map[string]variable
	steps  []stepProgram
	labels []labelProgram
	output *template
	itemOf string // the step whose items the program is for; empty: it is a workflow's
	// derived is what Derived keeps.
	derived atomic.Pointer[any]
}

// Derived returns what derive made of the program's definition at its first call. It is kept as long as the program. All
// callers pass the same function. Safe for concurrent use: derive may be called more than once, and one result is kept.
func (p *Program) Derived(derive func(*Definition) any) any {
	if kept := p.derived.Load(); kept != nil {
		return *kept
	}
	made := derive(p.d)
	if p.derived.CompareAndSwap(nil, &made) {
		return made
	}
	return *p.derived.Load()
}

type stepProgram struct {
	when  *expression  // nil: always
	input *template    // nil: {}
	undo  *template    // nil: none
	until *expression  // nil: the step isn't repeated
	own   any          // what the step's kind compiled
	each  *eachProgram // nil: the step runs once
}

// Scope is the part of a task that expressions can read. Raw messages are JSON; nil is null. Steps has the indexes of
// Definition.Steps; steps beyond its end have not run. A Program changes only the Work of a Scope.
type Scope struct {
	TaskID   string
	Workflow string
	Version  int
	Priority int
	Labels   map[string]string
	Input    json.RawMessage
	Steps    []StepScope
	// CallOutput is the variable output, which only Repeat.Until can use, and Undo.Input in the task of an item.
	CallOutput json.RawMessage
	// Item and Index are the variables of a step with for_each.
	Item  json.RawMessage
	Index int
	// Named are the values of a Form's variables.
	Named []Value
	// Work is shared by several evaluations. If it is nil, only the bounds of a single evaluation apply.
	Work *Work
}

// StepScope is the part of a step that expressions can read.
type StepScope struct {
	Output json.RawMessage
	State  string
	Error  json.RawMessage
}

func (s *Scope) step(i int) StepScope {
	if i >= len(s.Steps) {
		return StepScope{}
	}
	return s.Steps[i]
}

// Compile checks a definition, and type-checks and plans its expressions. It returns Errors with all faults. It doesn't
// change d. Callers must not change d afterwards.
func Compile(d *Definition) (*Program, error) {
	c := *d
	c.Steps = slices.Clone(d.Steps)
	for i := range c.Steps {
		if u := c.Steps[i].Undo; u != nil {
			undo := *u
			c.Steps[i].Undo = &undo
		}
		if k := c.Steps[i].Check; k != nil {
			check := *k
			c.Steps[i].Check = &check
		}
	}
	f := &faults{src: &c.source}
	normalize(&c, f)
	p := check(&c, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// compile compiles the expressions of a definition and reports their faults.
func compile(d *Definition, f *faults) *Program {
	p := &Program{d: d}
	vars, opts := variables(d)
	p.vars = vars
	env, err := baseEnvironment().Extend(opts...)
	if err != nil {
		f.add("steps", "the ids of the steps can't be used in expressions: "+err.Error(), "rename them")
		return p
	}
	c := &compiler{d: d, f: f, env: env, vars: vars}
	if len(d.Steps) > MaxSteps {
		return p
	}
	p.labels = c.labels(d.Labels)
	ancestors := d.ancestors()
	for i := range d.Steps {
		s := &d.Steps[i]
		path := stepPath(s.ID)
		before := scope{step: i, visible: ancestors[i].has}
		sp := stepProgram{}
		if s.When != "" {
			sp.when = c.single(s.When, path+".when", before, &wantBoolean)
		}
		inputScope := before
		if s.ForEach != "" {
			sp.each = c.each(i, path, before)
			inputScope.item = withItem
		}
		if k := s.kind(); k.compile != nil {
			sp.own = k.compile(c, s, path, inputScope)
		}
		if s.Input != nil {
			sp.input = c.template(s.Input, path+".input", inputScope)
		}
		if s.ForEach != "" { // the rest is evaluated in the tasks of the items
			p.steps = append(p.steps, sp)
			continue
		}
		if s.Repeat != nil && s.Repeat.Until != "" {
			sp.until = c.single(s.Repeat.Until, path+".repeat.until", scope{step: i, visible: before.visible, callOutput: true}, &wantBoolean)
		}
		if s.Undo != nil && s.Undo.Input != nil {
			c.wantObject(s.Undo.Input, path+".undo.input")
			sp.undo = c.template(s.Undo.Input, path+".undo.input", scope{step: i, visible: func(j int) bool { return j == i || before.visible(j) }})
		}
		p.steps = append(p.steps, sp)
	}
	if d.Output != nil {
		p.output = c.template(d.Output, "output", scope{step: -1, visible: func(int) bool { return true }})
	}
	return p
}

// wantObject reports a tree whose result can never be an object.
func (c *compiler) wantObject(tree any, path string) {
	switch v := tree.(type) {
	case map[string]any:
		return
	case string:
		if parts, _, ok := splitText(v); !ok || len(parts) == 1 && parts[0].expression {
			return
		}
	}
	c.f.add(path, "an undo's input must be an object", "write {name: value}")
}

// Definition returns the compiled definition, with defaults filled in. Callers must not change it.
func (p *Program) Definition() *Definition { return p.d }

// When reports whether a step must run. It returns the result of the step's condition, or true if there is none. It
// returns an *Error if the expression fails or its result isn't a boolean. It panics if step is out of range.
func (p *Program) When(step int, s Scope) (bool, error) {
	x := p.steps[step].when
	if x == nil {
		return true, nil
	}
	return x.evalBoolean(newActivation(p, &s))
}

// Input returns the JSON of a step's input: one value of at most MaxResultBytes. It is {} if the step has no input.
// Input returns an *Error if an expression fails. It panics if step is out of range.
func (p *Program) Input(step int, s Scope) ([]byte, error) {
	t := p.steps[step].input
	if t == nil {
		return []byte("{}"), nil
	}
	return t.render(p, &s)
}

// UndoInput returns the JSON object that a step's undo adds to its request. has reports whether the undo has an input.
// UndoInput returns an *Error if an expression fails or the result isn't an object. It panics if step is out of range.
func (p *Program) UndoInput(step int, s Scope) (json []byte, has bool, err error) {
	t := p.steps[step].undo
	if t == nil {
		return nil, false, nil
	}
	if p.itemOf != "" {
		s.CallOutput = s.step(step).Output
	}
	if json, err = t.render(p, &s); err != nil {
		return nil, true, err
	}
	if json[0] != '{' { // the input is a single expression
		return nil, true, t.parts[0].x.errorOf(fmt.Errorf("an undo's input must be an object"))
	}
	return json, true, nil
}

// Output returns the JSON of the task's output, or null if the definition has none. It returns an *Error if an
// expression fails.
func (p *Program) Output(s Scope) ([]byte, error) {
	if p.output == nil {
		return []byte("null"), nil
	}
	return p.output.render(p, &s)
}

// activation resolves the variables of an evaluation. It decodes each at its first use. It is for one goroutine.
type activation struct {
	p       *Program
	s       Scope
	decoded []decodedVariable
}

// decodedVariable is a variable that was used. Expressions use few variables, so a list is faster than a map.
type decodedVariable struct {
	v     variable
	value ref.Val
}

var _ cel.Activation = (*activation)(nil)

// newActivation copies the scope. So the scope stays on the stack for templates that need no activation.
func newActivation(p *Program, s *Scope) *activation { return &activation{p: p, s: *s} }

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	v, ok := a.p.vars[name]
	if !ok {
		return nil, false
	}
	for _, k := range a.decoded {
		if k.v == v {
			return k.value, true
		}
	}
	got := a.resolve(v, name)
	a.decoded = append(a.decoded, decodedVariable{v, got})
	return got, true
}

func (a *activation) resolve(v variable, name string) ref.Val {
	switch v.kind {
	case scopeInput:
		return a.document(v, a.s.Input, "the task's input")
	case stepOutput:
		return a.document(v, a.s.step(v.step).Output, name)
	case stepError:
		return document(a.s.step(v.step).Error, name)
	case stepState:
		return types.String(a.s.step(v.step).State)
	case callOutput:
		return document(a.s.CallOutput, name)
	case scopeItem:
		return document(a.s.Item, "the item")
	case scopeIndex:
		return types.Int(a.s.Index)
	case taskID:
		return types.String(a.s.TaskID)
	case taskWorkflow:
		return types.String(a.s.Workflow)
	case taskVersion:
		return types.Int(a.s.Version)
	case taskPriority:
		return types.Int(a.s.Priority)
	case namedValue:
		return a.named(v.step, name)
	case taskLabels:
		return &object{raw: labels(a.s.Labels)}
	}
	panic(fmt.Sprintf("workflow: variable %s of kind %d", name, v.kind))
}

func (a *activation) document(v variable, raw []byte, what string) ref.Val {
	if d := a.s.Work.sharedDocument(v); d != nil {
		return d.decodedValue(raw, what)
	}
	return document(raw, what)
}

// labels returns the task's labels as a JSON object with sorted keys.
func labels(m map[string]string) []byte {
	b := []byte{'{'}
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendString(b, k), ':')
		b = jsonscan.AppendString(b, m[k])
	}
	return append(b, '}')
}

// single compiles a text that is one expression.
func (c *compiler) single(text, path string, sc scope, want *wanted) *expression {
	pl := c.place(path, text)
	parts, at, ok := splitText(strings.TrimRight(text, " \t\r\n"))
	switch {
	case !ok:
		c.unclosed(pl, at)
	case len(parts) != 1 || !parts[0].expression:
		fix := `write "${ ... }" and nothing around it`
		if !strings.Contains(text, "${") {
			fix = `write "${ ` + text + ` }"`
		}
		c.f.add(path, "this is not one expression", fix)
	default:
		pl.textOffset = parts[0].offset
		return c.expression(pl, parts[0].text, sc, want)
	}
	return nil
}

func (c *compiler) place(path, text string) location {
	return location{file: c.f.src.file, path: path, position: c.f.src.positions[path], value: text}
}

func (c *compiler) unclosed(pl location, at int) {
	p := pl.position.locate(pl.value, at)
	c.f.addAt(p, pl.path, "the expression that begins here has no end", "close it with }, or write $${ for the characters ${")
}
