// Package replay answers from events what the log knows of the past. It reads no broker and
// writes to none: records go in, from Kafka or from a file that Export wrote. Everything here is
// a fold of events. What can't be folded is said to be so, with the reason, and never guessed.
//
//	Stepper       the state of a task after each of its events, and what each changed
//	Instant       the state of all tasks at an instant
//	Explain       why a task doesn't advance, since when, and what would move it (why.go)
//	Spans         what a timeline tells of time: how long an attempt waited, and worked
//	Fork          what would have become of a task under another definition
//	Plan, Choice  the same for the tasks of a workflow, before a definition is applied (outlook.go)
//	Writer, Reader  files of exported records, each line with its checksum (file.go, line.go, sum.go)
//
// # A fork
//
// Fork is no model of the scheduler. A sandbox in a time that passes at once calls the
// scheduler's own Decide and Policy.Next, and feeds them what comes next, until the task ends or
// is held:
//
//	for {
//		the answer of an agent, as the log has it for this attempt (answer.go), or as is assumed
//		or the timer that fires, when it did in the log (course.go), else when it is due
//		or the start of what waited for its agent, when it began in the log (queued.go)
//	}
//
// So under its own definition a task goes as it went, event by event. What operators commanded
// after the fork is left out: it was meant for another course.
package replay
