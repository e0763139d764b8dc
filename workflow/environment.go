package workflow

import (
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/stdlib"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// The bounds of one evaluation. Exceeding one fails the step.
const (
	// MaxCost is in CEL's cost units: about one for each operation, and one for every ten bytes or each
	// element that it processes (callCost). An evaluation of that cost takes about 60 ms.
	MaxCost = 1_000_000
	// MaxResultBytes bounds an input, an output or an undo's input. A Kafka record of the default 1,000,012
	// bytes has room for it and for the rest of the record.
	MaxResultBytes = 900_000

	maxListElements   = 100_000 // of two lists added
	maxNodes          = 2_000   // of one expression, macros expanded
	maxRecursion      = 32      // of one expression's syntax
	maxRegexSize      = 200     // instructions of a compiled regular expression
	mathVersion       = 2       // pinned: what compiles today must compile the same tomorrow
	fieldOutput       = "output"
	fieldState        = "state"
	fieldError        = "error"
	variableTask      = "task"
	variableInput     = "input"
	variableSteps     = "steps"
	variableOutput    = "output" // of a call, in Repeat.Until
	variableItem      = "item"   // of a step with for_each
	variableIndex     = "index"
	variableSeparator = "."
)

// taskFields are the fields of the variable task, with their types.
var taskFields = []struct {
	name string
	kind variableKind
	cel  *cel.Type
}{
	{"id", taskID, cel.StringType},
	{"workflow", taskWorkflow, cel.StringType},
	{"version", taskVersion, cel.IntType},
	{"priority", taskPriority, cel.IntType},
	{"labels", taskLabels, cel.MapType(cel.StringType, cel.StringType)},
}

// stepFields are the fields of the variables steps.<id>.
var stepFields = []struct {
	name string
	kind variableKind
	cel  *cel.Type
}{
	{fieldOutput, stepOutput, cel.DynType},
	{fieldState, stepState, cel.StringType},
	{fieldError, stepError, cel.DynType},
}

// variableKind names the part of a Scope that a variable reads.
type variableKind uint8

const (
	scopeInput variableKind = iota
	taskID
	taskWorkflow
	taskVersion
	taskPriority
	taskLabels
	stepOutput
	stepState
	stepError
	callOutput
	scopeItem
	scopeIndex
	namedValue // of a Form; step is its index
)

// variable is the meaning of a name such as steps.charge.output.
type variable struct {
	kind variableKind
	step int // of stepOutput, stepState, stepError
}

// variables returns the names of all variables for the expressions of a definition. references checks which steps an
// expression may name; its message is better than CEL's "undeclared".
func variables(d *Definition) (map[string]variable, []cel.EnvOption) {
	vars := map[string]variable{variableInput: {kind: scopeInput}, variableOutput: {kind: callOutput},
		variableItem: {kind: scopeItem}, variableIndex: {kind: scopeIndex}}
	opts := []cel.EnvOption{cel.Variable(variableInput, cel.DynType), cel.Variable(variableOutput, cel.DynType),
		cel.Variable(variableItem, cel.DynType), cel.Variable(variableIndex, cel.IntType)}
	for _, f := range taskFields {
		name := variableTask + variableSeparator + f.name
		vars[name] = variable{kind: f.kind}
		opts = append(opts, cel.Variable(name, f.cel))
	}
	for i := range d.Steps {
		for _, f := range stepFields {
			name := strings.Join([]string{variableSteps, d.Steps[i].ID, f.name}, variableSeparator)
			if _, twice := vars[name]; twice {
				continue // a fault that checkStructure reports
			}
			vars[name] = variable{kind: f.kind, step: i}
			of := f.cel
			if f.name == fieldOutput && d.Steps[i].Summarizes() { // so that a use of it as a list is a fault of the definition
				of = cel.MapType(cel.StringType, cel.DynType)
			}
			opts = append(opts, cel.Variable(name, of))
		}
	}
	return vars, opts
}

// baseEnvironment is the CEL environment of all definitions, without variables.
var baseEnvironment = sync.OnceValue(func() *cel.Env {
	e, err := cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{ExcludeFunctions: excluded()})),
		arithmetic(operators.Add, overloads.AddInt64, overloads.AddUint64, overloads.AddDouble, add,
			cel.Overload(overloads.AddBytes, pair(cel.BytesType, cel.BytesType), cel.BytesType),
			cel.Overload(overloads.AddString, pair(cel.StringType, cel.StringType), cel.StringType),
			cel.Overload(overloads.AddList, pair(listOfA, listOfA), listOfA),
			cel.Overload(overloads.AddDurationDuration, pair(cel.DurationType, cel.DurationType), cel.DurationType),
			cel.Overload(overloads.AddDurationTimestamp, pair(cel.DurationType, cel.TimestampType), cel.TimestampType),
			cel.Overload(overloads.AddTimestampDuration, pair(cel.TimestampType, cel.DurationType), cel.TimestampType)),
		arithmetic(operators.Subtract, overloads.SubtractInt64, overloads.SubtractUint64, overloads.SubtractDouble, operation(traits.Subtractor.Subtract),
			cel.Overload(overloads.SubtractDurationDuration, pair(cel.DurationType, cel.DurationType), cel.DurationType),
			cel.Overload(overloads.SubtractTimestampDuration, pair(cel.TimestampType, cel.DurationType), cel.TimestampType),
			cel.Overload(overloads.SubtractTimestampTimestamp, pair(cel.TimestampType, cel.TimestampType), cel.DurationType)),
		arithmetic(operators.Multiply, overloads.MultiplyInt64, overloads.MultiplyUint64, overloads.MultiplyDouble, operation(traits.Multiplier.Multiply)),
		arithmetic(operators.Divide, overloads.DivideInt64, overloads.DivideUint64, overloads.DivideDouble, operation(traits.Divider.Divide)),
		ext.Math(ext.MathVersion(mathVersion)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.EnableHiddenAccumulatorName(true), // otherwise macros copy a list for each element
		cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(MaxExpressionBytes),
		cel.ParserRecursionLimit(maxRecursion),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxRegexSize),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	)
	if err != nil {
		panic("workflow: the CEL environment doesn't build: " + err.Error())
	}
	return e
})

// excluded returns the functions that arithmetic replaces, and the overloads that use the machine's time-zone
// database, which differs between machines.
func excluded() []*env.Function {
	var out []*env.Function
	for _, fn := range stdlib.Functions() {
		switch fn.Name() {
		case operators.Add, operators.Subtract, operators.Multiply, operators.Divide:
			out = append(out, env.NewFunction(fn.Name()))
			continue
		}
		var zoned []*env.Overload
		for _, o := range fn.OverloadDecls() {
			if args := o.ArgTypes(); len(args) > 1 && args[0].IsExactType(types.TimestampType) && args[1].IsExactType(types.StringType) {
				zoned = append(zoned, &env.Overload{ID: o.ID()})
			}
		}
		if len(zoned) > 0 {
			out = append(out, env.NewFunction(fn.Name(), zoned...))
		}
	}
	return out
}

var listOfA = cel.ListType(cel.TypeParamType("A"))

func pair(a, b *cel.Type) []*cel.Type { return []*cel.Type{a, b} }

// arithmetic declares an operator like CEL's, and in addition for an int with a double. JSON doesn't distinguish 5 from
// 5.0, so expressions don't either.
func arithmetic(name, ints, uints, doubles string, apply func(a, b ref.Val) ref.Val, more ...cel.FunctionOpt) cel.EnvOption {
	opts := []cel.FunctionOpt{
		cel.Overload(ints, pair(cel.IntType, cel.IntType), cel.IntType),
		cel.Overload(uints, pair(cel.UintType, cel.UintType), cel.UintType),
		cel.Overload(doubles, pair(cel.DoubleType, cel.DoubleType), cel.DoubleType),
		cel.Overload(ints+"_double", pair(cel.IntType, cel.DoubleType), cel.DoubleType),
		cel.Overload(doubles+"_int64", pair(cel.DoubleType, cel.IntType), cel.DoubleType),
	}
	opts = append(append(opts, more...), cel.SingletonBinaryBinding(func(a, b ref.Val) ref.Val {
		return apply(widen(a, b), widen(b, a))
	}))
	return cel.Function(name, opts...)
}

// widen converts an int to a double if the other operand is a double.
func widen(v, other ref.Val) ref.Val {
	if i, ok := v.(types.Int); ok {
		if _, ok := other.(types.Double); ok {
			return types.Double(i)
		}
	}
	return v
}

// add copies lists. CEL would link them instead. Each access to an element of a list that was made of many lists would
// follow all links, at no counted cost.
func add(a, b ref.Val) ref.Val {
	if v, ok := a.(traits.Lister); ok {
		if _, ok := a.(traits.MutableLister); !ok {
			return concat(v, b)
		}
	}
	if v, ok := a.(traits.Adder); ok {
		return v.Add(b)
	}
	return types.MaybeNoSuchOverloadErr(a)
}

// operation returns an operator of the values that have it.
func operation[T any](apply func(T, ref.Val) ref.Val) func(a, b ref.Val) ref.Val {
	return func(a, b ref.Val) ref.Val {
		if v, ok := a.(T); ok {
			return apply(v, b)
		}
		return types.MaybeNoSuchOverloadErr(a)
	}
}

func concat(a traits.Lister, other ref.Val) ref.Val {
	b, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	n := a.Size().(types.Int) + b.Size().(types.Int)
	if n > maxListElements {
		return types.NewErr("a list of %d elements, the limit is %d", n, maxListElements)
	}
	elements := make([]ref.Val, 0, n)
	for _, l := range []traits.Lister{a, b} {
		for it := l.Iterator(); it.HasNext() == types.True; {
			elements = append(elements, it.Next())
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}
