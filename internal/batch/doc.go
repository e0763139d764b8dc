// Package batch gives one command to many tasks: it selects, previews, tries a canary, keeps a rate, and stops when the
// fault recurs. It is pure: it knows no clock, no Kafka and no API. The caller does what Next says, and
// reports what came of it:
//
//	for {
//		do := b.Next(now)
//		// send do.Send: each answer goes to b.Answered
//		// read the state of each task in do.Look: it goes to b.Observed, an error to b.ObservationFailed
//		// wait for one of them, or until do.Until
//		// end when do.Ended
//	}
//
// # States of a task
//
//	waiting -> sent -> accepted -> passed
//	              \-> refused  \-> recurred
//	              \-> unanswered -> sent
//
// A task stays waiting if the batch ends before its turn. Of the accepted tasks only the states of the canary and of a sample
// are read; the others stay accepted.
//
// # The log of a batch
//
// A batch is a sequence of records of the topic of batches (record.go). Fold makes of them what is known of each batch, so
// that another process can continue it:
//
//	targets, targets, ... -> selected -> reported, reported, ... -> ended
//	                                 \-> stop_requested
//
// # Guarantees
//
//   - The request id of a command follows from the id of the batch and the task. So a batch that is repeated with the
//     same id has no second effect on any task, wherever it was interrupted.
//   - No command is sent after the fault has recurred, or before the canary has passed.
//   - No more than Rate commands are sent in a second, and those of a tenth of a second more after a pause.
//
// # Not guaranteed
//
//   - Commands that are sent when the fault recurs are not taken back.
//   - A fault that recurs in tasks outside the sample is not seen.
package batch
