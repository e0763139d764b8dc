// Package workflowtest runs the tests of workflow definitions: text files that say how agents reply, what operators do,
// and how the task must end.
//
// # Overview
//
// A case is one task in virtual time:
//
//	submit the case's input
//	for {
//		next := the earliest of: a scripted reply, a command, a timer   // equal instants: in this order
//		now = next.at
//		decision := scheduler.Decide(task, next.input, now)
//		fold its events, script the replies to its requests
//	}
//	compare the task with the case's expectation
//
// Decide is the scheduler's own, supervisor.RecoveryFor says what a supervisor does about a due timer, and each input is encoded
// and decoded as it is on its topic. So a case can't pass with a decision that a running system wouldn't make. No broker,
// no goroutine and no clock is involved.
//
// file.go has the form of a file, yaml.go reads YAML with positions, run.go runs a case, timeline.go prints its events,
// compare.go compares, and update.go writes expectations into the file.
//
// # Non-guarantees
//
// Agents are always available, and have no limit of concurrency. A timer fires at its instant: a real supervisor is a
// little later. Time passes only between inputs, so a decision takes none.
package workflowtest
