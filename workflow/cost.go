package workflow

import (
	"strconv"
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// One unit of cost is this much work.
const (
	textUnit     = 10 // bytes of text
	elementsUnit = 4  // elements of a list that is copied
	patternUnit  = 4  // instructions of a regular expression
)

// The cost of each evaluation that compiles a regular expression that isn't constant.
const (
	patternCost     = 100 // for each expression
	patternByteCost = 10
)

// callCost estimates the cost of a call from its arguments. CEL doesn't count conversions and size, and counts other
// calls only if their types are known at compile time. The types of a task's input are not. Failed calls count too,
// because all() and || continue after an error.
type callCost struct{}

func (callCost) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	n := uint64(1)
	switch function {
	case operators.Add:
		n += copied(result)
	case overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble, overloads.TypeConvertBool,
		overloads.TypeConvertBytes, overloads.TypeConvertString, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration,
		overloads.Size:
		n += uint64(textLen(args[0])) / textUnit
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		n += uint64(min(textLen(args[0]), textLen(args[1]))) / textUnit
	case overloads.Matches:
		pattern, _ := args[1].(types.String)
		n = (n + uint64(textLen(args[0]))/textUnit) * uint64(1+instructions(string(pattern))/patternUnit)
	default:
		return nil
	}
	return &n
}

// textLen returns the bytes of a string or bytes value, 0 for other types.
func textLen(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// copied is the cost of the bytes or elements that + copied.
func copied(sum ref.Val) uint64 {
	switch v := sum.(type) {
	case types.String, types.Bytes:
		return uint64(textLen(v)) / textUnit
	case traits.MutableLister: // a macro appends one
	case traits.Lister:
		return uint64(v.Size().(types.Int)) / elementsUnit
	}
	return 0
}

// instructions estimates the number of instructions of a compiled regular expression; each may be tried at each byte.
// Only repetitions make it larger than the number of bytes of the expression.
func instructions(pattern string) int {
	n := len(pattern)
	for _, part := range strings.Split(pattern, "{")[1:] {
		bounds, _, _ := strings.Cut(part, "}")
		least, most, _ := strings.Cut(bounds, ",")
		times, _ := strconv.Atoi(least)
		if m, err := strconv.Atoi(most); err == nil {
			times = m
		}
		if n *= max(1, times); n > maxRegexSize {
			return max(len(pattern), maxRegexSize) // larger ones are refused
		}
	}
	return n
}

// patternCall is a call of matches with a pattern that isn't constant. CEL gets the pattern from Args and compiles it
// to refuse patterns that are too large. It doesn't count that cost.
type patternCall struct {
	interpreter.InterpretableCall
}

func (c *patternCall) Args() []interpreter.InterpretableV2 {
	args := c.InterpretableCall.Args()
	return []interpreter.InterpretableV2{args[0], &pattern{args[1]}}
}

// pattern counts the cost of compiling a pattern before CEL does it.
type pattern struct {
	interpreter.InterpretableV2
}

func (p *pattern) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := p.InterpretableV2.Exec(frame)
	m := &meter{costs: frame.CostTracker(), id: p.ID()}
	m.count(patternCost + patternByteCost*textLen(v))
	return v
}

func (p *pattern) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, p.Exec)
}
