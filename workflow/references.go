package workflow

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// selection is a chain of constant selections from an identifier, such as steps.charge.output.items[0]. links are in
// the same order.
type selection struct {
	root  string
	links []link
}

// link is one .name, ["name"] or [number].
type link struct {
	expr     ast.Expr
	name     string
	index    int64
	isIndex  bool
	testOnly bool // the argument of has(...)
}

// selectionOf returns e as a selection. It reports false if e isn't one.
func selectionOf(e ast.Expr) (selection, bool) {
	var s selection
	for {
		switch e.Kind() {
		case ast.IdentKind:
			s.root = e.AsIdent()
			slices.Reverse(s.links)
			return s, true
		case ast.SelectKind:
			sel := e.AsSelect()
			s.links = append(s.links, link{expr: e, name: sel.FieldName(), testOnly: sel.IsTestOnly()})
			e = sel.Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || call.Args()[1].Kind() != ast.LiteralKind {
				return s, false
			}
			l := link{expr: e}
			switch v := call.Args()[1].AsLiteral().(type) {
			case types.String:
				l.name = string(v)
			case types.Int:
				l.index, l.isIndex = int64(v), true
			default:
				return s, false
			}
			s.links = append(s.links, l)
			e = call.Args()[0]
		default:
			return s, false
		}
	}
}

// references checks the variables of an expression. It rewrites steps["an-id"] to steps.an-id, the name that is
// declared for the type checker.
type references struct {
	d *Definition
	scope
	// fault reports at a node of the expression.
	fault  func(e ast.Expr, what, fix string)
	locals []string
}

func (r *references) check(e ast.Expr) {
	if s, ok := selectionOf(e); ok {
		if slices.Contains(r.locals, s.root) {
			return
		}
		if r.item == inItemTask {
			if what, fix := r.outsideItem(s); what != "" {
				r.fault(e, what, fix)
				return
			}
		}
		switch s.root {
		case variableItem, variableIndex:
			if what, fix := r.checkItem(s); what != "" {
				r.fault(e, what, fix)
				return
			}
		case variableTask:
			r.checkTask(e, s)
			return
		case variableSteps:
			r.checkStep(e, s)
			return
		case variableOutput:
			if !r.callOutput {
				r.fault(e, "output is known only in repeat.until", "name a step: steps.<id>.output")
				return
			}
		}
	}
	switch e.Kind() {
	case ast.SelectKind:
		r.check(e.AsSelect().Operand())
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			r.check(call.Target())
		}
		for _, a := range call.Args() {
			r.check(a)
		}
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			r.check(x)
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			r.check(x.AsMapEntry().Key())
			r.check(x.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		r.comprehension(e)
	default: // it has no operands
	}
}

func (r *references) comprehension(e ast.Expr) {
	c := e.AsComprehension()
	r.check(c.IterRange())
	r.check(c.AccuInit())
	if v := c.IterVar(); v == variableTask || v == variableInput || v == variableSteps || v == variableOutput && r.callOutput ||
		r.item != noItem && (v == variableItem || v == variableIndex) {
		r.fault(e, "the variable "+v+" of a macro hides the "+v+" of the workflow", "give it another name")
	}
	outer := r.locals
	r.locals = append(slices.Clone(outer), c.IterVar(), c.AccuVar())
	r.check(c.LoopCondition())
	r.check(c.LoopStep())
	r.check(c.Result())
	r.locals = outer
}

func (r *references) checkTask(e ast.Expr, s selection) {
	var names []string
	for _, f := range taskFields {
		names = append(names, f.name)
	}
	switch {
	case len(s.links) == 0:
		r.fault(e, "task alone is no value", "name one of task."+strings.Join(names, ", task."))
	case s.links[0].isIndex || !slices.Contains(names, s.links[0].name):
		r.fault(e, fmt.Sprintf("task has no field %q", s.links[0].name), suggest(s.links[0].name, names))
	case s.links[0].testOnly:
		r.fault(e, "task."+s.links[0].name+" is always there", "remove has(...)")
	default:
		flatten(s.links[0])
	}
}

func (r *references) checkStep(e ast.Expr, s selection) {
	var names []string
	for _, f := range stepFields {
		names = append(names, f.name)
	}
	if len(s.links) == 0 || s.links[0].isIndex {
		r.fault(e, "steps alone is no value", "name a step: steps.<id>.output, or steps[\"<id>\"].output")
		return
	}
	id := s.links[0].name
	step := r.d.Index(id)
	if step < 0 {
		r.fault(e, fmt.Sprintf("no step has the id %q", id), r.suggestStep(id))
		return
	}
	switch {
	case len(s.links) == 1:
		r.fault(e, "steps."+id+" alone is no value", "name one of its "+strings.Join(names, ", "))
	case s.links[1].isIndex || !slices.Contains(names, s.links[1].name):
		r.fault(e, fmt.Sprintf("steps.%s has no field %q", id, s.links[1].name), suggest(s.links[1].name, names))
	case s.links[1].testOnly:
		r.fault(e, "steps."+id+"."+s.links[1].name+" is always there", "compare it with null instead of has(...)")
	case r.visible == nil:
		r.fault(e, "labels are computed when a task is received, before any step has run", "use input or task")
	case step == r.step && !r.visible(step):
		r.fault(e, "a step can't use its own "+s.links[1].name+", which doesn't exist before it has run", "only its undo.input can use it")
	case !r.visible(step):
		r.fault(e, fmt.Sprintf("steps.%s is used, but %s isn't in needs, neither directly nor through others", id, id),
			fmt.Sprintf("add %s to the step's needs", id))
	default:
		flatten(s.links[0])
		flatten(s.links[1])
	}
}

// suggestStep returns a fix for an unknown step. It considers that CEL parses steps.a-b as steps.a minus b.
func (r *references) suggestStep(id string) string {
	var ids []string
	for i := range r.d.Steps {
		other := r.d.Steps[i].ID
		if strings.HasPrefix(other, id+"-") {
			return fmt.Sprintf("an id with a hyphen is written steps[%q]", other)
		}
		ids = append(ids, other)
	}
	return suggest(id, ids)
}

// flatten rewrites ["name"] to .name. Variables are declared as qualified names, such as steps.charge.output.
func flatten(l link) {
	if l.expr.Kind() == ast.CallKind {
		l.expr.SetKindCase(ast.NewExprFactory().NewSelect(l.expr.ID(), l.expr.AsCall().Args()[0], l.name))
	}
}
