//go:build race

package scheduler

// raced: everything takes ten times as long.
const raced = true

// boundedAgents: a model is one goroutine, in which there is no race to be found.
const boundedAgents = 10
