//go:build race

package scheduler

// raced reports whether the race detector is enabled. It makes tests about ten times slower.
const raced = true
