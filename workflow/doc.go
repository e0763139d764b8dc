// Package workflow parses, checks, compiles and draws workflow definitions. A
// definition is data, not code. It has a name, a version, and steps with
// deadlines, retry rules and undo rules. The needs of the steps form a graph.
//
//	YAML  --ParseYAML--+
//	JSON  --ParseJSON--+--> Definition --Compile--> Program --When, Input,
//	New(...).Build() --+        |                             UndoInput, Output
//	                            +--> JSON (canonical), Stored, Graph, Effective
//
// The package does no I/O, reads no clock and uses no randomness. The same
// definition and the same scope result in the same bytes on every machine.
//
// # Definitions
//
// The sample, order.yaml, shows every construct but few of the knobs:
//
//	workflow: order
//	version: 1
//	complete_within: 30m
//	steps:
//	  charge:
//	    needs: [reserve]
//	    agent: payments
//	    operation: charge
//	    when: "${ input.total > 0 }"
//	    input: {amount: "${ input.total }"}
//	    undo: {operation: refund}
//
// Rules that don't follow from the field names:
//
//   - The default of on_error is undo.
//   - Every step needs a complete_within, its own or defaults.complete_within.
//     A value longer than the task's is an error, because it would never end
//     an attempt.
//   - Each field of retry comes from the step, otherwise from defaults.retry,
//     otherwise from DefaultRetry (one attempt, no retries). Each field of an
//     undo's retry comes from the undo, otherwise from its step as above.
//   - YAML anchors, aliases, merge keys and tags are refused, so that each
//     part of a definition can be read without the others.
//   - The order of steps in the file is kept and is part of the body.
//
// JSON returns the canonical body: the same bytes for the same meaning.
// Comments and layout of the YAML don't matter. Stored returns the same body
// with the source positions of its expressions, for the definitions topic.
//
// # Expressions
//
// A string may contain "${ expression }" in CEL. If the expression is the whole
// string, its value keeps its JSON type. Inside other text the value becomes
// text; it must be a string, number, boolean, timestamp or duration. "$${" is a
// literal "${".
//
//	task.id, task.workflow, task.version, task.priority, task.labels
//	input                              the task's input
//	steps.<id>.output, .state, .error  of a step this one needs, directly or
//	                                   through others; undo.input also sees its
//	                                   own step; output sees every step
//	steps["an-id"].output              for ids with a hyphen
//
// Expressions have CEL's standard functions and macros and its math library,
// at a pinned version. They don't have the time-zone variants of the timestamp
// functions (UTC only), because those differ between machines.
//
// Numbers. A JSON number without fraction and exponent that fits 64 bits is an
// int. Every other number is a double. Comparisons and + - * / accept an int
// with a double; the result of arithmetic is then a double. A division of two
// ints is an int, as in CEL: write double(input.total) / 2.0 for a fraction.
// Results are written without an exponent up to 1e21, and a whole double
// without a fraction (5.0 is written 5). NaN and infinities are errors.
//
// A plain path such as "${ input.items }" is copied from the raw JSON without
// CEL. That is fast, and keeps the bytes, such as key order and digits.
//
// # Guarantees
//
//   - All faults of a definition are reported at once (Errors). Each has the
//     file, line, column, path, what is wrong and how to fix it.
//   - A Program is safe for concurrent use. It never panics on the data of a
//     task: a failed expression is an *Error with line, column and path.
//   - Named constants bound the bytes of a definition, its steps and depth, the
//     length of an expression, the cost and memory of an evaluation, and the
//     bytes of a result. A Work bounds the total cost of many evaluations.
//
// # Not guaranteed
//
// An expression that compiles can still fail on data, for example because a
// member is absent. has(input.x) tests for it. If a JSON object repeats a key,
// expressions read the last one. A copied object keeps all of them.
package workflow
