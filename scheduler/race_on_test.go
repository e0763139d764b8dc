//go:build race

package scheduler

// raced: everything takes ten times as long.
const raced = true
