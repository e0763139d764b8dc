// Package jsonscan finds values in the text of JSON without decoding them. Package events decodes records with it, and
// package workflow evaluates expressions on a task's input and outputs.
//
// It accepts the JSON of RFC 8259, nested up to MaxDepth, without half a surrogate pair. It doesn't check that the text
// is UTF-8. Functions that skip something return the index after it, or an error and the index of the fault.
package jsonscan
