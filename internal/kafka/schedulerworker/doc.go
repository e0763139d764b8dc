// Package schedulerworker is a scheduler's worker: a member of the schedulers' group that consumes inboxes and produces
// events in one transaction. The doc of Worker shows its loop and its guarantees.
//
//	worker.go, poll.go, commit.go  the worker, its polls and its transactions
//	positions.go, last_event.go    where an inbox is read from, and whether the log has what a commit stands for
//	stable_offsets.go              offsets that an open transaction holds back
//	duplicate.go                   another process with the same owner
//	split.go                       output in smaller batches, for a topic that refused one as too large
//
// # Not obvious
//
//   - OnPartitionsAssigned runs before the committed offsets are read, and OnOffsetsFetched after it and before the first
//     record.
package schedulerworker
