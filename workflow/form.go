package workflow

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// Form is the source of a definition of another kind than a workflow, such as an intake. It is read, checked and
// compiled with the same rules: all faults are reported at once, each with its line, column and fix.
//
//	form := ParseForm(file, src)
//	form.Fields(known, func(name string, v Field) { ... })
//	x := form.Expressions(variables)
//	template := x.Template(tree, path)
//	err := form.Err()
type Form struct {
	c    *decoder
	root *node
}

// Field is a value of a Form.
type Field struct {
	c *decoder
	n *node
	// Path of the value, as in "submit.id".
	Path string
}

// ParseForm reads YAML. file only names the source in errors. Faults are in Err.
func ParseForm(file string, src []byte) *Form {
	s := source{file: file, positions: map[string]position{"": {line: 1, column: 1}}}
	f := &faults{src: &s}
	return &Form{&decoder{f: f}, readYAML([]byte(strings.ReplaceAll(strings.TrimPrefix(string(src), byteOrderMark), "\r\n", "\n")), f)}
}

// ParseStoredForm reads JSON. Errors name paths, without lines.
func ParseStoredForm(src []byte) *Form {
	f := &faults{src: &source{positions: map[string]position{}}}
	form := &Form{&decoder{f: f}, readJSON(src, f)}
	f.src.positions = map[string]position{}
	return form
}

// Fields calls set for each field of the form that is known. Others are faults.
func (f *Form) Fields(known []string, set func(name string, v Field)) {
	if f.root == nil {
		return
	}
	Field{f.c, f.root, ""}.Fields(known, set)
}

// Fault reports a fault at a path.
func (f *Form) Fault(path, what, fix string) { f.c.f.add(path, what, fix) }

// Err returns Errors with all faults; nil: there is none.
func (f *Form) Err() error { return f.c.f.err() }

// Fields calls set for each member of an object. known are the names of its members; nil: any.
func (v Field) Fields(known []string, set func(name string, v Field)) {
	v.c.object(v.n, v.Path, known, func(m member, path string) { set(m.key, Field{v.c, m.value, path}) })
}

// Text returns a text that isn't empty.
func (v Field) Text() string { return v.c.text(v.n, v.Path) }

// Integer returns a whole number of at least 1. fix says what to write instead of another value.
func (v Field) Integer(fix string) int { return v.c.integer(v.n, v.Path, fix) }

// Duration returns a duration that isn't zero.
func (v Field) Duration() Duration { return v.c.duration(v.n, v.Path) }

// Tree returns a value that may contain expressions, as Definition.Output.
func (v Field) Tree() any { return normalTree(v.c.tree(v.n, v.Path, 0), v.Path, v.c.f) }

// Labels returns an object of texts, within the bounds of labels.
func (v Field) Labels() map[string]string { return v.c.labels(v.n, v.Path) }

// VariableType is the type of a variable in expressions.
type VariableType int

// The types of variables.
const (
	JSONVariable    VariableType = iota // any JSON
	TextVariable                        // a JSON text
	IntegerVariable                     // a whole JSON number
	TextsVariable                       // a JSON object of texts
	InstantVariable
)

var variableTypes = [...]*cel.Type{
	JSONVariable: cel.DynType, TextVariable: cel.StringType, IntegerVariable: cel.IntType,
	TextsVariable: cel.MapType(cel.StringType, cel.StringType), InstantVariable: cel.TimestampType,
}

// Variable is a variable of a Form's expressions.
type Variable struct {
	Name string
	Type VariableType
}

// Value is the value of a variable: JSON, or an instant. JSON that is empty is null.
type Value struct {
	JSON    json.RawMessage
	Instant time.Time
}

// Expressions compiles the expressions of a Form. They can use its variables, and no others.
type Expressions struct {
	c *compiler
	p *Program
}

// Expressions returns a compiler for expressions with these variables. Faults are in f.Err.
func (f *Form) Expressions(variables []Variable) *Expressions {
	vars, opts, names := map[string]variable{}, []cel.EnvOption{}, []string{}
	for i, v := range variables {
		vars[v.Name] = variable{kind: namedValue, step: i}
		opts = append(opts, cel.Variable(v.Name, variableTypes[v.Type]))
		names = append(names, v.Name)
		if v.Type == InstantVariable {
			opts = append(opts, instantOptions...)
		}
	}
	env, err := baseEnvironment().Extend(opts...)
	if err != nil {
		panic("workflow: variables that can't be declared: " + err.Error())
	}
	p := &Program{d: &Definition{source: *f.c.f.src}, vars: vars}
	return &Expressions{&compiler{d: p.d, f: f.c.f, env: env, vars: vars, names: names}, p}
}

// Template is a tree with compiled expressions. It is immutable and safe for concurrent use.
type Template struct {
	t *template
	p *Program
}

// Template compiles a tree.
func (x *Expressions) Template(tree any, path string) *Template {
	return &Template{x.c.template(tree, path, scope{step: -1}), x.p}
}

// Render returns the JSON of a tree: one value of at most MaxResultBytes. values are those of the variables, in their
// order. It returns an *Error if an expression fails.
func (t *Template) Render(values []Value) (json.RawMessage, error) {
	return t.t.render(t.p, &Scope{Named: values})
}

// Text returns a template's text. given is false for null. It fails for a list or an object.
func (t *Template) Text(values []Value) (text string, given bool, err error) {
	raw, err := t.Render(values)
	if err != nil {
		return "", false, err
	}
	switch raw[0] {
	case 'n':
		return "", false, nil
	case '{', '[':
		return "", false, &Error{File: t.p.d.source.file, Path: t.t.path, What: "this gives a list or an object; want text, a number or a boolean"}
	case '"':
		return jsonscan.Unquote(raw), true, nil
	}
	return string(raw), true, nil
}

// Texts are templates of texts, by name.
type Texts struct {
	names []string
	of    map[string]*Template
}

// Labels compiles labels, and checks their bounds.
func (x *Expressions) Labels(labels map[string]string, path string) *Texts {
	checkLabels(x.c.f, labels)
	t := &Texts{slices.Sorted(maps.Keys(labels)), map[string]*Template{}}
	for _, name := range t.names {
		t.of[name] = x.Template(labels[name], memberPath(path, name))
	}
	return t
}

// Texts returns the texts. One that gives null is left out. nil: there are none.
func (t *Texts) Texts(values []Value) (map[string]string, error) {
	var texts map[string]string
	for _, name := range t.names {
		text, given, err := t.of[name].Text(values)
		if err != nil {
			return nil, err
		}
		if !given {
			continue
		}
		if texts == nil {
			texts = make(map[string]string, len(t.names))
		}
		texts[name] = text
	}
	return texts, nil
}

// Condition is a compiled expression with a boolean result.
type Condition struct {
	x *expression
	p *Program
}

// Condition compiles a text that is one expression with a boolean result.
func (x *Expressions) Condition(text, path string) *Condition {
	return &Condition{x.c.single(text, path, scope{step: -1}, &wantBoolean), x.p}
}

// Holds returns the condition's result. It returns an *Error if the expression fails.
func (c *Condition) Holds(values []Value) (bool, error) {
	return c.x.evalBoolean(newActivation(c.p, &Scope{Named: values}))
}

// named returns the value of a variable of a Form.
func (a *activation) named(i int, name string) ref.Val {
	v := &a.s.Named[i]
	if !v.Instant.IsZero() {
		return types.Timestamp{Time: v.Instant}
	}
	return document(v.JSON, name)
}

// appendNamed appends the value that a path of a Form's variable has; false: the program must run.
func (p *rawPath) appendNamed(out []byte, s *Scope, text bool) ([]byte, bool) {
	v := &s.Named[p.from.step]
	if !v.Instant.IsZero() {
		return out, false
	}
	raw, ok := p.follow(v.JSON, nil)
	switch {
	case !ok:
		return out, false
	case text:
		return appendRawText(out, raw)
	}
	return append(out, raw...), true
}
