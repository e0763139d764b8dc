// Package replay computes, from events, what happened in the past. It does no I/O: records come from a Source, which
// is a log, a console, or a file that Writer wrote. All results are folds of events. What can't be folded is reported with the reason.
//
//	Stepper       the state of a task after each of its events, and what each changed
//	Instant       the state of all tasks at an instant
//	Explain       why a task doesn't advance, since when, and what would unblock it (why.go)
//	Commands      which commands the state of a task allows, and why not the others
//	Spans         durations in a timeline: how long an attempt waited, and ran
//	Fork          what would have become of a task under another definition
//	Plan, Choice  the same for the tasks of a workflow, before a definition is applied (outlook.go)
//	Export        a file of some tasks or all, without those that have an unreadable event
//	Omission      what an answer leaves out, because events can't be read (source.go, losses.go)
//	Writer, Reader  files of exported records, each line with its checksum (file.go, line_parser.go, sum.go)
//
// # Forks
//
// A fork doesn't model the scheduler. A sandbox in virtual time calls the scheduler's own Decide and Policy.Next, and
// feeds them the next input until the task ends or is held:
//
//	for {
//		the answer of an agent: the recorded one of this attempt (answer.go), or the assumed one
//		or the timer that fires: when it did in the log (recorded_timing.go), else when it is due
//		or the start of a step that waited for its agent: when it started in the log (queued.go)
//	}
//
// So under its own definition a task has the same events as in the log. Commands of operators after the fork are left
// out, since they were meant for another course.
package replay
