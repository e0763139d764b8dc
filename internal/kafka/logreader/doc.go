// Package logreader reads committed records, and knows its exact position.
//
//	Follower     a supervisor, as a group member, or an index, with all partitions: reads events
//	             from its own positions, and knows when it has caught up
//	Restorer     reads a partition or a topic to its end: restores, and the tools
//	Tail         reads new records from an offset on, without a group
//	Definitions  follows the definitions topic to its current end
//
// # Files
//
// A type has a file of its name, and more where it does more. What several share:
//
//	fetch.go             a request to a leader, and its response, for any of its partitions
//	reader.go            one partition, record by record, with its exact position
//	fetcher.go           the same for a follower: all partitions of a leader at once
//	batch.go             decodes fetch responses, with reused or owned buffers
//	restorer_fence.go    aborts a transaction that its dead owner left open
//	restorer_read_at.go  the records at some offsets
//	corruption.go        what can't be read, because the broker's disk has changed it
//	leaderless.go        the error of leaderless partitions
//
// # Guarantees
//
//   - ReadToEndNow returns after all records that were committed at its call were seen.
//
// # Not obvious
//
//   - A consumer client skips transaction markers and compacted batches silently, so it
//     can't tell that it has reached the end. reader uses the position of the fetch
//     response instead.
package logreader
