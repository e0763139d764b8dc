package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Program is a compiled definition. It is immutable and safe for concurrent use.
type Program struct {
	d      *Definition
	vars   map[string]variable
	steps  []stepProgram
	output *template
}

type stepProgram struct {
	when  *expression // nil: always
	input *template   // nil: {}
	undo  *template   // nil: none
}

// Scope is what expressions can see of a task. Its raw messages are JSON;
// nil is null. Steps is indexed as Definition.Steps; those behind its end
// count as not yet run. A Scope is only read, but for its Work.
type Scope struct {
	TaskID   string
	Workflow string
	Version  int
	Priority int
	Labels   map[string]string
	Input    json.RawMessage
	Steps    []StepScope
	// Work is what evaluations have in common; nil: each is on its own.
	Work *Work
}

// StepScope is what expressions can see of a step.
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

// Compile checks a definition and type-checks and plans its expressions. It
// returns Errors with every fault. d is not changed, and must not be by others.
func Compile(d *Definition) (*Program, error) {
	c := *d
	c.Steps = slices.Clone(d.Steps)
	for i := range c.Steps {
		if u := c.Steps[i].Undo; u != nil {
			undo := *u
			c.Steps[i].Undo = &undo
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

// compile builds what it can and reports the faults of the expressions.
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
	ancestors := d.ancestors()
	for i := range d.Steps {
		s := &d.Steps[i]
		path := stepPath(s.ID)
		before := scope{step: i, visible: ancestors[i].has}
		sp := stepProgram{}
		if s.When != "" {
			sp.when = c.when(s.When, path+".when", before)
		}
		if s.Input != nil {
			sp.input = c.template(s.Input, path+".input", before)
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

// wantObject refuses what can't give an object at run time.
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

// Definition gives the compiled definition, complete and not to be changed.
func (p *Program) Definition() *Definition { return p.d }

// When tells whether a step is to run; without a when it is. It returns an
// *Error if the expression fails or gives no boolean. A step out of range panics.
func (p *Program) When(step int, s Scope) (bool, error) {
	x := p.steps[step].when
	if x == nil {
		return true, nil
	}
	v, err := x.eval(newActivation(p, &s))
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, x.errorOf(fmt.Errorf("it gives a value of type %s, want a boolean", v.Type().TypeName()))
	}
	return bool(b), nil
}

// Input gives the JSON that a step's agent gets: one value, {} if the step has
// no input, at most MaxResultBytes. It returns an *Error if an expression
// fails. A step out of range panics.
func (p *Program) Input(step int, s Scope) ([]byte, error) {
	t := p.steps[step].input
	if t == nil {
		return []byte("{}"), nil
	}
	return t.render(p, &s)
}

// UndoInput gives the JSON object that a step's undo adds to its request, and
// whether the step has one. It returns an *Error if an expression fails or
// gives no object. A step out of range panics.
func (p *Program) UndoInput(step int, s Scope) (json []byte, has bool, err error) {
	t := p.steps[step].undo
	if t == nil {
		return nil, false, nil
	}
	if json, err = t.render(p, &s); err != nil {
		return nil, true, err
	}
	if json[0] != '{' { // then it is one expression
		return nil, true, t.parts[0].x.errorOf(fmt.Errorf("an undo's input must be an object"))
	}
	return json, true, nil
}

// Output gives the JSON of the task's output, null if the definition has none.
// It returns an *Error if an expression fails.
func (p *Program) Output(s Scope) ([]byte, error) {
	if p.output == nil {
		return []byte("null"), nil
	}
	return p.output.render(p, &s)
}

// activation gives an evaluation its variables, decoded when first used. It
// is for one goroutine.
type activation struct {
	p       *Program
	s       Scope
	decoded []decodedVariable
}

// known is a variable that was decoded. Few are, so a list finds them fastest.
type decodedVariable struct {
	v     variable
	value ref.Val
}

var _ cel.Activation = (*activation)(nil)

// newActivation copies the scope, so that it needn't be on the heap for those
// templates that only copy.
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
	case taskID:
		return types.String(a.s.TaskID)
	case taskWorkflow:
		return types.String(a.s.Workflow)
	case taskVersion:
		return types.Int(a.s.Version)
	case taskPriority:
		return types.Int(a.s.Priority)
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

// labels gives the task's labels as a JSON object, its keys sorted.
func labels(m map[string]string) []byte {
	b := []byte{'{'}
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendString(b, m[k])
	}
	return append(b, '}')
}

// when compiles a step's condition: one expression and nothing around it.
func (c *compiler) when(text, path string, sc scope) *expression {
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
		return c.expression(pl, parts[0].text, sc, true)
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
