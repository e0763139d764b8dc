package workflow

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// The decorators of the evaluation plan add two guarantees that the CEL library doesn't give.
//
// Determinism: CEL's object literals are Go maps, whose order differs between runs. The decorators visit the keys in
// sorted order.
//
// Bounded work: CEL counts the cost of an operation after it ran. That is too late for comparisons. A macro can nest a
// list in itself, [x, x] of [x, x]: 40 levels are cheap to build and have 2^40 elements to compare. The decorators
// count each compared pair at once.

var programOptions = []cel.ProgramOption{
	cel.CostLimit(MaxCost),
	cel.CostTracking(callCost{}),
	cel.CustomDecoratorV2(decorate),
	cel.EvalOptions(cel.OptOptimize), // compiles constant regular expressions once
}

func decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch i := i.(type) {
	case interpreter.InterpretableConstructor:
		if i.Type() == types.MapType {
			return &mapLiteral{i}, nil
		}
	case interpreter.InterpretableCall:
		switch i.Function() {
		case operators.Equals, operators.NotEquals:
			return &comparison{InterpretableCall: i, compare: equality, negate: i.Function() == operators.NotEquals}, nil
		case operators.In:
			if _, constant := i.Args()[1].(interpreter.InterpretableConst); !constant {
				return &comparison{InterpretableCall: i, compare: membership}, nil
			}
		case overloads.Matches:
			if _, constant := i.Args()[1].(interpreter.InterpretableConst); !constant {
				return &patternCall{i}, nil
			}
		}
	}
	return i, nil
}

type mapLiteral struct {
	interpreter.InterpretableConstructor
}

func (l *mapLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := l.InterpretableConstructor.Exec(frame)
	if m, ok := v.(traits.Mapper); ok {
		return newSortedMap(m)
	}
	return v
}

func (l *mapLiteral) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, l.Exec)
}

// comparison is one of the operators ==, != and in.
type comparison struct {
	interpreter.InterpretableCall
	compare func(a, b ref.Val, m *meter) ref.Val
	negate  bool
}

func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := c.Args()
	a := args[0].Exec(frame)
	if types.IsUnknownOrError(a) {
		return a
	}
	b := args[1].Exec(frame)
	if types.IsUnknownOrError(b) {
		return b
	}
	m := &meter{costs: frame.CostTracker(), id: c.ID()}
	v := types.LabelErrNode(c.ID(), c.compare(a, b, m))
	if equal, ok := v.(types.Bool); ok && c.negate {
		return !equal
	}
	return v
}

func (c *comparison) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, c.Exec)
}

// meter adds comparisons to the cost of an evaluation. The evaluation ends when it exceeds its limit.
type meter struct {
	costs *cost.Tracker
	id    int64
}

func (m *meter) count(n int) {
	if m.costs == nil {
		return
	}
	for range 1 + n {
		m.costs.Qualify(m.id) // adds a cost of 1
	}
}

// equality is types.Equal with a cost: 1 for each pair, and 1 for each textUnit bytes of text.
func equality(a, b ref.Val, m *meter) ref.Val {
	switch a := a.(type) {
	case types.String, types.Bytes:
		m.count(textLen(a) / textUnit)
	case traits.Mapper:
		return equalMaps(a, b, m)
	case traits.Lister:
		return equalLists(a, b, m)
	default:
		m.count(0)
	}
	return types.Equal(a, b)
}

func equalMaps(a traits.Mapper, other ref.Val, m *meter) ref.Val {
	m.count(0)
	b, ok := other.(traits.Mapper)
	if !ok || a.Size() != b.Size() {
		return types.False
	}
	for it := a.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		v, _ := a.Find(key)
		w, found := b.Find(key)
		if !found {
			return types.False
		}
		if equal := equality(v, w, m); equal != types.True {
			return equal
		}
	}
	return types.True
}

func equalLists(a traits.Lister, other ref.Val, m *meter) ref.Val {
	m.count(0)
	b, ok := other.(traits.Lister)
	if !ok || a.Size() != b.Size() {
		return types.False
	}
	theirs := b.Iterator()
	for it := a.Iterator(); it.HasNext() == types.True; {
		if equal := equality(it.Next(), theirs.Next(), m); equal != types.True {
			return equal
		}
	}
	return types.True
}

// membership is CEL's operator in. It counts the cost of its comparisons.
func membership(v, in ref.Val, m *meter) ref.Val {
	switch in := in.(type) {
	case traits.Mapper:
		m.count(textLen(v) / textUnit) // it is hashed
		return in.Contains(v)
	case traits.Lister:
		for it := in.Iterator(); it.HasNext() == types.True; {
			if equality(it.Next(), v, m) == types.True {
				return types.True
			}
		}
		return types.False
	}
	return types.MaybeNoSuchOverloadErr(in)
}

// sortedMap is an object of an expression, iterated in sorted order.
type sortedMap struct {
	traits.Mapper
	keys []ref.Val
}

func newSortedMap(m traits.Mapper) ref.Val {
	s := &sortedMap{Mapper: m}
	for it := m.Iterator(); it.HasNext() == types.True; {
		s.keys = append(s.keys, it.Next())
	}
	slices.SortFunc(s.keys, compareKeys)
	return s
}

func (s *sortedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, s.keys).Iterator()
}

// compareKeys orders keys by type, then by value.
func compareKeys(a, b ref.Val) int {
	if n := strings.Compare(a.Type().TypeName(), b.Type().TypeName()); n != 0 {
		return n
	}
	switch a := a.(type) {
	case types.String:
		return strings.Compare(string(a), string(b.(types.String)))
	case types.Int:
		return cmp.Compare(a, b.(types.Int))
	case types.Uint:
		return cmp.Compare(a, b.(types.Uint))
	case types.Bool:
		return bytes.Compare(strconv.AppendBool(nil, bool(a)), strconv.AppendBool(nil, bool(b.(types.Bool))))
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}
