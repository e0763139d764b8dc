//go:build !race

package scheduler

const raced = false

// boundedAgents is how many random agents are modelled.
const boundedAgents = 100
