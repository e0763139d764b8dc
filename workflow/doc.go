// Package workflow holds workflow definitions: what they are, how they are
// read, checked, compiled and drawn. A definition is data, not code: named
// and versioned steps, a graph by needs, with deadlines, retry and undo rules.
//
//	YAML  --ParseYAML--+
//	JSON  --ParseJSON--+--> Definition --Compile--> Program --When, Input,
//	New(...).Build() --+        |                             UndoInput, Output
//	                            +--> JSON (canonical), Stored, Graph, Effective
//
// The package does no I/O, reads no clock and uses no randomness. The same
// definition and the same scope give the same bytes, on every machine.
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
// Rules that the field names alone don't tell:
//
//   - on_error is undo unless it says hold.
//   - Every step needs a complete_within, its own or defaults.complete_within.
//     One longer than the task's is an error: it could never be reached.
//   - retry is taken field by field: from the step, then from defaults.retry,
//     then from DefaultRetry (one attempt, no retries). An undo takes each from
//     its own, then its step's, then on as the step does.
//   - YAML anchors, aliases, merge keys and tags are refused: a definition
//     means what it shows.
//   - The order of steps in the file is kept and is part of the body.
//
// JSON gives the canonical body, byte for byte the same for the same meaning
// (comments and layout of the YAML don't matter). Stored is the same body with
// the source positions of its expressions, for the definitions topic.
//
// # Expressions
//
// A string may hold "${ expression }" in CEL. Alone in its string it gives the
// value with its JSON type; inside other text it gives text (strings, numbers,
// booleans, timestamps and durations only). "$${" stands for a literal "${".
//
//	task.id, task.workflow, task.version, task.priority, task.labels
//	input                              the task's input
//	steps.<id>.output, .state, .error  of a step this one needs, directly or
//	                                   through others; undo.input also sees its
//	                                   own step; output sees every step
//	steps["an-id"].output              for ids with a hyphen
//
// Offered are CEL's standard functions and macros and its math library, at a
// pinned version. Not offered is what would differ between machines or runs:
// the time-zone variants of the timestamp functions (UTC only).
//
// Numbers. A JSON number without fraction and exponent that fits 64 bits is an
// int, every other is a double. Comparisons go across the two, and so do + - *
// and / (one double makes the result a double). A division of two ints is an
// int, as everywhere in CEL: write double(input.total) / 2.0 for a fraction.
// Results are written without an exponent up to 1e21, a whole double without
// a fraction (5.0 is written 5), NaN and infinities are errors.
//
// A value that is only passed on, "${ input.items }", is passed on byte for
// byte: key order, digits and all. That is also what makes it fast: such a path
// is copied out of the raw JSON without CEL.
//
// # Guarantees
//
//   - All faults of a definition are reported at once, each with file, line,
//     column, path, what is wrong and how to fix it (Errors).
//   - A Program is safe for concurrent use and never panics on what a task
//     holds: a failing expression is an *Error with line, column and path.
//   - Work is bounded: definition bytes, steps, depth, expression length,
//     evaluation cost and memory, and the bytes of a result, by named constants.
//     What many evaluations cost together is counted where they share a Work.
//
// # Not guaranteed
//
// An expression that compiles can still fail on data (a member that isn't
// there); has(input.x) asks first. A JSON object that repeats a key counts by
// its last one, but is passed on as it is.
package workflow
