package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// expression is one compiled "${ ... }". It is immutable and safe for
// concurrent use.
type expression struct {
	location
	text    string // the CEL text between the braces, trimmed
	program cel.Program
	info    *ast.SourceInfo
	// raw is set if the expression is a plain path. The value is then copied from the raw JSON. The program runs only
	// if that fails, to produce the error.
	raw *rawPath
}

// location is where an expression is in the source.
type location struct {
	file       string
	path       string
	position   position // of the string around it; zero if unknown
	value      string   // the string around it
	textOffset int      // of the expression's text in value, in bytes
}

// setPosition sets an error's line and column from a position within the expression's text. CEL counts lines from 1,
// and columns in characters from 0.
func (p location) setPosition(e *Error, text string, at common.Location) {
	offset := offsetOf(text, at)
	e.File, e.Path = p.file, p.path
	if p.position.line == 0 {
		e.File, e.Column = "", 1+utf8.RuneCountInString(text[:offset])
		return
	}
	within := p.position.locate(p.value, p.textOffset+offset)
	e.Line, e.Column = within.line, within.column
}

// offsetOf converts a position of CEL to an offset in the text, in bytes.
func offsetOf(text string, at common.Location) int {
	offset := 0
	for line := 1; line < at.Line(); line++ {
		n := strings.IndexByte(text[offset:], '\n')
		if n < 0 {
			break
		}
		offset += n + 1
	}
	for n := 0; n < at.Column() && offset < len(text); n++ {
		_, size := utf8.DecodeRuneInString(text[offset:])
		offset += size
	}
	return offset
}

// scope says which steps an expression may use.
type scope struct {
	step    int                 // the expression's own step; -1: none
	visible func(step int) bool // nil: no step has run
	// callOutput is true if the variable output is the output of a call.
	callOutput bool
	item       itemScope
}

// compiler compiles the expressions of a definition.
type compiler struct {
	d    *Definition
	f    *faults
	env  *cel.Env
	vars map[string]variable
	// names are the variables of a Form; nil: those of a workflow.
	names []string
}

// wanted is the type that an expression must give.
type wanted struct {
	is        *cel.Type
	name, fix string
}

// accepts reports whether an expression of a type may give a value of the wanted type. The elements of a list don't matter.
func (w *wanted) accepts(t *cel.Type) bool {
	return t.IsExactType(w.is) || t.Kind() == types.DynKind || t.Kind() == types.ListKind && w.is.Kind() == types.ListKind
}

var wantBoolean = wanted{cel.BoolType, "a boolean", "compare it with something"}

// expression compiles an expression, or reports its faults and returns nil. want may be nil.
func (c *compiler) expression(pl location, text string, sc scope, want *wanted) *expression {
	fault := func(at common.Location, what, fix string) {
		if len(c.f.list) >= maxFaults {
			return
		}
		e := &Error{What: truncate(what), Fix: fix}
		pl.setPosition(e, text, at)
		c.f.list = append(c.f.list, e)
	}
	start := common.NewLocation(1, 0)
	switch {
	case text == "":
		fault(start, "the expression is empty", "write one, or $${ for the characters ${")
		return nil
	case len(text) > MaxExpressionBytes:
		fault(start, fmt.Sprintf("the expression has %d bytes, the limit is %d", len(text), MaxExpressionBytes), "move the work into an agent")
		return nil
	}
	tree, issues := c.env.Parse(text)
	if issues.Err() != nil {
		c.issues(issues, text, fault)
		return nil
	}
	known := len(c.f.list)
	info := tree.NativeRep().SourceInfo()
	refs := &references{d: c.d, scope: sc, fault: func(e ast.Expr, what, fix string) {
		fault(info.GetStartLocation(rootOf(e).ID()), what, fix)
	}}
	if c.names == nil {
		refs.check(tree.NativeRep().Expr())
	}
	if len(c.f.list) > known {
		return nil
	}
	checked, issues := c.env.Check(tree)
	if issues.Err() != nil {
		c.issues(issues, text, fault)
		return nil
	}
	if t := checked.OutputType(); want != nil && !want.accepts(t) {
		fault(start, "this gives "+t.String()+", want "+want.name, want.fix)
		return nil
	}
	program, err := c.env.Program(checked, programOptions...)
	if err != nil {
		fault(start, "the expression can't be planned: "+err.Error(), "simplify it")
		return nil
	}
	return &expression{
		location: pl, text: text, program: program,
		info: checked.NativeRep().SourceInfo(),
		raw:  c.rawPath(tree.NativeRep().Expr()),
	}
}

// rootOf returns the first operand of a chain of selections. An error points at it rather than at a dot.
func rootOf(e ast.Expr) ast.Expr {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			if _, ok := selectionOf(e); !ok {
				return e
			}
			e = e.AsCall().Args()[0]
		default:
			return e
		}
	}
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)

// issues reports CEL's findings. It replaces CEL's messages for common causes.
func (c *compiler) issues(issues *cel.Issues, text string, fault func(common.Location, string, string)) {
	for _, e := range issues.Errors() {
		what, fix := firstLine(e.Message), ""
		if m := undeclared.FindStringSubmatch(what); m != nil {
			name, _, _ := strings.Cut(m[1], variableSeparator)
			what, fix = "unknown name "+name, suggest(name, c.variables())
			switch {
			case strings.HasPrefix(text[offsetOf(text, e.Location):], "("):
				what, fix = "no function is called "+m[1], "use those of CEL's standard and math; there is no clock and no randomness"
			case c.d.Index(name) >= 0:
				fix = "write steps." + name + ".output"
			}
		}
		at := e.Location
		if at.Line() < 1 {
			at = common.NewLocation(1, 0)
		}
		fault(at, what, fix)
	}
}

// variables returns the names that expressions can begin with.
func (c *compiler) variables() []string {
	if c.names != nil {
		return c.names
	}
	return []string{variableInput, variableTask, variableSteps}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// eval returns the expression's value, or an *Error.
func (x *expression) eval(a *activation) (ref.Val, error) {
	if err := a.s.Work.exceeded(); err != nil {
		return nil, x.errorOf(err)
	}
	v, details, err := x.program.Eval(a)
	a.s.Work.addCost(details)
	if err != nil {
		return nil, x.errorOf(err)
	}
	return v, nil
}

// evalBoolean evaluates an expression whose result must be a boolean.
func (x *expression) evalBoolean(a *activation) (bool, error) {
	v, err := x.eval(a)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, x.errorOf(fmt.Errorf("it gives a value of type %s, want a boolean", v.Type().TypeName()))
	}
	return bool(b), nil
}

// errorOf returns the Error of a failed evaluation, with its position.
func (x *expression) errorOf(err error) *Error {
	at := common.NewLocation(1, 0)
	if cause := (*types.Err)(nil); errors.As(err, &cause) {
		if l := x.info.GetStartLocation(cause.NodeID()); cause.NodeID() > 0 && l.Line() > 0 {
			at = l
		}
	}
	const shown = 120
	text := x.text
	if len(text) > shown {
		text = strings.ToValidUTF8(text[:shown], "") + " ..."
	}
	e := &Error{What: fmt.Sprintf("${ %s } failed: %s", text, truncate(firstLine(err.Error())))}
	switch cancelled := (interpreter.EvalCancelledError{}); {
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		e.What = fmt.Sprintf("${ %s } failed: it costs more than %d", text, MaxCost)
		e.Fix = "simplify it, or give it less data"
	case errors.Is(err, errWorkCost):
		e.Fix = "simplify the conditions and inputs of steps that start at once, or give them less data"
	case strings.Contains(e.What, "no such key"):
		e.Fix = "send the member, or test it first with has(...)"
	}
	x.setPosition(e, x.text, at)
	return e
}
