// Package replay answers from events what the log knows of the past: the state
// of a task after each of its events and what each changed (Stepper), the state
// of all tasks at an instant (Instant), and what would have become of a task
// under another definition (fork.go). It reads no broker and writes to none:
// records go in, from Kafka or from a file that Export wrote.
//
// Everything here is a fold of events. What can't be folded is said to be so,
// with the reason, and never guessed.
package replay
