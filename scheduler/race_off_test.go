//go:build !race

package scheduler

const raced = false
